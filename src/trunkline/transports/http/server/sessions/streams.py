"""The streams of a session: each event is an entry of the session's log, and the id of the entry is that of the event.

``ProducedStream`` is a stream whose events come from this worker: an event is stored first, then written to the
response. ``LogStream`` is a stream that is read from the log, because its client resumed it here or because it is the
GET stream, which any worker may add to. Events that cannot be stored wait; a response whose events wait for too long
ends, and its client resumes it later, so that no event is lost or sent twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from trunkline.errors import StoreUnavailable
from trunkline.protocol.error_codes import INTERNAL_ERROR
from trunkline.protocol.jsonrpc import ErrorResponse, encode
from trunkline.protocol.limits import Limits
from trunkline.store.interface import Subscription, entry_position
from trunkline.transports.http.server.event_stream import EventStream
from trunkline.transports.http.server.sessions.worker import SessionWorker, later
from trunkline.types import ErrorObject, RequestId

__all__ = ["GET_STREAM", "LogStream", "LoggedEvent", "ProducedStream", "SessionLog", "StreamProducer"]

log = logging.getLogger("trunkline.http")

#: The name of the stream of messages that belong to no request.
GET_STREAM = "get"
#: After so many seconds without being stored, an event's response ends.
LATE_SECONDS = 2.0
#: Messages that arrive while the log is read and are kept until then; reading takes milliseconds.
_EARLY = 256
#: The messages on the channel of a log that are no entries begin with this; ids begin with a digit.
_CONTROL = b"!"


class LoggedEvent(Struct, frozen=True, array_like=True, gc=False):
    """An entry of a session's log; one without data and without a delay is no event for the client."""

    #: The name of the stream it belongs to; before the dash, the worker that produces it.
    stream: str
    data: bytes
    #: Whether it ends the stream.
    last: bool = False
    retry: int | None = None
    #: The requests that the stream answers.
    ids: tuple[RequestId, ...] = ()


_decoder = msgspec.msgpack.Decoder(LoggedEvent)
_encode = msgspec.msgpack.Encoder().encode


class StreamProducer(Protocol):
    """The response that a stream was opened for."""

    def cannot_store(self) -> None:
        """Called when the first event of the stream cannot be stored: the response has not begun."""


class _Unstored:
    """An event that waits to be stored: what the log keeps of it, and what the response writes."""

    __slots__ = ("data", "event")

    def __init__(self, event: LoggedEvent, data: bytes) -> None:
        self.event = event
        self.data = data


class ProducedStream(EventStream):
    """A stream whose events this worker produces."""

    __slots__ = ("_closed", "_ids", "_late", "_log", "_producer", "_unstored", "answer", "stored_at", "storing")

    def __init__(
        self,
        name: str,
        log: SessionLog,
        *,
        ids: tuple[RequestId, ...] = (),
        awaited: bool = False,
        producer: StreamProducer | None = None,
    ) -> None:
        """Start empty; ``ids`` are those of the requests it answers."""
        super().__init__(name, awaited=awaited)
        self._log = log
        self._ids = ids
        self._producer = producer
        self._unstored: list[_Unstored] = []
        self._late: asyncio.TimerHandle | None = None
        #: Nothing more is pushed; `ended` follows once all is stored.
        self._closed = False
        #: Done once the first event is stored, or cannot be: until then the response does not begin.
        self.storing: asyncio.Future[None] | None = None
        #: The event that ended the stream.
        self.answer: bytes | None = None
        #: When the last event was stored, by the clock of the event loop; 0 before the first.
        self.stored_at: float = 0.0

    def push(
        self, data: bytes, *, retry: int | None = None, merge: bool = False, last: bool = False, event: str = "message"
    ) -> None:
        """Store an event, then write it."""
        if self._closed or (merge and any(unstored.data == data for unstored in self._unstored)):
            return
        self._closed = last
        if last:
            self.answer = data
        self._store(LoggedEvent(self.name, data, last, retry, self._ids))

    def end(self) -> None:
        """End the stream; that is stored too, for readers elsewhere."""
        if not self._closed:
            self._closed = True
            self._store(LoggedEvent(self.name, b"", last=True, ids=self._ids))

    def drop(self) -> None:
        """End the stream here, without an entry: its session has ended, or this worker stops."""
        self._closed = self.ended = True
        for unstored in tuple(self._unstored):
            self._forget(unstored)
        self._finish_storing()
        self._wake_senders()
        if self.reader is not None:
            self.reader.wake()

    def release(self) -> None:
        """Called when no response is about to read any more: the log has the pending events for the next reader."""
        self.pending_bytes -= sum([len(event.data) for event in self._pending])
        self._pending = []
        super().release()

    @property
    def unstored(self) -> bool:
        """Whether events wait to be stored."""
        return bool(self._unstored)

    def _may_drain(self) -> bool:
        return bool(self._unstored) or super()._may_drain()

    def _store(self, event: LoggedEvent) -> None:
        data = event.data
        if len(data) > self._log.max_bytes:
            event = _too_large(event, self._log.max_bytes)
        if not self._unstored and (id := self._log.append_now(event)) is not None:
            self._written(id, event, data)
            return
        unstored = _Unstored(event, data)
        self._unstored.append(unstored)
        self.pending_bytes += len(data)
        loop = asyncio.get_running_loop()
        if self._late is None:
            self._late = loop.call_later(LATE_SECONDS, self._is_late)
        if self._producer is not None and self.reader is None and not self.stored_at and self.storing is None:
            self.storing = loop.create_future()
        self._log.store(event, lambda id: self._stored(id, unstored), lambda: self._not_stored(unstored))

    def _stored(self, id: str, unstored: _Unstored) -> None:
        if not self._forget(unstored):
            # The stream was dropped meanwhile.
            return
        if self._unstored:
            self._late = asyncio.get_running_loop().call_later(LATE_SECONDS, self._is_late)
        self._written(id, unstored.event, unstored.data)
        self._finish_storing()

    def _written(self, id: str, event: LoggedEvent, data: bytes) -> None:
        """Add an event that is in the log to those that the response writes."""
        self.stored_at = asyncio.get_running_loop().time()
        if event.last:
            self.ended = True
        if self.reader is None and not self.has_pending_response:
            # The log has it for the next reader.
            self._wake_senders()
        elif data or event.retry is not None:
            self._add(id, data, event.retry)
        elif self.reader is not None:
            self.reader.wake()

    def _not_stored(self, unstored: _Unstored) -> None:
        """Called when the log has given up: the stream has a gap."""
        if not self._forget(unstored):
            return
        log.error("an event of a session could not be stored; the response that it was for ends")
        if self.storing is not None and self._producer is not None:
            self._producer.cannot_store()
        elif unstored.event.last:
            # Not produced here any more: a client that resumes it gets an error.
            self._log.streams.pop(self.name, None)
            self.drop()
        else:
            # What follows is stored again: the request may still be answered.
            self._finish_storing()
            self._wake_senders()
            if self.reader is not None:
                self.reader.finish()

    def _forget(self, unstored: _Unstored) -> bool:
        """Remove an event from those that wait; return False if it does not wait any more."""
        if unstored not in self._unstored:
            return False
        self._unstored.remove(unstored)
        self.pending_bytes -= len(unstored.data)
        if self._late is not None:
            self._late.cancel()
            self._late = None
        return True

    def _is_late(self) -> None:
        self._late = None
        if self.storing is not None:
            self._finish_storing()
            if self._producer is not None:
                self._producer.cannot_store()
        elif self.reader is not None:
            self.reader.finish()

    def _finish_storing(self) -> None:
        storing, self.storing = self.storing, None
        if storing is not None and not storing.done():
            storing.set_result(None)


def _too_large(event: LoggedEvent, max_bytes: int) -> LoggedEvent:
    """Return what the log keeps of an event that is larger than the whole log may be.

    A response that is open gets the event itself; a client that lost it gets an error, and waits for nothing.
    """
    if not (event.last and event.ids):
        return LoggedEvent(event.stream, b"", event.last, event.retry, event.ids)
    message = (
        f"The response has {len(event.data)} bytes, and at most {max_bytes} are kept for a client that lost its "
        "connection; call again if that is safe"
    )
    error = ErrorObject(code=INTERNAL_ERROR, message=message)
    answers: Any = tuple(ErrorResponse(id, error) for id in event.ids)
    return LoggedEvent(event.stream, encode(answers if len(answers) > 1 else answers[0]), True, event.retry, event.ids)


class LogStream(EventStream):
    """A stream that is read from the log, from an entry on."""

    __slots__ = ("_behind", "_early", "_log", "_lost", "_paused", "_position", "_subscription", "_token", "_worker")

    def __init__(self, name: str, log: SessionLog, *, after: str) -> None:
        """Prepare to read the events of one stream of a session after an entry; "" reads all that are kept."""
        super().__init__(name)
        self._log = log
        self._worker = log.worker
        self._position = after
        #: Messages that arrive while the log is being read; None while it is not.
        self._early: list[bytes] | None = []
        self._behind = False
        #: Whether the client does not keep up: the log has what follows, and it is read from there later.
        self._paused = False
        #: Whether entries were dropped before they could be read.
        self._lost = False
        self._subscription: Subscription | None = None
        #: Names this reader: when another one begins to read the same stream, this one ends.
        self._token = self._worker.next_name()

    async def start(self) -> None:
        """Read what is in the log already, and what is added from now on; readers of it elsewhere are dismissed.

        Raises:
            StoreUnavailable: the log cannot be read.
        """
        channel = self._log.name
        self._subscription = await self._worker.store.subscribe(channel, self._received, missed=self._missed)
        await self._worker.store.publish(channel, _CONTROL + f"{self.name} {self._token}".encode())
        await self._read()

    @property
    def paused(self) -> bool:
        """Whether the log has more than the client has read."""
        return self._paused

    async def aclose(self) -> None:
        """Stop reading."""
        if self._subscription is not None:
            await self._subscription.close()
            self._subscription = None

    def take(self) -> bytes:
        """Return the events that may be written, encoded; go on reading the log if they were too many."""
        taken = super().take()
        if self._paused and not self.ended:
            self._paused = False
            if self._early is None:
                self._early = []
                self._worker.spawn(self._read_further())
        return taken

    def _received(self, data: bytes) -> None:
        if data.startswith(_CONTROL):
            name, _, token = data[1:].decode().partition(" ")
            if name == self.name and token != self._token:
                self.end()
        elif self._early is not None:
            self._early.append(data)
            if len(self._early) > _EARLY:
                # They are in the log, and read from there.
                self._early.clear()
                self._behind = True
        else:
            id, _, body = data.partition(b" ")
            self._entry(id.decode(), body)

    def _missed(self) -> None:
        if self._early is None:
            self._early = []
            self._worker.spawn(self._read_again())
        else:
            self._behind = True

    async def _read_again(self) -> None:
        """Read what was missed while the connection was lost."""
        await self._read_further()

    async def _read_further(self) -> None:
        try:
            await self._read()
        except StoreUnavailable:
            # It is lost again; the client resumes once it can.
            self.end()

    async def _read(self) -> None:
        """Read the log to its end, then what arrived meanwhile; or until the client does not keep up."""
        while not (self.ended or self._paused):
            self._behind = False
            entries = await self._worker.store.read(self._log.name, after=self._position)
            if entries is None:
                # Entries were dropped before they could be read; the client's own position is not kept either.
                self._lost = True
                self.end()
            for entry in entries or ():
                self._entry(entry.id, entry.data)
            if not entries and not self._behind:
                break
        early, self._early = self._early or (), None
        for data in early:
            self._received(data)

    def _entry(self, id: str, body: bytes) -> None:
        if self.ended or self._paused or not later(id, self._position):
            return
        self._position = id
        event = _decoder.decode(body)
        if event.stream != self.name:
            return
        if event.last:
            self.ended = True
        if event.data or event.retry is not None:
            self._add(self._event_id(id), event.data, event.retry)
        elif self.reader is not None:
            self.reader.wake()
        self._pause_if_full()

    def _event_id(self, entry_id: str) -> str:
        """Return the id of the event of an entry."""
        return entry_id

    def _pause_if_full(self) -> None:
        limits = self._log.limits
        self._paused = self.pending_bytes > limits.write_bytes or len(self._pending) >= limits.log_events


class SessionLog:
    """The log of one session, and the streams of the session at this worker."""

    __slots__ = ("_bounds", "limits", "name", "streams", "worker")

    def __init__(self, worker: SessionWorker, key: str, limits: Limits) -> None:
        """Start without streams."""
        self.worker: SessionWorker = worker
        #: The name of the log, and of the channel on which its entries are announced.
        self.name: str = f"events:{key}"
        self.limits: Limits = limits
        self.streams: dict[str, EventStream] = {}
        self._bounds: dict[str, Any] = {
            "ttl": limits.log_seconds,
            "max_entries": limits.log_events,
            "max_bytes": limits.log_bytes,
            "announce": self.name,
        }

    @property
    def max_bytes(self) -> int:
        """The most bytes of events that are kept."""
        return self.limits.log_bytes

    def open(
        self,
        name: str,
        *,
        ids: tuple[RequestId, ...] = (),
        awaited: bool = False,
        producer: StreamProducer | None = None,
    ) -> ProducedStream:
        """Create a stream of this worker."""
        stream = ProducedStream(name, self, ids=ids, awaited=awaited, producer=producer)
        self.streams[name] = stream
        return stream

    def append_now(self, event: LoggedEvent) -> str | None:
        """Append an event at once and return its id; None where the store must be waited for."""
        try:
            appended = self.worker.store.append_now(self.name, _encode(event), **self._bounds)
        except StoreUnavailable:
            return None
        return None if appended is None else appended.id

    def store(self, event: LoggedEvent, stored: Callable[[str], None], failed: Callable[[], None]) -> None:
        """Append an event, with retries; then call ``stored`` with its id, or ``failed``."""
        self.worker.spawn(self._store(event, stored, failed))

    async def _store(self, event: LoggedEvent, stored: Callable[[str], None], failed: Callable[[], None]) -> None:
        try:
            id = await self.append(event, patience=self.limits.log_seconds)
        except StoreUnavailable:
            failed()
            raise
        stored(id)

    async def append(self, event: LoggedEvent, *, patience: float | None = None) -> str:
        """Append an event and return its id."""
        data = _encode(event)
        return (await self.worker.store.append(self.name, data, patience=patience, **self._bounds)).id

    async def find(self, event_id: str) -> LoggedEvent | None:
        """Return the event with an id; None if it is not kept."""
        if entry_position(event_id) is None:
            return None
        entries = await self.worker.store.read(self.name, after=event_id, limit=1, inclusive=True)
        return _decoder.decode(entries[0].data) if entries else None

    async def is_empty(self) -> bool:
        """Return whether no event is kept: all have expired, with everything that waited for an answer."""
        return not await self.worker.store.read(self.name, limit=1)

    def sweep(self, now: float) -> None:
        """Remove streams that have ended; renew the logs of quiet ones, so that they do not expire."""
        for name, stream in list(self.streams.items()):
            if not isinstance(stream, ProducedStream):
                continue
            if stream.ended and stream.reader is None and not stream.unstored:
                del self.streams[name]
            elif not stream.ended and stream.stored_at and now - stream.stored_at > self.limits.log_seconds / 3:
                stream.stored_at = now
                stream.push(b"", merge=True)

    def close(self) -> None:
        """End every stream here; nothing is stored any more."""
        for stream in list(self.streams.values()):
            if isinstance(stream, ProducedStream):
                stream.drop()
            else:
                stream.end()
