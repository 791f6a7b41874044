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
    #: Longest wait of the era probe on stdio before the handshake is tried.
    probe_seconds: float = 2.0
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
