"""A worker that serves sessions: its channels, the terminated sessions, and the announcements of changes.

A worker has a channel of its own, for messages to its requests, and listens on one that all workers share. Messages
that no worker may miss are entries of a log, which is read again from the last one seen after a lost connection. Where
the store is the memory of this process there is one worker, and its sessions end with it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError, StoreUnavailable
from trunkline.store.interface import Entry, Store, Subscription, entry_position
from trunkline.transports.http.server.sessions.facts import LIFETIME, SessionIds

__all__ = ["ANSWER_SECONDS", "GRACE_SECONDS", "MAX_RETOLD", "SessionWorker", "WorkerListener", "WorkerMessage"]
__all__ += ["later", "position_before", "worker_of"]

log = logging.getLogger("trunkline.http")

_T = TypeVar("_T")

#: The most terminated sessions that a worker remembers until they expire, about 100 bytes each.
MAX_TERMINATED = 1_000_000
#: Announcements kept for sessions that do not listen now; one that missed more is notified of a change of everything.
MAX_ANNOUNCEMENTS = 1000
#: The most announcements that follow the notice that anything may have changed; more would fill the log of a session.
MAX_RETOLD = 100
#: The greatest second number of an entry id, which has 64 bits.
_LAST = (1 << 64) - 1
#: Bounds of these logs in bytes: 64 for each terminated session, 1 MiB of announcements.
_TERMINATED_BYTES, _ANNOUNCEMENT_BYTES = 64 * MAX_TERMINATED, 1024 * 1024
#: What other workers have for one that is not listening: for so many seconds, longer than connections take to be made
#: again, and at most so many messages and bytes, a few hundred answers of the usual size.
_INBOX_SECONDS, _INBOX_MESSAGES, _INBOX_BYTES = 60.0, 1000, 16 * 1024 * 1024
#: For so many seconds an answer waits for a store that cannot be reached: longer than most outages, and less than HTTP
#: clients and proxies wait for a response.
ANSWER_SECONDS = 20.0
#: A longer message is not published, since a few hundred make Redis break the connection of who listens: it is read
#: from the inbox, or not sent at all if it may be lost.
_SMALL_BYTES = 16 * 1024
#: A worker is registered for so many seconds, longer than messages wait for it, and renews it in time.
_REGISTERED_SECONDS, _RENEWAL_SECONDS = 120.0, 30.0
#: For so long after a lost connection other workers may not have connected again, and silence proves nothing.
GRACE_SECONDS = 3.0
#: Seconds between two attempts to join; and for how long a request waits for the end of the first one.
_JOIN_PAUSE, _FIRST_ATTEMPT_SECONDS = 0.5, 2.0
_WORKER_ID = re.compile("[0-9a-f]{12}")


class WorkerMessage(Struct, frozen=True, array_like=True):
    """A message between workers."""

    kind: str
    #: The session it is about, by its name in the store.
    key: str = ""
    body: bytes = b""


class _Announcement(Struct, frozen=True, array_like=True):
    worker: str
    body: bytes


class _Terminated(Struct, frozen=True, array_like=True):
    key: str
    expires: float


class WorkerListener(Protocol):
    """What reacts to the other workers."""

    def message_received(self, message: WorkerMessage) -> None:
        """Called with a message to this worker, or to all."""

    def session_terminated(self, key: str) -> None:
        """Called when a session was terminated, by any worker."""

    def generation_changed(self) -> None:
        """Called when all sessions until now have ended."""

    def connection_restored(self) -> None:
        """Called when messages may have been missed."""

    def announced(self, id: str, body: bytes | None, *, own: bool) -> None:
        """Called with each announcement, in order; with None if some before this one are missing."""


class SessionWorker:
    """A worker that serves sessions, alone or among others."""

    def __init__(
        self,
        store: Store,
        ids: SessionIds,
        *,
        now: Callable[[], float],
        random: Callable[[int], bytes],
        connect: Callable[[], Awaitable[None]],
        close: Callable[[], Awaitable[None]],
        is_alone: bool = False,
    ) -> None:
        """Prepare to join; ``now`` returns wall time.

        ``connect`` and ``close`` are those of the owner of the store, which also logs that it cannot be reached. With
        ``is_alone`` no other process uses the store: nobody else can serve the sessions of this worker.
        """
        self.store: Store = store
        #: Whether no other worker can serve the sessions of this one.
        self.is_alone: bool = is_alone
        self._connect = connect
        self._close = close
        self.ids: SessionIds = ids
        self.now: Callable[[], float] = now
        #: The name of this worker: what follows it in the names of streams and requests is a number.
        self.id: str = random(6).hex()
        self._numbers = itertools.count(1)
        self._listener: WorkerListener | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reset()
        self._terminated: dict[str, float] = {}
        self._terminated_position = ""
        #: The last announcement that this worker has seen.
        self.position: str = ""
        self._inbox_position = ""
        self._behind = False
        self._restored_at = 0.0
        #: The turns at GET streams that responses of this worker have, or are about to take; see `GetStream`.
        self.turns: set[str] = set()

    def _reset(self) -> None:
        self._joined = False
        self._joining: asyncio.Task[None] | None = None
        #: Set when the first attempt to join has ended.
        self._attempted: asyncio.Event = asyncio.Event()
        self._subscriptions: dict[str, Subscription] = {}
        #: Announcements that arrive while the log of them is being read; None while it is not.
        self._early: list[bytes] | None = []

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self, listener: WorkerListener) -> None:
        """Join the other workers, with retries; needs a running event loop.

        An application without a lifespan may be called in one event loop after another: it joins in each.
        """
        loop = asyncio.get_running_loop()
        if self._loop is loop and self._joining is not None:
            return
        self._reset()
        if self._listener is None:
            self.store.on_new_generation(self._generation_changed)
        self._loop, self._listener = loop, listener
        self._joining = loop.create_task(self._join(), name="trunkline-join")

    def _generation_changed(self, _: str) -> None:
        self.spawn(self._register())
        if self._listener is not None:
            self._listener.generation_changed()

    async def started(self) -> None:
        """Wait until the first attempt to join has ended, for a bounded time."""
        if not self._attempted.is_set() and self._joining is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_ATTEMPT_SECONDS):
                    await self._attempted.wait()

    def check(self) -> None:
        """Check that this worker has joined.

        Raises:
            StoreUnavailable: it has not yet.
        """
        if not self._joined:
            raise StoreUnavailable("the store cannot be reached; the server keeps trying")

    async def aclose(self) -> None:
        """Leave; appends that are under way get a moment."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=1.0)
        left = [*self._tasks, *([self._joining] if self._joining is not None else [])]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1.0)
        for subscription in self._subscriptions.values():
            await subscription.close()
        self._reset()
        await self._close()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a task; a store that is gone ends it silently."""
        task = asyncio.get_running_loop().create_task(_quiet(work), name="trunkline")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _join(self) -> None:
        warned = False
        while True:
            try:
                await self._connect()
                await self._subscribe()
                await self._register()
                self._behind = True
                while self._behind:
                    self._behind = False
                    await self._catch_up()
            except Exception as error:
                # Whatever it is: a worker that stops trying would refuse all sessions for ever.
                self._attempted.set()
                if not warned and not isinstance(error, StoreUnavailable):
                    expected = isinstance(error, ConfigError)
                    log.error("sessions are not served: %s", error, exc_info=not expected)
                    warned = True
                await asyncio.sleep(_JOIN_PAUSE)
                continue
            self._joined = True
            self._attempted.set()
            if self._listener is not None and not self.is_alone:
                # Listen streams are served before this. Announcements since then cannot be told from older ones, so
                # anything may have changed.
                self._listener.announced(self.position, None, own=False)
            self._deliver_early()
            if not self.is_alone:
                await self._stay_registered()
            return

    async def _register(self) -> None:
        await self.store.put(f"worker:{self.id}", b"", ttl=_REGISTERED_SECONDS)

    async def _stay_registered(self) -> None:
        pause = _RENEWAL_SECONDS
        while True:
            await asyncio.sleep(pause)
            try:
                await self._register()
                pause = _RENEWAL_SECONDS
            except StoreUnavailable:
                pause = _JOIN_PAUSE

    async def _subscribe(self) -> None:
        """Subscribe to the channels that an earlier attempt did not reach: twice would deliver each message twice."""
        channels: list[tuple[str, Callable[[bytes], None], Callable[[], None] | None]] = [
            (f"worker:{self.id}", self._message_received, None),
            (f"inbox:{self.id}", self._inbox_received, None),
            ("workers", self._message_received, None),
            ("terminated", self._terminated_received, None),
            ("announcements", self._announcement_received, self._missed),
        ]

        async def subscribe(channel: str, receive: Callable[[bytes], None], missed: Callable[[], None] | None) -> None:
            self._subscriptions[channel] = await self.store.subscribe(channel, receive, missed=missed)

        missing = [channel for channel in channels if channel[0] not in self._subscriptions]
        outcomes = await asyncio.gather(*(subscribe(*channel) for channel in missing), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def _missed(self) -> None:
        self._restored_at = asyncio.get_running_loop().time()
        if self._early is None:
            self._early = []
            self.spawn(self._catch_up_again())
        self._behind = True
        if self._listener is not None:
            self._listener.connection_restored()

    async def _catch_up_again(self) -> None:
        """Read what was missed, and go on trying: a session that was terminated meanwhile must not be served."""
        while self._behind:
            self._behind = False
            try:
                await self._catch_up()
            except StoreUnavailable:
                self._behind = True
                await asyncio.sleep(_JOIN_PAUSE)
        self._deliver_early()

    async def _catch_up(self) -> None:
        await self._load_terminated()
        await self._catch_up_announcements()
        if self._joined:
            await self._read_inbox()

    # --- messages ----------------------------------------------------------------------------------------------------

    def next_name(self) -> str:
        """Return a name that no other stream or request of any worker has."""
        return f"{self.id}-{next(self._numbers)}"

    async def send(self, worker: str, message: WorkerMessage) -> bool | None:
        """Send a message to a worker; False if that worker is gone, None if this is not certain."""
        return self._is_there(await self.store.publish(f"worker:{worker}", msgspec.msgpack.encode(message)))

    async def send_small(self, worker: str | None, message: WorkerMessage) -> None:
        """Send a message that may be lost to a worker, or to all of them, unless it is large."""
        if len(message.body) <= _SMALL_BYTES:
            channel = "workers" if worker is None else f"worker:{worker}"
            await self.store.publish(channel, msgspec.msgpack.encode(message))

    async def send_answer(self, worker: str, message: WorkerMessage) -> bool | None:
        """Send a message to a worker that must not miss it; False if that worker is gone, None if this is not certain.

        A worker whose connection breaks in this moment reads it once it is connected again. For one that neither is
        registered nor listens nothing is stored: a client may name any. While the store cannot be reached it waits: no
        SDK sends an answer again that was refused, and the call that asked would wait in vain.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ANSWER_SECONDS
        while True:
            try:
                return await self._send_answer(worker, message)
            except StoreUnavailable:
                if loop.time() >= deadline:
                    raise
            # What was done in spite of a failure is done twice then, and the second answer is one to nothing.
            await asyncio.sleep(_JOIN_PAUSE)

    async def _send_answer(self, worker: str, message: WorkerMessage) -> bool | None:
        check = WorkerMessage("check")
        if await self.store.get(f"worker:{worker}") is None and not await self.send(worker, check):
            return False
        inbox = f"inbox:{worker}"
        limits: dict[str, Any] = {"max_entries": _INBOX_MESSAGES, "max_bytes": _INBOX_BYTES, "ttl": _INBOX_SECONDS}
        announce = inbox if len(message.body) <= _SMALL_BYTES else None
        sent = await self.store.append(inbox, msgspec.msgpack.encode(message), announce=announce, **limits)
        return self._is_there(sent.heard) if announce else await self.send(worker, WorkerMessage("inbox"))

    def _is_there(self, heard: int) -> bool | None:
        if heard:
            return True
        return None if asyncio.get_running_loop().time() - self._restored_at < GRACE_SECONDS else False

    async def broadcast(self, message: WorkerMessage) -> None:
        """Send a message to all workers, this one included; without its body if that is large."""
        if len(message.body) > _SMALL_BYTES:
            message = WorkerMessage(message.kind, message.key)
        await self.store.publish("workers", msgspec.msgpack.encode(message))

    def _message_received(self, data: bytes) -> None:
        message = _decode(data, WorkerMessage)
        if message is not None and message.kind == "inbox":
            self.spawn(self._read_inbox())
        elif message is not None and self._listener is not None:
            self._listener.message_received(message)

    def _inbox_received(self, data: bytes) -> None:
        # The position stays, so that it is read again with the next large one; a second copy of an answer is ignored.
        self._message_received(data.partition(b" ")[2])

    async def _read_inbox(self) -> None:
        async for entry in self._entries_after(f"inbox:{self.id}", self._inbox_position):
            self._inbox_position = entry.id
            self._message_received(entry.data)

    # --- terminated sessions -----------------------------------------------------------------------------------------

    def is_terminated(self, key: str) -> bool:
        """Return whether a session was terminated."""
        return key in self._terminated

    async def terminate(self, key: str, expires: float) -> None:
        """Terminate a session on every worker."""
        if len(self._terminated) >= MAX_TERMINATED:
            now = self.now()
            self._terminated = {each: until for each, until in self._terminated.items() if until > now}
            if len(self._terminated) >= MAX_TERMINATED:
                raise StoreUnavailable("too many sessions were terminated; this one ends when it expires")
        data = msgspec.msgpack.encode(_Terminated(key, expires))
        limits = {"max_entries": MAX_TERMINATED, "max_bytes": _TERMINATED_BYTES}
        await self.store.append("terminated", data, ttl=LIFETIME, announce="terminated", **limits)
        self._terminate(key, expires)

    def _terminate(self, key: str, expires: float) -> None:
        if key not in self._terminated:
            self._terminated[key] = expires
            if self._listener is not None:
                self._listener.session_terminated(key)

    def _terminated_received(self, data: bytes) -> None:
        id, _, body = data.partition(b" ")
        # Read again after a lost connection from here on; not while it is read, since those before may be missing.
        if self._early is None:
            self._terminated_position = id.decode()
        self._apply_terminated(body)

    def _apply_terminated(self, body: bytes) -> None:
        entry = _decode(body, _Terminated)
        if entry is not None and entry.expires > self.now():
            self._terminate(entry.key, entry.expires)

    async def _load_terminated(self) -> None:
        async for entry in self._entries_after("terminated", self._terminated_position):
            self._terminated_position = entry.id
            self._apply_terminated(entry.data)

    async def _entries_after(self, name: str, after: str) -> Any:
        """Yield the entries of a log after one, or all that are kept if that one is not."""
        entries: list[Entry] | None = await self.store.read(name, after=after)
        if entries is None:
            entries = await self.store.read(name)
        while entries:
            for entry in entries:
                yield entry
            entries = await self.store.read(name, after=entries[-1].id)

    # --- announcements -----------------------------------------------------------------------------------------------

    def announce(self, body: bytes) -> None:
        """Announce a change to all workers, this one included, as soon as the store can be reached."""
        data = msgspec.msgpack.encode(_Announcement(self.id, body))
        bounds: dict[str, Any] = {
            "ttl": LIFETIME,
            "max_entries": MAX_ANNOUNCEMENTS,
            "max_bytes": _ANNOUNCEMENT_BYTES,
            "announce": "announcements",
        }
        with suppress(StoreUnavailable):
            if self.store.append_now("announcements", data, **bounds) is not None:
                return
        self.spawn(self.store.append("announcements", data, patience=LIFETIME, **bounds))

    def _announcement_received(self, data: bytes) -> None:
        if self._early is None:
            id, _, body = data.partition(b" ")
            self._announcement(id.decode(), body)
        elif len(self._early) < MAX_ANNOUNCEMENTS:
            self._early.append(data)
        else:
            # It is in the log, and read from there.
            self._behind = True

    def _announcement(self, id: str, body: bytes) -> None:
        if later(id, self.position):
            self.position = id
            if self._joined and self._listener is not None:
                found = _decode(body, _Announcement)
                # What cannot be read may be of anything.
                own = found is not None and found.worker == self.id
                self._listener.announced(id, None if found is None else found.body, own=own)

    def _deliver_early(self) -> None:
        early, self._early = self._early or (), None
        for data in early:
            self._announcement_received(data)

    async def _catch_up_announcements(self) -> None:
        """Read the announcements that the channel did not bring, and deliver them."""
        entries = await self.store.read("announcements", after=self.position, limit=MAX_ANNOUNCEMENTS)
        lost = entries is None
        if entries is None:
            entries = await self.store.read("announcements", limit=MAX_ANNOUNCEMENTS) or []
        if not lost:
            for entry in entries:
                self._announcement(entry.id, entry.data)
            return
        missed = [entry for entry in entries if later(entry.id, self.position)]
        if len(missed) > MAX_RETOLD:
            missed = []
        # It may go back: from an entry that the store has lost nothing could ever be read.
        last = entries[-1].id if entries else ""
        self.position = position_before(missed[0].id) if missed else last
        if self._joined and self._listener is not None:
            self._listener.announced(self.position, None, own=False)
        # "Anything may have changed" does not say what a notification of the server's own says: these follow it.
        for entry in missed:
            self._announcement(entry.id, entry.data)

    async def announcements_after(
        self, position: str, *, inclusive: bool = False
    ) -> list[tuple[str, bytes | None]] | None:
        """Return the announcements after a position, with ``inclusive`` from this on; None if some are not kept.

        The body of one that cannot be read is None: anything may have changed.
        """
        entries = await self.store.read("announcements", after=position, limit=MAX_ANNOUNCEMENTS, inclusive=inclusive)
        if entries is None:
            return None
        decoded = [(each.id, _decode(each.data, _Announcement)) for each in entries]
        return [(id, None if announcement is None else announcement.body) for id, announcement in decoded]


def worker_of(name: str) -> str | None:
    """Return the worker that a stream or request is named after; None if no worker makes such names."""
    worker, dash, _ = name.partition("-")
    return worker if dash and _WORKER_ID.fullmatch(worker) else None


def _decode(data: bytes, kind: type[_T]) -> _T | None:
    """Return an entry or message; None if it cannot be read, which is logged: what follows it is not affected."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.DecodeError as error:
        log.error("an entry of the store that is no %s is skipped: %s", kind.__name__, error)
        return None


def later(id: str, other: str) -> bool:
    """Return whether an entry comes after another one."""
    return (entry_position(id) or (0, 0)) > (entry_position(other) or (0, 0))


def position_before(id: str) -> str:
    """Return a position just before an announcement, for the notice that earlier ones are missing."""
    first, second = entry_position(id) or (0, 0)
    return f"{first}-{second - 1}" if second else f"{max(first - 1, 0)}-{_LAST}"


async def _quiet(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await work
    except StoreUnavailable as error:
        log.debug("%s", error.message)
    except Exception:
        log.exception("work for the store failed")
    return None
