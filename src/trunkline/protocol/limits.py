"""Every limit of the core in one frozen record; other modules read their limits from here.

A limit is never a constant elsewhere: ``Server(limits=...)``, ``Client(limits=...)`` and the configuration set the same
fields, and the reference documentation is generated from the field comments in this file.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Limits"]


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits on what the other side may make us hold, read or wait for; sizes in bytes, times in seconds."""

    #: Maximum length of a message on stdio or another stream, without the newline.
    message_bytes: int = 64 * 1024 * 1024
    #: Maximum size of an HTTP request body.
    body_bytes: int = 4 * 1024 * 1024
    #: Bytes of the bodies of HTTP requests that are being received or served, for all callers together; they need about
    #: three times as much once they are decoded. More are answered 503.
    memory_bytes: int = 256 * 1024 * 1024
    #: The same for one caller: a principal, or the address of a client without one. More are answered 429.
    owner_memory_bytes: int = 64 * 1024 * 1024
    #: Maximum nesting depth of objects and arrays in a message.
    depth: int = 256
    #: Maximum number of messages in one batch.
    batch: int = 100
    #: Maximum number of requests served at once on one connection.
    in_flight: int = 1024
    #: Maximum number of bytes waiting to be written before senders are made to wait.
    write_bytes: int = 1024 * 1024
    #: Maximum number of notifications waiting in one subscription before it is ended.
    notices: int = 1024
    #: Bytes of a server process's stderr that are kept for error messages.
    stderr_bytes: int = 64 * 1024
    #: Worker threads for sync functions, started as needed.
    threads: int = 32
    #: Time that a function may block the event loop of a running server before a warning names its file and line; 0
    #: turns the warning off.
    blocking_seconds: float = 1.0
    #: Items on one page of a list.
    page_size: int = 1000
    #: Pages of one list that a client reads before it gives up.
    pages: int = 1000
    #: Input rounds in one call.
    rounds: int = 32
    #: Bytes of sealed request state that travel with the client; larger state is stored on the server.
    state_bytes: int = 64 * 1024
    #: Lifetime of sealed request state since its last round.
    state_seconds: float = 900.0
    #: Open questions, answers and results of `ctx.once` that are kept for one call, sealed or with its task.
    journal_entries: int = 1024
    #: Bytes of the answers and the results of `ctx.once` that are kept for one call.
    journal_bytes: int = 16 * 1024 * 1024
    #: Bytes that a server stores for all of its callers: handles, large request states, tasks; each counts at least
    #: 512 bytes more than its own.
    store_bytes: int = 512 * 1024 * 1024
    #: The same for one caller: a user, or a network address where callers are not authenticated. When it is reached,
    #: the oldest request states and finished tasks of this caller make room.
    owner_store_bytes: int = 128 * 1024 * 1024
    #: Bytes of an immutable value that is sealed into the text of its handle; larger values are stored, since models
    #: have to repeat the text.
    sealed_handle_bytes: int = 512
    #: Timeout for a call that waits to edit a value while other calls edit it.
    handle_wait_seconds: float = 30.0
    #: Entries in a client's response cache.
    cache_entries: int = 256
    #: Timeout for connecting, era probe and handshake included.
    connect_seconds: float = 30.0
    #: Timeout for the era probe on stdio before the handshake is tried; never more than half of `connect_seconds`.
    probe_seconds: float = 10.0
    #: Timeout for the event stream of a new HTTP session to open before calls are sent.
    ready_seconds: float = 2.0
    #: Timeout for silence while a request waits: progress restarts it.
    idle_seconds: float = 60.0
    #: Timeout for a whole request, regardless of progress.
    total_seconds: float = 600.0
    #: Timeout for a person (or their model) to answer a request that a handler sent.
    ask_seconds: float = 900.0
    #: Timeout for answers in flight after the input of a stdio server has ended.
    eof_seconds: float = 5.0
    #: Delay between the steps of a process's shutdown: input closed, TERM, KILL.
    exit_seconds: float = 2.0
    #: Maximum size of the head of an HTTP request: request line and headers.
    header_bytes: int = 64 * 1024
    #: Timeout for receiving the whole head of an HTTP request.
    header_seconds: float = 10.0
    #: Timeout for receiving the whole body of an HTTP request.
    body_seconds: float = 30.0
    #: Maximum idle time of an HTTP connection between two requests.
    keep_alive_seconds: float = 75.0
    #: Maximum number of open HTTP connections. A further one replaces the oldest without a request in progress; if
    #: there is none, it is answered 503 and closed.
    connections: int = 10_000
    #: Maximum number of handshake sessions over HTTP. A further one ends the oldest idle one of its caller, or of the
    #: caller with the most; if all are in use, it is answered 503.
    sessions: int = 10_000
    #: Maximum idle time of a handshake session over HTTP: no request, no open stream.
    session_seconds: float = 1800.0
    #: The same, for a session whose client has not yet sent `notifications/initialized`.
    unready_seconds: float = 60.0
    #: Maximum number of open event streams of one handshake session.
    session_streams: int = 32
    #: Maximum number of open event streams of one server.
    streams: int = 10_000
    #: Maximum number of events kept per session, so that a client that lost a stream can resume it.
    log_events: int = 1024
    #: Maximum number of bytes of events kept per session. A larger one reaches a client that stays connected.
    log_bytes: int = 1024 * 1024
    #: Lifetime of the kept events after the last one; a request in progress renews it.
    log_seconds: float = 300.0
    #: Silence on an event stream after which a comment is sent as a keep-alive; an answer that takes longer becomes a
    #: stream.
    comment_seconds: float = 15.0
    #: Time for requests in flight to finish when a server is stopped by a signal, over HTTP and stdio.
    drain_seconds: float = 30.0
    #: Time in which a worker that is replaced or stopped answers one more request on each idle connection, before it
    #: closes those that stayed silent; part of `drain_seconds`.
    retire_seconds: float = 5.0
    #: Time that the event loop of one of several workers may stand still before the worker is killed and replaced; 0
    #: never replaces one. It is long, since a function that blocks for some seconds is slow, and not lost.
    heartbeat_seconds: float = 30.0
    #: Number of times that a client resumes a lost event stream before it gives up.
    resumptions: int = 5
