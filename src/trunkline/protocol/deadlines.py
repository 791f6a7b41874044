"""A queue of deadlines: all those of a Server or a Client, with the time passed in from outside.

Adding a deadline costs a heap push; moving it later costs one assignment, because an entry that comes up too early is
just pushed again. Cancelled entries are dropped when they come up, or all at once when there are many. Nothing here
waits: the driver asks ``next_at`` and calls ``sweep``.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

__all__ = ["Deadline", "Sweeper"]

# With fewer entries than this, the cancelled ones are not worth a search.
_FEW = 1024


class Deadline:
    """A deadline and its callback; ``at`` may be moved later at any time."""

    __slots__ = ("at", "expired")

    def __init__(self, at: float, expired: Callable[[], None] | None) -> None:
        """Create a deadline; use ``DeadlineQueue.add``."""
        self.at = at
        self.expired = expired

    def cancel(self) -> None:
        """Cancel the deadline; its callback will not be called."""
        self.expired = None


class Sweeper:
    """Keeps deadlines in order and calls those that are due."""

    __slots__ = ("_count", "_heap", "_many")

    def __init__(self) -> None:
        """Start empty."""
        self._heap: list[tuple[float, int, Deadline]] = []
        self._count = 0
        self._many = _FEW

    def add(self, at: float, expired: Callable[[], None]) -> Deadline:
        """Add a deadline whose callback is called once, at a time of the caller's clock."""
        row = Deadline(at, expired)
        if len(self._heap) >= self._many:
            self._forget_cancelled()
        self._push(row)
        return row

    def next_at(self) -> float | None:
        """Return when to sweep next, or None if the queue is empty; cancelled entries on top are dropped."""
        heap = self._heap
        while heap:
            at, _, row = heap[0]
            if row.expired is None:
                heappop(heap)
            elif row.at > at:
                heappop(heap)
                self._push(row)
            else:
                return at
        return None

    def sweep(self, now: float) -> None:
        """Call every deadline that is due."""
        while (at := self.next_at()) is not None and at <= now:
            _, _, row = heappop(self._heap)
            expired, row.expired = row.expired, None
            assert expired is not None
            expired()

    def __len__(self) -> int:
        """Return the number of entries, including cancelled ones not yet dropped."""
        return len(self._heap)

    def _forget_cancelled(self) -> None:
        """Drop cancelled entries: those of fast calls would pile up for as long as the calls might have taken."""
        self._heap[:] = [entry for entry in self._heap if entry[2].expired is not None]
        heapify(self._heap)
        self._many = max(_FEW, 2 * len(self._heap))

    def _push(self, row: Deadline) -> None:
        self._count += 1
        heappush(self._heap, (row.at, self._count, row))
