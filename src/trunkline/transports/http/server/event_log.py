"""Streams of events: what waits to be written, and what was written and is kept for a client that lost its connection.

A stream is written to by a link and read by at most one HTTP response at a time. A stream that is kept numbers its
events (``<stream>-<n>``) and remembers those already written, so that a client can name the last one it has and go on
behind it, on another response: nothing comes twice and nothing is left out. What is kept is bounded for the session as
a whole: notifications that nobody reads give way first, then finished streams that nobody came back for. Answers and
questions of a stream that goes on, or is being read, are never dropped.
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
        """Called when there is something to write, or nothing more will come."""

    def dismiss(self) -> None:
        """Called when another response reads the stream from now on."""

    def leave(self) -> None:
        """Called when the response is to end after what waits; the stream goes on."""


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

    def __init__(self, name: str = "", log: EventLog | None = None, *, awaited: bool = False) -> None:
        """Start empty; events are numbered and kept if there is a log to keep them in.

        With ``awaited`` a response that will read it is under way.
        """
        self.name: str = name
        self._log = log
        self._next = 1
        # Plain lists: an idle stream is nearly nothing, and there may be thousands.
        self._pending: list[_Entry] = []
        self._written: list[_Entry] = []
        self._waiting: list[asyncio.Future[None]] | None = None
        self.reader: Reader | None = None
        #: A response that will read it is under way.
        self.has_pending_response: bool = awaited
        #: Nothing more will be pushed.
        self.ended: bool = False
        #: Bytes that wait to be written.
        self.pending_bytes: int = 0

    # --- for whoever sends -------------------------------------------------------------------------------------------

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
        """Add an event; with ``merge`` only if none that says the same still waits; ``last`` ends the stream."""
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
        """Say that nothing more will come."""
        self.ended = True
        if self.reader is not None:
            self.reader.wake()

    async def drain(self, limit: int) -> None:
        """Wait until less than the limit waits to be written, or nobody reads."""
        while self.pending_bytes > limit and (self.reader is not None or self.has_pending_response):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._waiting is None:
                self._waiting = []
            self._waiting.append(waiter)
            await waiter

    def is_congested(self, limit: int) -> bool:
        """Tell whether somebody reads who does not keep up: so much waits already."""
        return self.reader is not None and self.pending_bytes > limit

    # --- for whoever reads -------------------------------------------------------------------------------------------

    def attach(self, reader: Reader) -> None:
        """Let a response read from here on; one that read before is dismissed."""
        before, self.reader = self.reader, reader
        if before is not None:
            before.dismiss()

    @property
    def has_pending(self) -> bool:
        """Whether there is something to write."""
        return bool(self._pending)

    def release_reader(self) -> bool:
        """End the response that reads, after what waits; the stream goes on. Return False if none reads."""
        if self.reader is None:
            return False
        self.reader.leave()
        return True

    def detach(self, reader: Reader) -> None:
        """Let a response go; what it took counts as written."""
        if self.reader is reader:
            self.reader = None
            self.release()

    def release(self) -> None:
        """Learn that no response is under way: who waits for it to read need not."""
        self.has_pending_response = False
        self._relieve()

    def take(self) -> bytes:
        """Give all that waits, encoded, and count it as written."""
        if not self._pending:
            return b""
        pending, self._pending = self._pending, []
        self.pending_bytes = 0
        if self._waiting is not None:
            self._relieve()
        if self._log is None:
            return b"".join([encode_event(entry.data, event=entry.event, retry=entry.retry) for entry in pending])
        self._written.extend(pending)
        return b"".join(
            [encode_event(entry.data, id=f"{self.name}-{entry.number}", retry=entry.retry) for entry in pending]
        )

    def rewind(self, after: int) -> bool:
        """Make all events behind a number wait again; False if one of them is gone, or the number never was."""
        known = next(iter(self._written), None) or next(iter(self._pending), None)
        first = self._next if known is None else known.number
        if not first - 1 <= after < self._next:
            return False
        kept = [*self._written, *self._pending]
        self._written = [entry for entry in kept if entry.number <= after]
        self._pending = [entry for entry in kept if entry.number > after]
        self.pending_bytes = sum(len(entry.data) for entry in self._pending)
        return True

    def _relieve(self) -> None:
        waiting, self._waiting = self._waiting, None
        for waiter in waiting or ():
            if not waiter.done():
                waiter.set_result(None)

    # --- for the log that keeps it -----------------------------------------------------------------------------------

    @property
    def kept(self) -> int:
        """How many events it holds."""
        return len(self._pending) + len(self._written)

    def sizes(self) -> int:
        """How many bytes it holds."""
        return self.pending_bytes + sum(len(entry.data) for entry in self._written)

    def drop_one(self) -> int | None:
        """Forget the oldest event that may be forgotten; give its size, or None if there is none."""
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
    """The streams of one session that can be taken up again."""

    __slots__ = ("_bytes", "_ended", "_last", "_limits", "streams")

    def __init__(self, limits: Limits) -> None:
        """Start without streams."""
        self._limits = limits
        self._last = 0
        self._bytes = 0
        #: When each finished stream was last looked at.
        self._ended: dict[str, float] = {}
        self.streams: dict[str, EventStream] = {}

    def open(self, *, awaited: bool = False) -> EventStream:
        """Begin a stream; with ``awaited`` a response that will read it is under way."""
        self._last += 1
        stream = EventStream(str(self._last), self, awaited=awaited)
        self.streams[stream.name] = stream
        return stream

    def find(self, event_id: str) -> tuple[EventStream, int] | None:
        """Give the stream that an event id names, and the event's number in it."""
        name, _, number = event_id.rpartition("-")
        stream = self.streams.get(name)
        if stream is None or not number.isascii() or not number.isdigit() or len(number) > 15:
            return None
        return stream, int(number)

    def added(self, stream: EventStream, size: int) -> None:
        """Learn of a new event, and make room for it."""
        self._bytes += size
        while stream.kept > self._limits.log_events and (gone := stream.drop_one()) is not None:
            self._bytes -= gone
        if self._bytes > self._limits.log_bytes:
            self._make_room()

    def sweep(self, now: float) -> None:
        """Forget streams that ended a while ago."""
        for name, stream in list(self.streams.items()):
            if not stream.ended or stream.reader is not None:
                continue
            since = self._ended.setdefault(name, now)
            if now - since > self._limits.log_seconds:
                self._forget(name)

    def close(self) -> None:
        """End every stream."""
        for stream in self.streams.values():
            stream.end()

    def _make_room(self) -> None:
        for stream in self._by_worth():
            while self._bytes > self._limits.log_bytes:
                gone = stream.drop_one()
                if gone is None:
                    break
                self._bytes -= gone
            if _is_over(stream) and not stream.kept:
                self._forget(stream.name)
        # Answers that nobody came back for: the oldest go first.
        for stream in [stream for stream in self.streams.values() if _is_over(stream)]:
            if self._bytes <= self._limits.log_bytes:
                break
            self._forget(stream.name)

    def _by_worth(self) -> Iterator[EventStream]:
        """Give finished streams first: their readers have most likely got all they wanted."""
        streams = list(self.streams.values())
        yield from (stream for stream in streams if _is_over(stream))
        yield from (stream for stream in streams if not _is_over(stream))

    def _forget(self, name: str) -> None:
        stream = self.streams.pop(name)
        self._ended.pop(name, None)
        self._bytes -= stream.sizes()


def _is_over(stream: EventStream) -> bool:
    """Tell whether a stream has ended and nobody reads it, or is about to."""
    return stream.ended and stream.reader is None and not stream.has_pending_response
