"""Handshake sessions over HTTP.

A session id carries what was agreed in the handshake, sealed, so that any worker serves any POST. The store has what
changes: the events of a session's streams, its log level and subscriptions, and that it has ended. A request is never
passed to another worker; what a worker must hear (an answer, a cancellation, a change) goes by its channel. With the
memory of one process as the store, the same code serves the sessions of that process alone.
"""

__all__: list[str] = []
