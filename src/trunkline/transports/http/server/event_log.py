"""Streams of events: those pending, and those already written that are kept for a client that lost its connection.

A link pushes events to a stream, and at most one HTTP response at a time reads them. A stream that is kept in a log
numbers its events (``<stream>-<n>``) and stores those already written, so that a client can name the last one it has
and resume after it, on another response: no event is sent twice and none is skipped. A session stores a bounded amount:
unread notifications are dropped first, then finished streams that no client has resumed. Answers and requests of a
stream that is open, or being read, are never dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Protocol

from trunkline.protocol.limits import Limits
from trunkline.protocol.sse import encode_event

__all__ = ["EventLog", "EventStream", "Reader"]


class Reader(Protocol):
    """An HTTP response that writes a stream's events."""

    def wake(self) -> None:
        """Called when events are pending, or the stream has ended."""

    def dismiss(self) -> None:
        """Called when another response reads the stream from now on."""

    def finish(self) -> None:
        """Called when the response is to end after the pending events; the stream goes on."""


class _Entry:
    __slots__ = ("data", "droppable", "event", "number", "retry")

    def __init__(self, number: int, data: bytes, *, droppable: bool, retry: int | None, event: str) -> None:
        self.number = number
        self.data = data
        self.droppable = droppable
        self.retry = retry
        self.event = event


class EventStream:
    """The events of one response, or of one stream of a session."""

    __slots__ = (
        "_log",
        "_next",
        "_pending",
        "_waiting",
        "_written",
        "ended",
        "has_pending_response",
        "name",
        "pending_bytes",
        "reader",
    )

    #: Done once the first event may be written, where events are stored outside of the process first.
    storing: asyncio.Future[None] | None = None

    def __init__(self, name: str = "", log: EventLog | None = None, *, awaited: bool = False) -> None:
        """Start empty; events are numbered and kept if there is a log.

        With ``awaited`` a response is about to read it.
        """
        self.name: str = name
        self._log = log
        self._next = 1
        # Plain lists: an idle stream must be small, as there may be thousands.
        self._pending: list[_Entry] = []
        self._written: list[_Entry] = []
        self._waiting: list[asyncio.Future[None]] | None = None
        self.reader: Reader | None = None
        #: Whether a response is about to read it.
        self.has_pending_response: bool = awaited
        #: Nothing more will be pushed.
        self.ended: bool = False
        #: The size of the pending events.
        self.pending_bytes: int = 0

    # --- for the sender ----------------------------------------------------------------------------------------------

    def push(
        self,
        data: bytes,
        *,
        droppable: bool = False,
        retry: int | None = None,
        merge: bool = False,
        last: bool = False,
        event: str = "message",
    ) -> None:
        """Add an event; with ``merge`` unless an equal one is pending; ``last`` ends the stream."""
        if not (merge and any(entry.data == data for entry in self._pending)):
            self._pending.append(_Entry(self._next, data, droppable=droppable, retry=retry, event=event))
            self._next += 1
            self.pending_bytes += len(data)
            if self._log is not None:
                self._log.added(self, len(data))
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
        while self.pending_bytes > limit and (self.reader is not None or self.has_pending_response):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._waiting is None:
                self._waiting = []
            self._waiting.append(waiter)
            await waiter

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
        self.pending_bytes = 0
        if self._waiting is not None:
            self._wake_senders()
        if self._log is None:
            return b"".join([encode_event(entry.data, event=entry.event, retry=entry.retry) for entry in pending])
        self._written.extend(pending)
        return b"".join(
            [encode_event(entry.data, id=f"{self.name}-{entry.number}", retry=entry.retry) for entry in pending]
        )

    def rewind(self, after: int) -> bool:
        """Make all events after a number pending again; False if one was dropped, or there was no such number."""
        oldest = next(iter(self._written), None) or next(iter(self._pending), None)
        first = self._next if oldest is None else oldest.number
        if not first - 1 <= after < self._next:
            return False
        kept = [*self._written, *self._pending]
        self._written = [entry for entry in kept if entry.number <= after]
        self._pending = [entry for entry in kept if entry.number > after]
        self.pending_bytes = sum(len(entry.data) for entry in self._pending)
        return True

    def _wake_senders(self) -> None:
        waiting, self._waiting = self._waiting, None
        for waiter in waiting or ():
            if not waiter.done():
                waiter.set_result(None)

    # --- for the log that keeps it -----------------------------------------------------------------------------------

    @property
    def kept(self) -> int:
        """How many events it holds."""
        return len(self._pending) + len(self._written)

    def kept_bytes(self) -> int:
        """How many bytes it holds."""
        return self.pending_bytes + sum(len(entry.data) for entry in self._written)

    def drop_one(self) -> int | None:
        """Drop the oldest event that may be dropped; return its size, or None if there is none."""
        if self._written:
            return len(self._written.pop(0).data)
        if self.reader is None and not self.has_pending_response:
            for entry in self._pending:
                if entry.droppable:
                    self._pending.remove(entry)
                    self.pending_bytes -= len(entry.data)
                    return len(entry.data)
        return None


class EventLog:
    """The streams of one session that can be resumed."""

    __slots__ = ("_bytes", "_ended", "_last", "_limits", "streams")

    def __init__(self, limits: Limits) -> None:
        """Start without streams."""
        self._limits = limits
        self._last = 0
        self._bytes = 0
        #: When each finished stream was first seen to be finished.
        self._ended: dict[str, float] = {}
        self.streams: dict[str, EventStream] = {}

    def open(self, *, awaited: bool = False) -> EventStream:
        """Create a stream; with ``awaited`` a response is about to read it."""
        self._last += 1
        stream = EventStream(str(self._last), self, awaited=awaited)
        self.streams[stream.name] = stream
        return stream

    def find(self, event_id: str) -> tuple[EventStream, int] | None:
        """Return the stream that an event id names, and the event's number in it."""
        name, _, number = event_id.rpartition("-")
        stream = self.streams.get(name)
        if stream is None or not number.isascii() or not number.isdigit() or len(number) > 15:
            return None
        return stream, int(number)

    def added(self, stream: EventStream, size: int) -> None:
        """Called when an event was added: drop others if the log is over its limit."""
        self._bytes += size
        while stream.kept > self._limits.log_events and (dropped := stream.drop_one()) is not None:
            self._bytes -= dropped
        if self._bytes > self._limits.log_bytes:
            self._make_room()

    def sweep(self, now: float) -> None:
        """Remove streams that ended a while ago."""
        for name, stream in list(self.streams.items()):
            if not stream.ended or stream.reader is not None:
                continue
            since = self._ended.setdefault(name, now)
            if now - since > self._limits.log_seconds:
                self._remove(name)

    def close(self) -> None:
        """End every stream."""
        for stream in self.streams.values():
            stream.end()

    def _make_room(self) -> None:
        for stream in self._finished_first():
            while self._bytes > self._limits.log_bytes:
                dropped = stream.drop_one()
                if dropped is None:
                    break
                self._bytes -= dropped
            if _is_finished(stream) and not stream.kept:
                self._remove(stream.name)
        # Then the finished streams that no client has resumed, the oldest first.
        for stream in [stream for stream in self.streams.values() if _is_finished(stream)]:
            if self._bytes <= self._limits.log_bytes:
                break
            self._remove(stream.name)

    def _finished_first(self) -> Iterator[EventStream]:
        """Yield finished streams first: their clients have most likely received all events."""
        streams = list(self.streams.values())
        yield from (stream for stream in streams if _is_finished(stream))
        yield from (stream for stream in streams if not _is_finished(stream))

    def _remove(self, name: str) -> None:
        stream = self.streams.pop(name)
        self._ended.pop(name, None)
        self._bytes -= stream.kept_bytes()


def _is_finished(stream: EventStream) -> bool:
    """Return whether a stream has ended and no response reads it, or is about to."""
    return stream.ended and stream.reader is None and not stream.has_pending_response
