"""A store inside one process: the reference for the other one, and what the simulation runs on.

A ``MemoryContents`` is what the others keep outside; each worker has a ``MemoryEngine`` of its own onto it. It is
deterministic: the clock and the random bytes are passed in, and messages are delivered in the step that sends them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf

from trunkline.errors import StoreUnavailable
from trunkline.store.interface import (
    Appended,
    Commit,
    Delete,
    Delivery,
    Enqueue,
    Entry,
    Finish,
    FullIndex,
    Index,
    Put,
    Step,
    Store,
    Subscription,
    entry_position,
)

__all__ = ["MemoryContents", "MemoryEngine"]

#: What an entry costs beside its bytes: its key, objects and the place in a table.
_ENTRY_BYTES = 200
#: All entries are counted at most once in so many seconds, since that takes a while in a full contents.
_COUNT_SECONDS = 1.0


class _Log:
    __slots__ = ("entries", "expires", "size")

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque()
        self.size = 0
        self.expires = 0.0


class _Lease:
    __slots__ = ("attempt", "holder", "since")

    def __init__(self, holder: str, since: float, attempt: int) -> None:
        self.holder = holder
        self.since = since
        self.attempt = attempt


class _Queue:
    __slots__ = ("entries", "leases")

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}
        self.leases: dict[str, _Lease] = {}


class _Index:
    """The members of an index: their order, when each expires, and the sum of their weights."""

    __slots__ = ("_expiring", "entries", "order", "weight")

    def __init__(self) -> None:
        #: When each member expires, and its weight.
        self.entries: dict[str, tuple[float, int]] = {}
        self.order: list[str] = []
        self.weight = 0
        #: The members by the time that they expire; those that were renewed or removed are skipped.
        self._expiring: list[tuple[float, str]] = []

    def add(self, member: str, expires: float, weight: int) -> None:
        """Add a member, or renew it."""
        before = self.entries.get(member)
        if before is None:
            insort(self.order, member)
        self.weight += weight - (0 if before is None else before[1])
        self.entries[member] = (expires, weight)
        if len(self._expiring) > 2 * len(self.entries):
            # Most were renewed since.
            self._expiring = sorted((until, name) for name, (until, _) in self.entries.items())
        else:
            heappush(self._expiring, (expires, member))

    def remove(self, member: str) -> None:
        """Remove a member, if it is one."""
        entry = self.entries.pop(member, None)
        if entry is not None:
            self.weight -= entry[1]
            del self.order[bisect_left(self.order, member)]

    def remove_expired(self, now: float) -> None:
        """Remove the members that have expired."""
        while self._expiring and self._expiring[0][0] <= now:
            expires, member = heappop(self._expiring)
            if self.entries.get(member, (inf, 0))[0] == expires:
                self.remove(member)


class _MemorySubscription:
    __slots__ = ("_store", "channel", "missed", "receive")

    def __init__(
        self,
        store: MemoryEngine,
        channel: str,
        receive: Callable[[bytes], None],
        missed: Callable[[], None] | None,
    ) -> None:
        self._store = store
        self.channel = channel
        self.receive = receive
        self.missed = missed

    async def close(self) -> None:
        self._store.forget(self)


class MemoryContents:
    """The contents of a store in memory, which several `MemoryEngine` share."""

    def __init__(
        self, *, now: Callable[[], float], random: Callable[[int], bytes], max_bytes: int | None = None
    ) -> None:
        """Start empty; ``now`` returns wall time, ``random`` so many random bytes.

        With ``max_bytes``, writes fail while so much is stored.
        """
        self.now = now
        self._random = random
        self._max_bytes = max_bytes
        #: What is stored at most: what was counted last, and all that was written since.
        self._estimate = 0
        self._counted_at = float("-inf")
        self._last = (0, 0)
        self.values: dict[str, tuple[bytes, float]] = {}
        self.logs: dict[str, _Log] = {}
        self.queues: dict[str, _Queue] = {}
        self.arrivals: dict[str, float] = {}
        self.indexes: dict[str, _Index] = {}
        self.subscriptions: dict[str, list[_MemorySubscription]] = {}
        self.stores: list[MemoryEngine] = []
        self.generation: str = random(8).hex()
        #: Whether it can be reached; see `set_available`.
        self.available: bool = True

    def set_available(self, available: bool) -> None:
        """Make every call fail, or succeed again; subscribers are then notified that they may have missed messages."""
        recovered, self.available = available and not self.available, available
        if recovered:
            for store in self.stores:
                store.recovered()

    def lose_writes(self) -> None:
        """Start a new generation, as after a failover that lost writes."""
        self.generation = self._random(8).hex()
        for store in self.stores:
            store.announce_generation()

    def reserve(self, size: int) -> None:
        """Account for so many bytes that are about to be stored.

        Raises:
            StoreUnavailable: there is no room for them.
        """
        if self._max_bytes is None:
            return
        cost = size + _ENTRY_BYTES
        if self._estimate + cost > self._max_bytes and self.now() - self._counted_at >= _COUNT_SECONDS:
            self.sweep()
            self._estimate, self._counted_at = self._count(), self.now()
        if self._estimate + cost > self._max_bytes:
            raise StoreUnavailable(
                f"the store that the workers share is full ({self._max_bytes // 1024 // 1024} MiB); try again later"
            )
        self._estimate += cost

    def _count(self) -> int:
        """Return about how many bytes are stored."""
        values = sum(len(value) + _ENTRY_BYTES for value, _ in self.values.values())
        logs = sum(log.size + _ENTRY_BYTES * (1 + len(log.entries)) for log in self.logs.values())
        queues = sum(len(data) + _ENTRY_BYTES for queue in self.queues.values() for data in queue.entries.values())
        names = len(self.arrivals) + sum(len(index.order) for index in self.indexes.values())
        return values + logs + queues + names * _ENTRY_BYTES

    def next_id(self) -> str:
        """Return the id of the next entry."""
        position = (int(self.now() * 1000), 0)
        if position <= self._last:
            position = (self._last[0], self._last[1] + 1)
        self._last = position
        return f"{position[0]}-{position[1]}"

    def log(self, name: str) -> _Log | None:
        """Return a log that has not expired."""
        log = self.logs.get(name)
        if log is not None and log.expires <= self.now():
            del self.logs[name]
            return None
        return log

    def sweep(self) -> None:
        """Forget what has expired; called now and then, since most of it is never asked for again."""
        now = self.now()
        self.values = {key: kept for key, kept in self.values.items() if kept[1] > now}
        self.logs = {name: log for name, log in self.logs.items() if log.expires > now}
        self.arrivals = {key: at for key, at in self.arrivals.items() if at > now}
        for name in tuple(self.indexes):
            self.index(name)

    def index(self, name: str) -> _Index:
        """Return an index without the members that have expired; one that is empty is not kept."""
        index = self.indexes.get(name) or _Index()
        index.remove_expired(self.now())
        if not index.entries:
            self.indexes.pop(name, None)
        return index

    def full_index(self, step: Index) -> FullIndex | None:
        """Return the index that has no room for a member."""
        for name, limits in step.into.items():
            index = self.index(name)
            held = index.entries[step.member][1] if step.member in index.entries else -1
            if held < 0 and limits.members and len(index.order) >= limits.members:
                return FullIndex(name, "members")
            total = index.weight - max(held, 0) + step.weight
            if step.weight > held and limits.weight and total > limits.weight:
                return FullIndex(name, "weight")
        return None

    def do(self, step: Step) -> None:
        """Do a step whose condition holds."""
        if isinstance(step, Put):
            self.values[step.key] = (step.value, self.now() + step.ttl)
        elif isinstance(step, Delete):
            self.values.pop(step.key, None)
            self.logs.pop(step.key, None)
            self.arrivals.pop(step.key, None)
        elif isinstance(step, Index):
            for name in step.into:
                self.indexes.setdefault(name, _Index()).add(step.member, self.now() + step.ttl, step.weight)
            for name in step.out_of:
                self.index(name).remove(step.member)
                self.index(name)
        elif isinstance(step, Enqueue):
            queue = self.queues.setdefault(step.queue, _Queue())
            queue.entries[step.id] = step.data
            queue.leases.pop(step.id, None)
            if step.holder:
                queue.leases[step.id] = _Lease(step.holder, self.now(), 1)
            self.publish(step.queue, step.id.encode())
        elif isinstance(step, Finish):
            held = self.queues.get(step.queue)
            if held is not None and step.id in held.leases and held.leases[step.id].holder == step.holder:
                del held.entries[step.id], held.leases[step.id]
        else:
            self.publish(step.channel, step.data)

    def publish(self, channel: str, data: bytes) -> int:
        """Deliver a message to every subscriber; return how many there are."""
        heard = tuple(self.subscriptions.get(channel, ()))
        for each in heard:
            each.receive(data)
        return len(heard)


class MemoryEngine(Store):
    """One worker's access to `MemoryContents`; see `Store` for the methods."""

    durable = False
    private = True

    def __init__(self, contents: MemoryContents) -> None:
        """Use these contents."""
        self._contents = contents
        self._own: list[_MemorySubscription] = []
        self._callbacks: list[Callable[[str], None]] = []

    # --- values ------------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        """Return a value."""
        contents = self._reach()
        value, expires = contents.values.get(key, (None, 0.0))
        if value is not None and expires <= contents.now():
            del contents.values[key]
            return None
        return value

    async def commit(self, *steps: Step) -> Commit:
        """Check all conditions, then do all steps."""
        contents = self._reach()
        size = 0
        for step in steps:
            if isinstance(step, Put):
                size += len(step.value)
                current = await self.get(step.key) if step.old is not None or step.only_if_absent else None
                if current != step.old:
                    return Commit(False)
            elif isinstance(step, Index):
                size += len(step.into) * _ENTRY_BYTES
                full = contents.full_index(step)
                if full is not None:
                    return Commit(False, full)
            elif isinstance(step, Enqueue):
                size += len(step.data)
        if size:
            contents.reserve(size)
        for step in steps:
            contents.do(step)
        return Commit(True)

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
        contents = self._reach()
        contents.reserve(len(data))
        kept = contents.log(log)
        if kept is None:
            kept = contents.logs[log] = _Log()
        entry = Entry(contents.next_id(), data)
        kept.entries.append(entry)
        kept.size += len(data)
        kept.expires = contents.now() + ttl
        while len(kept.entries) > 1 and (len(kept.entries) > max_entries or kept.size > max_bytes):
            kept.size -= len(kept.entries.popleft().data)
        heard = 0 if announce is None else contents.publish(announce, b"%s %s" % (entry.id.encode(), data))
        return Appended(entry.id, heard)

    async def read(
        self, log: str, *, after: str = "", limit: int = 1000, inclusive: bool = False
    ) -> list[Entry] | None:
        """Return the entries after an id."""
        kept = self._reach().log(log)
        entries = () if kept is None else kept.entries
        if not after:
            return list(entries)[:limit]
        position = entry_position(after)
        if position is None or all(each.id != after for each in entries):
            return None
        found = [each for each in entries if (entry_position(each.id) or (0, 0)) >= position]
        return found[:limit] if inclusive else found[1 : limit + 1]

    # --- channels ----------------------------------------------------------------------------------------------------

    async def publish(self, channel: str, data: bytes) -> int:
        """Send a message."""
        return self._reach().publish(channel, data)

    async def subscribe(
        self, channel: str, receive: Callable[[bytes], None], *, missed: Callable[[], None] | None = None
    ) -> Subscription:
        """Receive messages."""
        contents = self._reach()
        subscription = _MemorySubscription(self, channel, receive, missed)
        contents.subscriptions.setdefault(channel, []).append(subscription)
        self._own.append(subscription)
        return subscription

    def forget(self, subscription: _MemorySubscription) -> None:
        """Remove a subscription."""
        if subscription in self._own:
            self._own.remove(subscription)
            others = self._contents.subscriptions[subscription.channel]
            others.remove(subscription)
            if not others:
                del self._contents.subscriptions[subscription.channel]

    def recovered(self) -> None:
        """Called when the store can be reached again."""
        for subscription in tuple(self._own):
            if subscription.missed is not None:
                subscription.missed()

    # --- limits ------------------------------------------------------------------------------------------------------

    async def admit(self, key: str, *, rate: float, burst: int, cost: int = 1) -> float:
        """Count events."""
        contents = self._reach()
        now, interval = contents.now(), 1.0 / rate
        # GCRA: the theoretical arrival time of the next event may run ahead of the clock by the burst.
        arrival = max(contents.arrivals.get(key, now), now)
        wait = arrival + cost * interval - burst * interval - now
        # A billionth of a second is no reason to wait: sums of floats are not exact.
        if wait > 1e-9:
            return wait
        if key not in contents.arrivals:
            contents.reserve(0)
        contents.arrivals[key] = arrival + cost * interval
        return 0.0

    # --- queues ------------------------------------------------------------------------------------------------------

    async def take(self, queue: str, holder: str, *, lease: float, limit: int = 1) -> list[Delivery]:
        """Lease entries."""
        contents = self._reach()
        found, now = contents.queues.setdefault(queue, _Queue()), contents.now()
        late = [id for id, held in found.leases.items() if now - held.since >= lease]
        new = [id for id in found.entries if id not in found.leases]
        taken: list[Delivery] = []
        for id in [*late, *new][:limit]:
            attempt = found.leases[id].attempt + 1 if id in found.leases else 1
            found.leases[id] = _Lease(holder, now, attempt)
            taken.append(Delivery(id, found.entries[id], attempt))
        return taken

    async def renew(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """Renew leases."""
        contents = self._reach()
        held = self._held(contents, queue, holder, ids)
        for id in held:
            contents.queues[queue].leases[id].since = contents.now()
        return held

    async def release(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """End leases."""
        contents = self._reach()
        held = self._held(contents, queue, holder, ids)
        for id in held:
            contents.queues[queue].leases[id] = _Lease("", float("-inf"), contents.queues[queue].leases[id].attempt)
        return held

    @staticmethod
    def _held(contents: MemoryContents, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        found = contents.queues.get(queue)
        leases = {} if found is None else found.leases
        return [id for id in ids if id in leases and leases[id].holder == holder]

    # --- indexes -----------------------------------------------------------------------------------------------------

    async def members(self, index: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """Return members."""
        order = self._reach().index(index).order
        first = bisect_right(order, after)
        return order[first : first + limit]

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
        if self not in self._reach().stores:
            self._contents.stores.append(self)

    async def aclose(self) -> None:
        """Leave the contents."""
        for subscription in tuple(self._own):
            self.forget(subscription)
        if self in self._contents.stores:
            self._contents.stores.remove(self)

    def _reach(self) -> MemoryContents:
        if not self._contents.available:
            raise StoreUnavailable("the store cannot be reached")
        return self._contents
