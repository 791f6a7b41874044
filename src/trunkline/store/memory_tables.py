"""The contents of a store in memory, and what each verb does to them; no clock, no subscribers, no event loop.

No verb costs more if more is stored: what expires lies in one heap, members of an index in blocks, the entries of a log
in a list with their places in a table, and those of a queue in the order of their leases. Whatever has expired is
ignored at once, and removed later: each write removes a few of those that have, and all if something has no room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from math import inf
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from trunkline.errors import StoreUnavailable
from trunkline.store.interface import (
    Commit,
    Delete,
    Enqueue,
    Entry,
    Finish,
    FullIndex,
    Index,
    IndexLimits,
    Publish,
    Put,
    Step,
)
from trunkline.store.memory_queue import LeasedQueue
from trunkline.store.sorted_names import SortedNames

__all__ = ["Log", "MemoryTables", "Message"]

#: What an item costs beside its bytes: objects, and the places in tables.
_ITEM_BYTES = 200
#: The most expired items that one write removes: more than it can add, so that they do not pile up.
_REMOVED_AT_ONCE = 16
#: The heap of a store with fewer items is not searched for entries of items that are gone.
_SMALL_HEAP = 64

_VALUE, _LOG, _COUNT, _MEMBER = range(4)

T = TypeVar("T")
#: When an item expires, the time of its entry in the heap, which may be earlier since an item that is renewed stays
#: where it is there, and the item.
_Expiring: TypeAlias = tuple[float, float, T]
#: A channel, and the message to be sent on it.
Message: TypeAlias = tuple[str, bytes]

_DROPPED = Entry("", b"")
_DONE, _NOT_DONE = Commit(True), Commit(False)


class Log:
    """The entries of a log, and where each is."""

    __slots__ = ("_base", "_entries", "_first", "_numbers", "size")

    def __init__(self) -> None:
        """Start empty."""
        #: The entries; those before ``_first`` were dropped.
        self._entries: list[Entry] = []
        self._first = 0
        #: The number of each entry by its id, and that of the first place of the list.
        self._numbers: dict[str, int] = {}
        self._base = 0
        #: The bytes of all entries.
        self.size: int = 0

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._numbers)

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        self._numbers[entry.id] = self._base + len(self._entries)
        self._entries.append(entry)
        self.size += len(entry.data)

    def excess(self, size: int, max_entries: int, max_bytes: int) -> tuple[int, int]:
        """Return how many of the oldest entries have no place beside one more of a size, and their bytes."""
        count = freed = 0
        entries, room = len(self._numbers), max_bytes - size - self.size
        while count < entries and (entries + 1 - count > max_entries or freed + room < 0):
            freed += len(self._entries[self._first + count].data)
            count += 1
        return count, freed

    def drop(self, count: int) -> None:
        """Drop the oldest entries."""
        entries = self._entries
        for place in range(self._first, self._first + count):
            entry = entries[place]
            self.size -= len(entry.data)
            del self._numbers[entry.id]
            entries[place] = _DROPPED
        self._first += count
        if self._first > _SMALL_HEAP and 2 * self._first > len(entries):
            del entries[: self._first]
            self._base += self._first
            self._first = 0

    def read(self, after: str, limit: int, *, inclusive: bool) -> list[Entry] | None:
        """Return the entries after an id; None if that entry is not there."""
        start = self._first
        if after:
            number = self._numbers.get(after)
            if number is None:
                return None
            start = number - self._base + (not inclusive)
        return self._entries[start : start + limit]


class _Index:
    """The members of an index with their weights, and their order."""

    __slots__ = ("members", "order", "weight")

    def __init__(self) -> None:
        self.members: dict[str, _Expiring[int]] = {}
        self.weight = 0
        #: None until the members are listed for the first time: most indexes only count, and need no order.
        self.order: SortedNames | None = None


class MemoryTables:
    """Everything that is stored; every method is one step, and gets the time."""

    def __init__(self, max_bytes: int | None = None) -> None:
        """Start empty; with ``max_bytes``, writes that make it grow beyond fail."""
        self._max_bytes = max_bytes
        self.values: dict[str, _Expiring[bytes]] = {}
        self.logs: dict[str, _Expiring[Log]] = {}
        #: The theoretical arrival times of limits; see `admit`.
        self.counts: dict[str, _Expiring[None]] = {}
        self.queues: dict[str, LeasedQueue] = {}
        self.indexes: dict[str, _Index] = {}
        #: The bytes of all items.
        self.size: int = 0
        #: The messages of the steps that were done, for the caller to send.
        self.outbox: list[Message] = []
        #: A heap: the time of an entry, the kind of its item, the name, and of a member its index. An entry whose time
        #: is not that of its item is of an item that is gone.
        self._expiring: list[tuple[float, int, str, str]] = []
        #: How many entries of the heap are of items that are gone.
        self._stale = 0

    # --- commits -----------------------------------------------------------------------------------------------------

    def commit(self, steps: Sequence[Step], now: float) -> Commit:
        """Do all steps, or none if a condition does not hold; their messages are in ``outbox`` then.

        Raises:
            StoreUnavailable: there is no room for them.
        """
        for step in steps:
            if type(step) is Put:
                refusal = self._check_put(step, now)
            elif type(step) is Index:
                refusal = self._check_index(step, now)
            else:
                # The others have no condition.
                continue
            if refusal is not None:
                return refusal
        if self._max_bytes is not None:
            self._require_room(lambda: self._growth(steps), now)
        if self._expiring:
            self._remove_some_expired(now)
        for step in steps:
            _METHODS[type(step)](self, step, now)
        return _DONE

    def _growth(self, steps: Sequence[Step]) -> int:
        return sum(_GROWTH[type(step)](self, step) for step in steps if type(step) in _GROWTH)

    def _require_room(self, growth: Callable[[], int], now: float) -> None:
        """Raise an error if a write has no room; what makes the contents smaller always has."""
        assert self._max_bytes is not None
        added = growth()
        if added > 0 and self.size + added > self._max_bytes:
            self.remove_expired(now)
            # Of what it replaces, something may have expired.
            if self.size + growth() > self._max_bytes:
                raise StoreUnavailable(
                    f"the store that the workers share is full ({self._max_bytes // 1024 // 1024} MiB); try again later"
                )

    # --- values ------------------------------------------------------------------------------------------------------

    def value(self, key: str, now: float) -> bytes | None:
        """Return a value."""
        record = self.values.get(key)
        return None if record is None or record[0] <= now else record[2]

    def _check_put(self, step: Put, now: float) -> Commit | None:
        if step.old is None and not step.only_if_absent:
            return None
        record = self.values.get(step.key)
        value = None if record is None or record[0] <= now else record[2]
        return None if value == step.old else _NOT_DONE

    def _put(self, step: Put, now: float) -> None:
        key, value, expires = step.key, step.value, now + step.ttl
        record = self.values.get(key)
        if record is None:
            self.size += len(value) + len(key) + _ITEM_BYTES
            queued = inf
        else:
            self.size += len(value) - len(record[2])
            queued = record[1]
        if expires < queued:
            self._stale += queued != inf
            queued = expires
            heappush(self._expiring, (expires, _VALUE, key, ""))
        self.values[key] = (expires, queued, value)

    def _put_growth(self, step: Put) -> int:
        record = self.values.get(step.key)
        return len(step.value) + (len(step.key) + _ITEM_BYTES if record is None else -len(record[2]))

    def _delete(self, step: Delete, _now: float) -> None:
        self._remove(_VALUE, step.key)
        self._remove(_LOG, step.key)
        self._remove(_COUNT, step.key)

    def _delete_growth(self, step: Delete) -> int:
        return -sum(self._cost(kind, step.key) for kind in (_VALUE, _LOG, _COUNT))

    # --- logs --------------------------------------------------------------------------------------------------------

    def log(self, name: str, now: float) -> Log | None:
        """Return a log."""
        record = self.logs.get(name)
        return None if record is None or record[0] <= now else record[2]

    def append(self, name: str, entry: Entry, *, ttl: float, max_entries: int, max_bytes: int, now: float) -> None:
        """Add an entry to a log, and drop those that have no place beside it.

        Raises:
            StoreUnavailable: there is no room for it.
        """
        if self._max_bytes is not None:
            self._require_room(lambda: self._append_growth(name, len(entry.data), max_entries, max_bytes, now), now)
        self._remove_some_expired(now)
        record = self.logs.get(name)
        if record is not None and record[0] <= now:
            self._remove(_LOG, name)
            record = None
        if record is None:
            log, queued = Log(), inf
            self.size += len(name) + _ITEM_BYTES
        else:
            _, queued, log = record
        expires = now + ttl
        if expires < queued:
            self._stale += queued != inf
            queued = expires
            heappush(self._expiring, (expires, _LOG, name, ""))
        self.logs[name] = (expires, queued, log)
        count, freed = log.excess(len(entry.data), max_entries, max_bytes)
        if count:
            log.drop(count)
        log.add(entry)
        self.size += len(entry.data) - freed + (1 - count) * _ITEM_BYTES

    def _append_growth(self, name: str, size: int, max_entries: int, max_bytes: int, now: float) -> int:
        log = self.log(name, now)
        if log is None:
            return size + len(name) + 2 * _ITEM_BYTES - self._cost(_LOG, name)
        count, freed = log.excess(size, max_entries, max_bytes)
        return size - freed + (1 - count) * _ITEM_BYTES

    # --- limits ------------------------------------------------------------------------------------------------------

    def admit(self, key: str, *, rate: float, burst: int, cost: int, now: float) -> float:
        """Count events; return 0, or for how long they must wait.

        Raises:
            StoreUnavailable: there is no room for one more count.
        """
        interval = 1.0 / rate
        record = self.counts.get(key)
        # GCRA: the theoretical arrival time of the next event may run ahead of the clock by the burst.
        arrival = now if record is None or record[0] < now else record[0]
        wait = arrival + cost * interval - burst * interval - now
        # A billionth of a second is no reason to wait: sums of floats are not exact.
        if wait > 1e-9:
            return wait
        if self._max_bytes is not None:
            self._require_room(lambda: 0 if key in self.counts else len(key) + _ITEM_BYTES, now)
        self._remove_some_expired(now)
        record = self.counts.get(key)
        if record is None:
            self.size += len(key) + _ITEM_BYTES
        arrival += cost * interval
        queued = inf if record is None else record[1]
        if arrival < queued:
            self._stale += queued != inf
            queued = arrival
            heappush(self._expiring, (arrival, _COUNT, key, ""))
        # A count of the past says nothing, so it expires with its arrival time.
        self.counts[key] = (arrival, queued, None)
        return 0.0

    # --- queues ------------------------------------------------------------------------------------------------------

    def _enqueue(self, step: Enqueue, now: float) -> None:
        name, id, data = step.queue, step.id, step.data
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = LeasedQueue()
        replaced = queue.size(id)
        self.size += len(data) + (len(id) + _ITEM_BYTES if replaced is None else -replaced)
        queue.add(id, data, step.holder, now)
        self.outbox.append((name, id.encode()))

    def _enqueue_growth(self, step: Enqueue) -> int:
        queue = self.queues.get(step.queue)
        replaced = None if queue is None else queue.size(step.id)
        return len(step.data) + (len(step.id) + _ITEM_BYTES if replaced is None else -replaced)

    def _finish(self, step: Finish, _now: float) -> None:
        name, id = step.queue, step.id
        queue = self.queues.get(name)
        if queue is not None and queue.is_held(step.holder, id):
            self.size -= (queue.size(id) or 0) + len(id) + _ITEM_BYTES
            queue.remove(id)
            if not queue:
                del self.queues[name]

    def _finish_growth(self, step: Finish) -> int:
        queue = self.queues.get(step.queue)
        if queue is None or not queue.is_held(step.holder, step.id):
            return 0
        return -((queue.size(step.id) or 0) + len(step.id) + _ITEM_BYTES)

    # --- indexes -----------------------------------------------------------------------------------------------------

    def members(self, name: str, after: str, limit: int, now: float) -> list[str]:
        """Return members of an index in their order."""
        index = self.indexes.get(name)
        if index is None:
            return []
        members = index.members
        if index.order is None:
            index.order = SortedNames(members)
        following = index.order.after(after)
        if self._expiring and self._expiring[0][0] <= now:
            following = (member for member in following if members[member][0] > now)
        return list(islice(following, limit))

    def _check_index(self, step: Index, now: float) -> Commit | None:
        """Check that each index has room for a member."""
        member, weight = step.member, step.weight
        for name, limits in step.into.items():
            max_members, max_weight = limits
            if not max_members and not max_weight:
                continue
            index = self.indexes.get(name)
            if index is None:
                members, before, total = 0, None, weight
            else:
                members, before = len(index.members), index.members.get(member)
                total = index.weight + weight
            if before is not None or (max_members and members >= max_members) or (max_weight and total > max_weight):
                full = self._full_index(name, limits, step, now)
                if full is not None:
                    return Commit(False, full)
        return None

    def _full_index(self, name: str, limits: IndexLimits, step: Index, now: float) -> FullIndex | None:
        """Return an index if it has no room for a member, also without the members that have expired."""
        self.remove_expired(now)
        index = self.indexes.get(name) or _Index()
        before = index.members.get(step.member)
        if before is None and limits.members and len(index.members) >= limits.members:
            return FullIndex(name, "members")
        total = index.weight + step.weight - (0 if before is None else before[2])
        grows = before is None or step.weight > before[2]
        return FullIndex(name, "weight") if grows and limits.weight and total > limits.weight else None

    def _index(self, step: Index, now: float) -> None:
        member, weight, expires, indexes = step.member, step.weight, now + step.ttl, self.indexes
        for name in step.into:
            index = indexes.get(name)
            if index is None:
                index = indexes[name] = _Index()
            record = index.members.get(member)
            if record is None:
                if index.order is not None:
                    index.order.add(member)
                index.weight += weight
                self.size += len(member) + _ITEM_BYTES
                queued = inf
            else:
                index.weight += weight - record[2]
                queued = record[1]
            if expires < queued:
                self._stale += queued != inf
                queued = expires
                heappush(self._expiring, (expires, _MEMBER, member, name))
            index.members[member] = (expires, queued, weight)
        for name in step.out_of:
            self._remove_member(name, member)

    def _remove_member(self, name: str, member: str) -> None:
        """Remove a member of an index, if it is there."""
        index = self.indexes.get(name)
        if index is None or member not in index.members:
            return
        _, queued, weight = index.members.pop(member)
        self.size -= len(member) + _ITEM_BYTES
        self._stale += queued != inf
        index.weight -= weight
        if index.order is not None:
            index.order.remove(member)
        if not index.members:
            del self.indexes[name]

    def _index_growth(self, step: Index) -> int:
        absent = sum(1 for name in step.into if not self._cost(_MEMBER, step.member, name))
        removed = sum(self._cost(_MEMBER, step.member, name) for name in step.out_of)
        return absent * (len(step.member) + _ITEM_BYTES) - removed

    # --- messages ----------------------------------------------------------------------------------------------------

    def _publish(self, step: Publish, _now: float) -> None:
        self.outbox.append((step.channel, step.data))

    # --- expiry ------------------------------------------------------------------------------------------------------

    def _remove_some_expired(self, now: float) -> None:
        heap = self._expiring
        if heap:
            if heap[0][0] <= now:
                self.remove_expired(now, most=_REMOVED_AT_ONCE)
            if self._stale > _SMALL_HEAP and 2 * self._stale > len(heap):
                # Half of them at least are removed, which pays for this.
                self._remove_stale()

    def remove_expired(self, now: float, most: int | None = None) -> None:
        """Remove what has expired, all of it or a few items."""
        heap = self._expiring
        while heap and heap[0][0] <= now and most != 0:
            queued, kind, name, index = heap[0]
            record = self._record(kind, name, index)
            if record is not None and record[1] == queued and record[0] > now:
                # It was renewed since.
                expires, _, item = record
                self._table(kind, index)[name] = (expires, expires, item)
                if expires < inf:
                    heapreplace(heap, (expires, kind, name, index))
                else:
                    heappop(heap)
            else:
                if record is not None and record[1] == queued:
                    self._remove(kind, name, index)
                heappop(heap)
                self._stale -= 1
            if most is not None:
                most -= 1

    def _remove_stale(self) -> None:
        """Remove the entries of items that are gone from the heap."""
        # Without a call for each entry: that would be a good part of what a write costs.
        tables: tuple[dict[str, _Expiring[Any]], ...] = (self.values, self.logs, self.counts)
        indexes, current = self.indexes, []
        for entry in self._expiring:
            queued, kind, name, index = entry
            if kind != _MEMBER:
                record = tables[kind].get(name)
            else:
                record = indexes[index].members.get(name) if index in indexes else None
            if record is not None and record[1] == queued:
                current.append(entry)
        heapify(current)
        self._expiring = current
        self._stale = 0

    def _table(self, kind: int, index: str) -> dict[str, _Expiring[Any]]:
        if kind == _VALUE:
            return self.values
        if kind == _LOG:
            return self.logs
        if kind == _COUNT:
            return self.counts
        members = self.indexes.get(index)
        return {} if members is None else members.members

    def _record(self, kind: int, name: str, index: str) -> _Expiring[Any] | None:
        return self._table(kind, index).get(name)

    def _cost(self, kind: int, name: str, index: str = "") -> int:
        """Return the bytes of an item; 0 if it is not there."""
        record = self._record(kind, name, index)
        if record is None:
            return 0
        cost = len(name) + _ITEM_BYTES
        if kind == _VALUE:
            return cost + len(record[2])
        return cost + record[2].size + len(record[2]) * _ITEM_BYTES if kind == _LOG else cost

    def _remove(self, kind: int, name: str, index: str = "") -> None:
        """Remove an item, if it is there; its entry in the heap stays."""
        if kind == _MEMBER:
            self._remove_member(index, name)
        elif cost := self._cost(kind, name):
            self.size -= cost
            self._stale += self._table(kind, "").pop(name)[1] != inf


_METHODS: Mapping[type, Callable[[MemoryTables, Any, float], None]] = MappingProxyType(
    {
        Put: MemoryTables._put,
        Delete: MemoryTables._delete,
        Index: MemoryTables._index,
        Enqueue: MemoryTables._enqueue,
        Finish: MemoryTables._finish,
        Publish: MemoryTables._publish,
    }
)
_GROWTH: Mapping[type, Callable[[MemoryTables, Any], int]] = MappingProxyType(
    {
        Put: MemoryTables._put_growth,
        Delete: MemoryTables._delete_growth,
        Index: MemoryTables._index_growth,
        Enqueue: MemoryTables._enqueue_growth,
        Finish: MemoryTables._finish_growth,
    }
)
