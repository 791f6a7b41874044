"""A queue in memory: entries that are free, in the order in which they are taken, and leased ones by their leases."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from trunkline.store.interface import Delivery

__all__ = ["LeasedQueue"]


class _Job:
    __slots__ = ("attempt", "data", "holder", "since")

    def __init__(self, data: bytes, holder: str, since: float, attempt: int) -> None:
        self.data = data
        self.holder = holder
        self.since = since
        self.attempt = attempt


class LeasedQueue:
    """The entries of a queue; each is free or leased to one holder."""

    __slots__ = ("_free", "_leased")

    def __init__(self) -> None:
        """Start empty."""
        # Not plain dicts: the first entry of one is searched behind all that were removed before it.
        #: By the time of the lease: one that is taken or renewed goes to the end.
        self._leased: OrderedDict[str, _Job] = OrderedDict()
        self._free: OrderedDict[str, _Job] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._leased) + len(self._free)

    def __iter__(self) -> Iterator[str]:
        """Return the ids of all entries."""
        return chain(self._leased, self._free)

    def size(self, id: str) -> int | None:
        """Return how many bytes an entry has; None if there is none."""
        job = self._leased.get(id) or self._free.get(id)
        return None if job is None else len(job.data)

    def add(self, id: str, data: bytes, holder: str, now: float) -> None:
        """Add an entry, or replace it; with a holder, it is leased."""
        self._leased.pop(id, None)
        self._free.pop(id, None)
        if holder:
            self._leased[id] = _Job(data, holder, now, 1)
        else:
            self._free[id] = _Job(data, "", now, 0)

    def take(self, holder: str, *, lease: float, limit: int, now: float) -> list[Delivery]:
        """Lease entries: first those whose lease has run out, then those without one."""
        late: list[str] = []
        for id, job in islice(self._leased.items(), limit):
            if now - job.since < lease:
                # All that follow were leased or renewed later.
                break
            late.append(id)
        deliveries = [self._lease(id, self._leased.pop(id), holder, now) for id in late]
        while self._free and len(deliveries) < limit:
            deliveries.append(self._lease(*self._free.popitem(last=False), holder, now))
        return deliveries

    def _lease(self, id: str, job: _Job, holder: str, now: float) -> Delivery:
        job.holder, job.since = holder, now
        job.attempt += 1
        self._leased[id] = job
        return Delivery(id, job.data, job.attempt)

    def is_held(self, holder: str, id: str) -> bool:
        """Return whether a holder has an entry."""
        job = self._leased.get(id)
        return job is not None and job.holder == holder

    def renew(self, holder: str, ids: Sequence[str], now: float) -> list[str]:
        """Renew leases."""
        renewed = [id for id in ids if self.is_held(holder, id)]
        for id in renewed:
            self._leased[id].since = now
            self._leased.move_to_end(id)
        return renewed

    def release(self, holder: str, ids: Sequence[str]) -> list[str]:
        """End leases: these entries are the next to be taken."""
        released = [id for id in dict.fromkeys(ids) if self.is_held(holder, id)]
        for id in reversed(released):
            self._free[id] = self._leased.pop(id)
            self._free.move_to_end(id, last=False)
        return released

    def remove(self, id: str) -> None:
        """Remove a leased entry."""
        del self._leased[id]
