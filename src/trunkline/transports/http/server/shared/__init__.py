"""Handshake sessions that several workers share through a store; loaded only if the store is not in memory.

A session id carries what was agreed in the handshake, sealed, so that any worker serves any POST. The store keeps
what changes: the events of a session's streams, its log level and subscriptions, and that it has ended. A request is
never passed to another worker; what a worker must hear (an answer, a cancellation, a change) goes by its channel.
"""

__all__: list[str] = []
