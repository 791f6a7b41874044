"""The streams of a shared session: each event is an entry of the session's log, whose id is the id of the event.

``ProducedStream`` is a stream whose events come from a request that this worker serves: an event is stored first, then
written to the response. ``LogStream`` is a stream that is read from the log, because its client resumed it here or
because it is the GET stream, which any worker may add to. Events that cannot be stored wait; a response whose events
wait for too long ends, and its client resumes it later, so that no event is lost or sent twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from msgspec import Struct

from trunkline.errors import StoreUnavailable
from trunkline.protocol.limits import Limits
from trunkline.protocol.sse import encode_event
from trunkline.store.interface import Subscription, entry_position
from trunkline.transports.http.server.event_log import EventStream
from trunkline.transports.http.server.shared.worker import SharedWorker
from trunkline.types import RequestId

__all__ = [
    "GET_STREAM",
    "LogStream",
    "LoggedEvent",
    "ProducedStream",
    "SharedEventLog",
    "StreamProducer",
    "Told",
    "told_all",
]

log = logging.getLogger("trunkline.http")

#: The name of the stream of messages that belong to no request.
GET_STREAM = "get"
#: After so many seconds without being stored, an event's response ends.
LATE_SECONDS = 2.0
#: How far a client was notified of changes: an announcement, as the two numbers of its id, and which of its notices.
Told = tuple[int, ...]
#: The number after that of every notice of an announcement.
_WHOLE = 1 << 62
#: Messages that arrive while the log is read and are kept until then; reading takes milliseconds.
_EARLY = 256
#: The messages on the channel of a log that are no entries begin with this; ids begin with a digit.
_CONTROL = b"!"


class LoggedEvent(Struct, frozen=True, array_like=True):
    """An entry of a session's log."""

    #: The name of the stream it belongs to; before the dash, the worker that produces it.
    stream: str
    data: bytes
    #: Whether it ends the stream; without data it is no event for the client.
    last: bool = False
    retry: int | None = None
    #: The requests that the stream answers.
    ids: tuple[RequestId, ...] = ()
    #: Of the GET stream: the announcement that this event delivers to the client; "" if that is not known.
    since: str = ""
    #: Of a notice of that announcement: which one it is. Two workers may store the same one, and it is read once.
    part: int = 0

    @property
    def told(self) -> Told:
        """How far the client has been told of changes with this event; empty if that is not known."""
        return (*told_all(self.since)[:2], self.part) if self.part else told_all(self.since)


def told_all(since: str) -> Told:
    """Return the position of a client that has been told of an announcement, and of all before it."""
    position = entry_position(since)
    return () if position is None else (*position, _WHOLE)


_decoder = msgspec.msgpack.Decoder(LoggedEvent)


class StreamProducer(Protocol):
    """The response that a stream was opened for."""

    def cannot_store(self) -> None:
        """Called when the first event of the stream cannot be stored: the response has not begun."""


class _Ready:
    """An event that may be written."""

    __slots__ = ("data", "id", "retry")

    def __init__(self, id: str, event: LoggedEvent) -> None:
        self.id = id
        self.data = event.data
        self.retry = event.retry


class _SharedStream(EventStream):
    """What both kinds of streams have in common: the events that may be written now."""

    __slots__ = ("_ready", "last_id")

    def __init__(self, name: str, *, awaited: bool = False) -> None:
        super().__init__(name, awaited=awaited)
        self._ready: list[_Ready] = []
        #: The id of the last event that was taken to be written.
        self.last_id: str = ""

    @property
    def has_pending(self) -> bool:
        """Whether events may be written."""
        return bool(self._ready)

    def take(self) -> bytes:
        """Return the events that may be written, encoded."""
        if not self._ready:
            return b""
        ready, self._ready = self._ready, []
        self.pending_bytes -= sum(len(each.data) for each in ready)
        self.last_id = ready[-1].id
        self._wake_senders()
        return b"".join([encode_event(each.data, id=each.id, retry=each.retry) for each in ready])

    def _add(self, id: str, event: LoggedEvent) -> None:
        if event.data or not event.last:
            self._ready.append(_Ready(id, event))
        if event.last:
            self.ended = True
        if self.reader is not None:
            self.reader.wake()


class ProducedStream(_SharedStream):
    """A stream whose events this worker produces."""

    __slots__ = (
        "_closed",
        "_ids",
        "_late",
        "_lost",
        "_part",
        "_producer",
        "_shared_log",
        "_unstored",
        "answer",
        "has_gap",
        "since",
        "stored_at",
        "storing",
    )

    def __init__(
        self,
        name: str,
        shared_log: SharedEventLog,
        *,
        ids: tuple[RequestId, ...] = (),
        awaited: bool = False,
        producer: StreamProducer | None = None,
        lost: Callable[[], None] | None = None,
    ) -> None:
        """Start empty; ``ids`` are those of the requests it answers.

        ``lost`` is called when an event was not stored, and the stream goes on; it ends the response that reads it.
        """
        super().__init__(name, awaited=awaited)
        self._shared_log = shared_log
        self._ids = ids
        self._producer = producer
        self._lost = lost
        self._unstored: list[LoggedEvent] = []
        #: Whether an event was not stored; of the GET stream, since its turn began.
        self.has_gap: bool = False
        self._late: asyncio.TimerHandle | None = None
        #: Nothing more is pushed; `ended` follows once all is stored.
        self._closed = False
        #: Of the GET stream: the last announcement that was pushed; "" if the client reads it elsewhere.
        self.since: str = ""
        self._part = 0
        #: Done once the first event is stored, or cannot be: until then the response does not begin.
        self.storing: asyncio.Future[None] | None = asyncio.get_running_loop().create_future()
        #: The event that ended the stream.
        self.answer: bytes | None = None
        #: When the last event was stored, by the clock of the event loop.
        self.stored_at: float = 0.0

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
        """Store an event, then write it."""
        if self._closed or (merge and self._has_unstored(data)):
            return
        self._closed = last
        if last:
            self.answer = data
        self._store(LoggedEvent(self.name, data, last, retry, self._ids, self.since, self._part))
        if self._part:
            self._part += 1

    def _has_unstored(self, data: bytes) -> bool:
        """Return whether an equal event waits to be stored, and will be read.

        The notice of an announcement is merged with no other: its client may have that one already, from a worker that
        died, and is not sent it again.
        """
        return not self._part and any(each.data == data and not each.part for each in self._unstored)

    def announce(self, id: str, notify: Callable[[], None]) -> None:
        """Call a function that pushes the notices of an announcement."""
        self.since, self._part = id, 1
        try:
            notify()
        finally:
            self._part = 0

    def end(self) -> None:
        """End the stream; that is stored too, for readers elsewhere."""
        if not self._closed:
            self._closed = True
            self._store(LoggedEvent(self.name, b"", last=True, ids=self._ids))

    def drop(self) -> None:
        """End the stream here, without an entry: its session has ended, or this worker stops."""
        self._closed = self.ended = True
        for event in tuple(self._unstored):
            self._forget(event)
        self._finish_storing()
        self._wake_senders()
        if self.reader is not None:
            self.reader.wake()

    @property
    def unstored(self) -> bool:
        """Whether events wait to be stored."""
        return bool(self._unstored)

    async def drain(self, limit: int) -> None:
        """Wait until at most ``limit`` bytes wait to be stored, or to be written if a response reads."""
        while self.pending_bytes > limit and (self._unstored or self.reader is not None or self.has_pending_response):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._waiting is None:
                self._waiting = []
            self._waiting.append(waiter)
            await waiter

    def _store(self, event: LoggedEvent) -> None:
        self._unstored.append(event)
        self.pending_bytes += len(event.data)
        if self._late is None:
            self._late = asyncio.get_running_loop().call_later(LATE_SECONDS, self._is_late)
        self._shared_log.store(event, self._stored, self._not_stored)

    def _stored(self, id: str, event: LoggedEvent) -> None:
        if not self._forget(event):
            # The stream was dropped meanwhile.
            return
        self.stored_at = asyncio.get_running_loop().time()
        if self._unstored:
            self._late = asyncio.get_running_loop().call_later(LATE_SECONDS, self._is_late)
        if self.reader is None and not self.has_pending_response:
            # The log has it for the next reader.
            self.ended = self.ended or event.last
            self._wake_senders()
        else:
            self.pending_bytes += len(event.data)
            self._add(id, event)
        self._finish_storing()

    def _not_stored(self, event: LoggedEvent) -> None:
        """Called when the log has given up: the stream has a gap."""
        if not self._forget(event):
            return
        log.error("an event of a session could not be stored; the response that it was for ends")
        if self.storing is not None and self._producer is not None:
            self._producer.cannot_store()
        elif event.last:
            # Not produced here any more: a client that resumes it gets an error.
            self._shared_log.streams.pop(self.name, None)
            self.drop()
        else:
            # What follows is stored again: the request may still be answered.
            self.has_gap = True
            self._finish_storing()
            self._wake_senders()
            if self._lost is not None:
                self._lost()
            elif self.reader is not None:
                self.reader.finish()

    def _forget(self, event: LoggedEvent) -> bool:
        """Remove an event from those that wait; return False if it does not wait any more."""
        index = next((index for index, each in enumerate(self._unstored) if each is event), None)
        if index is None:
            return False
        del self._unstored[index]
        self.pending_bytes -= len(event.data)
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


class LogStream(_SharedStream):
    """A stream that is read from the log, from an entry on."""

    __slots__ = (
        "_behind",
        "_early",
        "_key",
        "_limits",
        "_may_go_on",
        "_paused",
        "_position",
        "_subscription",
        "_token",
        "_worker",
        "told",
    )

    def __init__(
        self,
        name: str,
        worker: SharedWorker,
        key: str,
        limits: Limits,
        *,
        after: str,
        told: Told = (),
        may_go_on: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Prepare to read the events of one stream of a session after an entry; "" reads all that are kept.

        ``told`` is how far the client has been told of changes before.
        ``may_go_on`` is called after a lost connection: whether no other worker has taken the stream over meanwhile.
        """
        super().__init__(name)
        self._limits = limits
        self._may_go_on = may_go_on
        self._worker = worker
        self._key = key
        self._position = after
        self.last_id = after
        #: How far the client is notified of changes by the events read until now.
        self.told: Told = told
        #: Messages that arrive while the log is being read; None while it is not.
        self._early: list[bytes] | None = []
        self._behind = False
        #: Whether the client does not keep up: the log has what follows, and it is read from there later.
        self._paused = False
        self._subscription: Subscription | None = None
        self._token = worker.next_name()

    async def start(self) -> None:
        """Read what is in the log already, and what is added from now on; readers of it elsewhere are dismissed.

        Raises:
            StoreUnavailable: the log cannot be read.
        """
        channel = _channel(self._key)
        self._subscription = await self._worker.store.subscribe(channel, self._received, missed=self._missed)
        await self._worker.store.publish(channel, _CONTROL + f"{self.name} {self._token}".encode())
        await self._read()

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

    def end(self) -> None:
        """End the stream for its reader; what is in the log stays."""
        self.ended = True
        if self.reader is not None:
            self.reader.wake()

    def _received(self, data: bytes) -> None:
        if data.startswith(_CONTROL):
            if data[1:].decode() != f"{self.name} {self._token}" and data[1:].decode().startswith(f"{self.name} "):
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
        try:
            if self._may_go_on is not None and not await self._may_go_on():
                self.end()
        except StoreUnavailable:
            self.end()
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
            entries = await self._worker.store.read(_log(self._key), after=self._position)
            if entries is None:
                # Entries were dropped before they could be read; the client's own position is not kept either.
                self.end()
            for entry in entries or ():
                self._entry(entry.id, entry.data)
            if not entries and not self._behind:
                break
        early, self._early = self._early or (), None
        for data in early:
            self._received(data)

    def _entry(self, id: str, body: bytes) -> None:
        if self.ended or self._paused or (entry_position(id) or (0, 0)) <= (entry_position(self._position) or (0, 0)):
            return
        self._position = id
        event = _decoder.decode(body)
        if event.stream == self.name:
            if event.part and event.told <= self.told:
                # Another worker has notified the client of it, before it died or knew that its turn was over.
                return
            self.told = max(self.told, event.told)
            self.pending_bytes += len(event.data)
            self._add(id, event)
            self._paused = self.pending_bytes > self._limits.write_bytes or len(self._ready) >= self._limits.log_events


class SharedEventLog:
    """The streams of one shared session at this worker."""

    __slots__ = ("_key", "_limits", "_worker", "streams")

    def __init__(self, worker: SharedWorker, key: str, limits: Limits) -> None:
        """Start without streams."""
        self._worker = worker
        self._key = key
        self._limits = limits
        self.streams: dict[str, _SharedStream] = {}

    @property
    def ttl(self) -> float:
        """For how long the log is kept after its last event: as long as a person may take to answer, and a minute."""
        return max(self._limits.log_seconds, self._limits.ask_seconds + 60)

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

    def store(
        self,
        event: LoggedEvent,
        stored: Callable[[str, LoggedEvent], None],
        failed: Callable[[LoggedEvent], None],
    ) -> None:
        """Append an event, with retries; then call ``stored`` or ``failed``."""
        self._worker.spawn(self._store(event, stored, failed))

    async def _store(
        self,
        event: LoggedEvent,
        stored: Callable[[str, LoggedEvent], None],
        failed: Callable[[LoggedEvent], None],
    ) -> None:
        try:
            id = await self.append(event, patience=self.ttl)
        except StoreUnavailable:
            failed(event)
            raise
        stored(id, event)

    async def append(self, event: LoggedEvent, *, patience: float | None = None) -> str:
        """Append an event and return its id."""
        added = await self._worker.store.append(
            _log(self._key),
            msgspec.msgpack.encode(event),
            ttl=self.ttl,
            max_entries=self._limits.log_events,
            max_bytes=self._limits.log_bytes,
            announce=_channel(self._key),
            patience=patience,
        )
        return added.id

    async def find(self, event_id: str) -> LoggedEvent | None:
        """Return the event with an id; None if it is not kept."""
        if entry_position(event_id) is None:
            return None
        found = await self._worker.store.read(_log(self._key), after=event_id, limit=1, inclusive=True)
        return _decoder.decode(found[0].data) if found else None

    async def told_at(self, event_id: str) -> Told:
        """Return how far the client has been told of changes with an event of the GET stream and those before it."""
        event = await self.find(event_id)
        if event is None or event.part:
            # A notice that was read is of a later change than all before it.
            return () if event is None else event.told
        # Another event may be of a worker whose turn was over, and that knew less.
        told = event.told
        # The log is bounded: this reads at most what is kept for one session.
        for entry in await self._worker.store.read(_log(self._key), limit=self._limits.log_events) or ():
            if entry.id == event_id:
                break
            event = _decoder.decode(entry.data)
            told = max(told, event.told) if event.stream == GET_STREAM else told
        return told

    def read(
        self, name: str, *, after: str, told: Told = (), may_go_on: Callable[[], Awaitable[bool]] | None = None
    ) -> LogStream:
        """Return a stream that is read from the log; it must be started."""
        return LogStream(name, self._worker, self._key, self._limits, after=after, told=told, may_go_on=may_go_on)

    def sweep(self, now: float) -> None:
        """Remove streams that have ended; renew the logs of quiet ones, so that they do not expire."""
        for name, stream in list(self.streams.items()):
            if not isinstance(stream, ProducedStream) or stream.name == GET_STREAM:
                continue
            if stream.ended and stream.reader is None and not stream.unstored:
                del self.streams[name]
            elif not stream.ended and stream.stored_at and now - stream.stored_at > self.ttl / 3:
                stream.stored_at = now
                stream.push(b"", merge=True)

    def close(self) -> None:
        """End every stream here; nothing is stored any more."""
        for stream in list(self.streams.values()):
            if isinstance(stream, ProducedStream):
                stream.drop()
            else:
                stream.end()


def _log(key: str) -> str:
    return f"events:{key}"


def _channel(key: str) -> str:
    return f"events:{key}"
