"""A store inside one process: the default, the reference for the other engines, and what the simulation runs on.

A `MemoryContents` is what the other engines keep outside; each worker has a `MemoryEngine` of its own onto it. It is
deterministic: the clock and the random bytes are passed in, and messages are delivered in the step that sends them.
Event loops of several threads may share it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from threading import RLock

from trunkline.errors import StoreUnavailable
from trunkline.store.interface import Appended, Commit, Delivery, Entry, Step, Store, Subscription
from trunkline.store.memory_tables import MemoryTables, Message

__all__ = ["MemoryContents", "MemoryEngine"]

log = logging.getLogger("trunkline")


class _MemorySubscription:
    __slots__ = ("_engine", "_loop", "channel", "missed", "receive")

    def __init__(
        self,
        engine: MemoryEngine,
        channel: str,
        receive: Callable[[bytes], None],
        missed: Callable[[], None] | None,
    ) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self.channel = channel
        self.receive = receive
        self.missed = missed

    async def close(self) -> None:
        self._engine.forget(self)

    def call(self, callback: Callable[..., None], *args: object) -> None:
        """Call a callback in the event loop of the subscriber: now, if it is the running one."""
        if asyncio._get_running_loop() is self._loop:
            _call(callback, *args)
        elif self._loop.is_closed():
            self._engine.forget(self)
        else:
            self._loop.call_soon_threadsafe(_call, callback, *args)


class MemoryContents:
    """The contents of a store in memory, which several `MemoryEngine` share."""

    def __init__(
        self, *, now: Callable[[], float], random: Callable[[int], bytes], max_bytes: int | None = None
    ) -> None:
        """Start empty; ``now`` returns wall time, ``random`` so many random bytes.

        With ``max_bytes``, writes that make it grow beyond fail.
        """
        self.now = now
        self._random = random
        self._last_id = (0, 0)
        self.tables = MemoryTables(max_bytes)
        #: Held for each step: the event loops of other threads may use it too.
        self.lock = RLock()
        # Dicts as sets that keep their order.
        self.subscriptions: dict[str, dict[_MemorySubscription, None]] = {}
        self.engines: dict[MemoryEngine, None] = {}
        self.generation: str = random(8).hex()
        #: Whether it can be reached; see `set_available`.
        self.available: bool = True

    def set_available(self, available: bool) -> None:
        """Make every call fail, or succeed again; subscribers are then notified that they may have missed messages."""
        recovered, self.available = available and not self.available, available
        if recovered:
            for engine in tuple(self.engines):
                engine.recovered()

    def lose_writes(self) -> None:
        """Start a new generation, as after a failover that lost writes."""
        self.generation = self._random(8).hex()
        for engine in tuple(self.engines):
            engine.announce_generation()

    def send(self, messages: Sequence[Message]) -> None:
        """Deliver the messages of a commit."""
        for channel, data in messages:
            self.publish(channel, data)

    def publish(self, channel: str, data: bytes) -> int:
        """Deliver a message to every subscriber; return how many there are."""
        subscriptions = self.subscriptions.get(channel)
        if subscriptions is None:
            return 0
        receivers = tuple(subscriptions)
        for subscription in receivers:
            subscription.call(subscription.receive, data)
        return len(receivers)

    def next_id(self, now: float) -> str:
        """Return the id of the next entry of a log."""
        position = (int(now * 1000), 0)
        if position <= self._last_id:
            position = (self._last_id[0], self._last_id[1] + 1)
        self._last_id = position
        return f"{position[0]}-{position[1]}"


class MemoryEngine(Store):
    """One worker's access to `MemoryContents`; see `Store` for the methods."""

    durable = False
    private = True

    def __init__(self, contents: MemoryContents) -> None:
        """Use these contents."""
        self._contents = contents
        self._subscriptions: dict[_MemorySubscription, None] = {}
        self._callbacks: list[Callable[[str], None]] = []

    # --- values ------------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        """Return a value."""
        contents = self._reach()
        return contents.tables.value(key, contents.now())

    async def commit(self, *steps: Step) -> Commit:
        """Check all conditions, do all steps, then send their messages."""
        contents = self._contents
        if not contents.available:
            raise _unavailable()
        with contents.lock:
            tables = contents.tables
            outcome = tables.commit(steps, contents.now())
            if tables.outbox:
                messages, tables.outbox = tables.outbox, []
                contents.send(messages)
            return outcome

    # --- logs --------------------------------------------------------------------------------------------------------

    async def append(
        self,
        log: str,
        data: bytes,
        *,
        ttl: float,
        max_entries: int,
        max_bytes: int,
        announce: str | None = None,
        patience: float | None = None,
    ) -> Appended:
        """Add an entry; a failure is immediate, whatever the patience."""
        return self.append_now(log, data, ttl=ttl, max_entries=max_entries, max_bytes=max_bytes, announce=announce)

    def append_now(
        self, log: str, data: bytes, *, ttl: float, max_entries: int, max_bytes: int, announce: str | None = None
    ) -> Appended:
        """Add an entry."""
        contents = self._reach()
        with contents.lock:
            now = contents.now()
            entry = Entry(contents.next_id(now), data)
            contents.tables.append(log, entry, ttl=ttl, max_entries=max_entries, max_bytes=max_bytes, now=now)
            if announce is None or announce not in contents.subscriptions:
                return Appended(entry.id, 0)
            return Appended(entry.id, contents.publish(announce, b"%s %s" % (entry.id.encode(), data)))

    async def read(
        self, log: str, *, after: str = "", limit: int = 1000, inclusive: bool = False
    ) -> list[Entry] | None:
        """Return the entries after an id."""
        contents = self._reach()
        with contents.lock:
            entries = contents.tables.log(log, contents.now())
            if entries is None:
                return None if after else []
            return entries.read(after, limit, inclusive=inclusive)

    # --- channels ----------------------------------------------------------------------------------------------------

    async def publish(self, channel: str, data: bytes) -> int:
        """Send a message."""
        contents = self._reach()
        with contents.lock:
            return contents.publish(channel, data)

    async def subscribe(
        self, channel: str, receive: Callable[[bytes], None], *, missed: Callable[[], None] | None = None
    ) -> Subscription:
        """Receive messages."""
        contents = self._reach()
        subscription = _MemorySubscription(self, channel, receive, missed)
        with contents.lock:
            contents.subscriptions.setdefault(channel, {})[subscription] = None
            self._subscriptions[subscription] = None
        return subscription

    def forget(self, subscription: _MemorySubscription) -> None:
        """Remove a subscription."""
        contents = self._contents
        with contents.lock:
            if subscription in self._subscriptions:
                del self._subscriptions[subscription]
                others = contents.subscriptions[subscription.channel]
                del others[subscription]
                if not others:
                    del contents.subscriptions[subscription.channel]

    def recovered(self) -> None:
        """Called when the store can be reached again."""
        for subscription in tuple(self._subscriptions):
            if subscription.missed is not None:
                subscription.call(subscription.missed)

    # --- limits ------------------------------------------------------------------------------------------------------

    async def admit(self, key: str, *, rate: float, burst: int, cost: int = 1) -> float:
        """Count events."""
        contents = self._reach()
        with contents.lock:
            return contents.tables.admit(key, rate=rate, burst=burst, cost=cost, now=contents.now())

    # --- queues ------------------------------------------------------------------------------------------------------

    async def take(self, queue: str, holder: str, *, lease: float, limit: int = 1) -> list[Delivery]:
        """Lease entries."""
        contents = self._reach()
        with contents.lock:
            entries = contents.tables.queues.get(queue)
            return [] if entries is None else entries.take(holder, lease=lease, limit=limit, now=contents.now())

    async def renew(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """Renew leases."""
        contents = self._reach()
        with contents.lock:
            entries = contents.tables.queues.get(queue)
            return [] if entries is None else entries.renew(holder, ids, contents.now())

    async def release(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """End leases."""
        contents = self._reach()
        with contents.lock:
            entries = contents.tables.queues.get(queue)
            return [] if entries is None else entries.release(holder, ids)

    # --- indexes -----------------------------------------------------------------------------------------------------

    async def members(self, index: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """Return members."""
        contents = self._reach()
        with contents.lock:
            return contents.tables.members(index, after, limit, contents.now())

    # --- its own life ------------------------------------------------------------------------------------------------

    @property
    def available(self) -> bool:
        """Whether the store can be reached."""
        return self._contents.available

    @property
    def generation(self) -> str:
        """The generation of the contents."""
        return self._contents.generation

    def on_new_generation(self, callback: Callable[[str], None]) -> None:
        """Register a callback."""
        self._callbacks.append(callback)

    def announce_generation(self) -> None:
        """Called when the store has a new generation."""
        for callback in self._callbacks:
            callback(self._contents.generation)

    async def connect(self) -> None:
        """Join the contents."""
        self._reach().engines[self] = None

    async def aclose(self) -> None:
        """Leave the contents."""
        for subscription in tuple(self._subscriptions):
            self.forget(subscription)
        self._contents.engines.pop(self, None)

    def _reach(self) -> MemoryContents:
        if not self._contents.available:
            raise _unavailable()
        return self._contents


def _unavailable() -> StoreUnavailable:
    return StoreUnavailable("the store cannot be reached")


def _call(callback: Callable[..., None], *args: object) -> None:
    try:
        callback(*args)
    except Exception:
        log.exception("a subscriber of the store failed")
