"""Every limit of the core in one frozen record; other files take their caps from here.

A limit is never a constant elsewhere: ``Server(limits=...)``, ``Client(limits=...)`` and configuration set the same
fields, and the reference documentation is made from this file's field comments.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Limits"]


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The caps on what the other side may make us hold, read or wait for; sizes in bytes, times in seconds."""

    #: Longest message on stdio or another stream, newline not counted.
    message_bytes: int = 64 * 1024 * 1024
    #: Largest HTTP request body.
    body_bytes: int = 4 * 1024 * 1024
    #: Deepest nesting of objects and arrays in a message.
    depth: int = 256
    #: Most messages in one batch.
    batch: int = 100
    #: Most requests of the other side being served at once on one connection.
    in_flight: int = 1024
    #: Most bytes waiting to be written before a sender is made to wait.
    write_bytes: int = 1024 * 1024
    #: Most notices waiting in one subscription before it is ended.
    notices: int = 1024
    #: Bytes of a server process's stderr that are kept for error messages.
    stderr_bytes: int = 64 * 1024
    #: Worker threads for sync functions, started as needed.
    threads: int = 32
    #: Items on one page of a list.
    page_size: int = 1000
    #: Pages a client reads of one list before it gives up.
    pages: int = 1000
    #: Rounds of questions in one call.
    rounds: int = 32
    #: Bytes of sealed request state that travel with the client.
    state_bytes: int = 64 * 1024
    #: Life of sealed request state since its last round.
    state_seconds: float = 900.0
    #: Entries in a client's response cache.
    cache_entries: int = 256
    #: Longest wait for a connection to come up, era probe and handshake included.
    connect_seconds: float = 30.0
    #: Longest wait of the era probe on stdio before the handshake is tried; never more than half of `connect_seconds`.
    probe_seconds: float = 10.0
    #: Longest wait for the event stream of a new HTTP session to open before calls are sent.
    ready_seconds: float = 2.0
    #: Longest silence while a request waits: progress starts it again.
    idle_seconds: float = 60.0
    #: Longest life of a request, whatever progress says.
    total_seconds: float = 600.0
    #: Longest wait for a person (or their model) to answer a question that a handler asked.
    ask_seconds: float = 900.0
    #: Longest wait for answers in flight after the input of a stdio server has ended.
    eof_seconds: float = 5.0
    #: Wait between the steps of a process's shutdown: input closed, TERM, KILL.
    exit_seconds: float = 2.0
    #: Largest head of an HTTP request: request line and headers.
    header_bytes: int = 64 * 1024
    #: Longest wait for the whole head of an HTTP request.
    header_seconds: float = 10.0
    #: Longest wait for the whole body of an HTTP request.
    body_seconds: float = 30.0
    #: Longest rest of an HTTP connection between two requests.
    keep_alive_seconds: float = 75.0
    #: Most HTTP connections open at once; those beyond are answered 503 and closed.
    connections: int = 10_000
    #: Most handshake sessions over HTTP at once.
    sessions: int = 10_000
    #: Longest rest of a handshake session over HTTP: no request, no open stream.
    session_seconds: float = 1800.0
    #: The same, for a session whose client has not yet said that it is ready.
    unready_seconds: float = 60.0
    #: Most open event streams of one handshake session.
    session_streams: int = 32
    #: Most open event streams of one server.
    streams: int = 10_000
    #: Most events kept of one stream, so that a client that lost it can take it up again.
    log_events: int = 1024
    #: Most bytes of events kept of one session.
    log_bytes: int = 1024 * 1024
    #: Life of a kept stream after its last event.
    log_seconds: float = 300.0
    #: Silence on an event stream after which a comment keeps it alive; an answer that takes longer becomes a stream.
    comment_seconds: float = 15.0
    #: Time given to requests in flight when a server is told to stop by a signal, over HTTP and stdio.
    drain_seconds: float = 30.0
    #: Times a client takes up a lost event stream again before it gives up.
    resumptions: int = 5
