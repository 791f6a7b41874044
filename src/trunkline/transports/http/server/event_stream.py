"""A stream of events: those that wait to be written, and the one HTTP response that reads them.

A link pushes events to a stream, and at most one response at a time reads them. The streams of sessions are kept in a
log besides, and can be resumed: see ``sessions/streams.py``.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from msgspec import Struct

from trunkline.protocol.sse import encode_event

__all__ = ["EventStream", "Reader"]


class Reader(Protocol):
    """An HTTP response that writes a stream's events."""

    def wake(self) -> None:
        """Called when events are pending, or the stream has ended."""

    def dismiss(self) -> None:
        """Called when another response reads the stream from now on."""

    def finish(self) -> None:
        """Called when the response is to end after the pending events; the stream goes on."""


class _Event(Struct, frozen=True, gc=False):
    data: bytes
    id: str | None = None
    retry: int | None = None
    event: str = "message"


class EventStream:
    """The events of one response, or of one stream of a session."""

    __slots__ = (
        "_pending",
        "_waiting",
        "ended",
        "has_pending_response",
        "last_id",
        "name",
        "pending_bytes",
        "reader",
    )

    #: Done once the first event may be written, where events are stored outside of the process first.
    storing: asyncio.Future[None] | None = None

    def __init__(self, name: str = "", *, awaited: bool = False) -> None:
        """Start empty; with ``awaited`` a response is about to read it."""
        self.name: str = name
        # Plain lists: an idle stream must be small, as there may be thousands.
        self._pending: list[_Event] = []
        self._waiting: list[asyncio.Future[None]] | None = None
        self.reader: Reader | None = None
        #: Whether a response is about to read it.
        self.has_pending_response: bool = awaited
        #: Nothing more will be pushed.
        self.ended: bool = False
        #: The size of the pending events.
        self.pending_bytes: int = 0
        #: The id of the last event that was taken to be written; "" before the first, and where events have none.
        self.last_id: str = ""

    # --- for the sender ----------------------------------------------------------------------------------------------

    def push(
        self, data: bytes, *, retry: int | None = None, merge: bool = False, last: bool = False, event: str = "message"
    ) -> None:
        """Add an event; with ``merge`` unless an equal one is pending; ``last`` ends the stream."""
        if not (merge and any(pending.data == data for pending in self._pending)):
            self.pending_bytes += len(data)
            self._pending.append(_Event(data, None, retry, event))
        if last:
            self.ended = True
        if self.reader is not None:
            self.reader.wake()

    def end(self) -> None:
        """End the stream: nothing more will be pushed."""
        self.ended = True
        if self.reader is not None:
            self.reader.wake()

    async def drain(self, limit: int) -> None:
        """Wait until at most ``limit`` bytes are pending, or no response reads."""
        while self.pending_bytes > limit and self._may_drain():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._waiting is None:
                self._waiting = []
            self._waiting.append(waiter)
            await waiter

    def _may_drain(self) -> bool:
        return self.reader is not None or self.has_pending_response

    def is_congested(self, limit: int) -> bool:
        """Return whether a response reads but does not keep up: more than ``limit`` bytes are pending."""
        return self.reader is not None and self.pending_bytes > limit

    # --- for the reader ----------------------------------------------------------------------------------------------

    def attach(self, reader: Reader) -> None:
        """Set the response that reads from now on; the previous one is dismissed."""
        before, self.reader = self.reader, reader
        if before is not None:
            before.dismiss()

    @property
    def has_pending(self) -> bool:
        """Whether events are pending."""
        return bool(self._pending)

    def release_reader(self) -> bool:
        """End the response that reads, after the pending events; the stream goes on. Return False if none reads."""
        if self.reader is None:
            return False
        self.reader.finish()
        return True

    def detach(self, reader: Reader) -> None:
        """Remove a response; the events it took count as written."""
        if self.reader is reader:
            self.reader = None
            self.release()

    def release(self) -> None:
        """Called when no response is about to read any more: ``drain`` stops waiting."""
        self.has_pending_response = False
        self._wake_senders()

    def take(self) -> bytes:
        """Return all pending events, encoded; they count as written."""
        if not self._pending:
            return b""
        pending, self._pending = self._pending, []
        self.pending_bytes -= sum([len(event.data) for event in pending])
        self.last_id = pending[-1].id or ""
        if self._waiting is not None:
            self._wake_senders()
        return b"".join(
            [encode_event(event.data, id=event.id, event=event.event, retry=event.retry) for event in pending]
        )

    # --- for the streams of sessions ---------------------------------------------------------------------------------

    def _add(self, id: str, data: bytes, retry: int | None = None) -> None:
        """Add an event with an id."""
        self.pending_bytes += len(data)
        self._pending.append(_Event(data, id, retry))
        if self.reader is not None:
            self.reader.wake()

    def _wake_senders(self) -> None:
        waiting, self._waiting = self._waiting, None
        for waiter in waiting or ():
            if not waiter.done():
                waiter.set_result(None)
