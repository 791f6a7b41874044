"""The sweeper: all deadlines of a Server or a Client as rows, and a clock given from outside.

A row costs a heap push; moving its deadline later costs one assignment, because a row that comes up too early is just
put back. Cancelled rows are forgotten when they come up, or all at once when there are many. Nothing here waits:
whoever drives it asks ``next_at`` and calls ``sweep``.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

__all__ = ["Deadline", "Sweeper"]

# With fewer rows than this, those cancelled are not worth a search.
_FEW = 1024


class Deadline:
    """One row: when it is due and what happens then; ``at`` may be moved later at any time."""

    __slots__ = ("at", "expired")

    def __init__(self, at: float, expired: Callable[[], None] | None) -> None:
        """Make a row; ``Sweeper.add`` does."""
        self.at = at
        self.expired = expired

    def cancel(self) -> None:
        """Take the row away; nothing will happen."""
        self.expired = None


class Sweeper:
    """Keeps deadlines in order and fires those that are due."""

    __slots__ = ("_count", "_heap", "_many")

    def __init__(self) -> None:
        """Start empty."""
        self._heap: list[tuple[float, int, Deadline]] = []
        self._count = 0
        self._many = _FEW

    def add(self, at: float, expired: Callable[[], None]) -> Deadline:
        """Add a row that fires once at a time of the caller's clock."""
        row = Deadline(at, expired)
        if len(self._heap) >= self._many:
            self._forget_cancelled()
        self._push(row)
        return row

    def next_at(self) -> float | None:
        """Say when to sweep next, or None while nothing waits; cancelled rows on top are forgotten."""
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
        """Fire every row that is due."""
        while (at := self.next_at()) is not None and at <= now:
            _, _, row = heappop(self._heap)
            expired, row.expired = row.expired, None
            assert expired is not None
            expired()

    def __len__(self) -> int:
        """Count the rows, those cancelled but not yet forgotten included."""
        return len(self._heap)

    def _forget_cancelled(self) -> None:
        """Keep only live rows: calls answered fast would else pile up for as long as they might have taken."""
        self._heap[:] = [entry for entry in self._heap if entry[2].expired is not None]
        heapify(self._heap)
        self._many = max(_FEW, 2 * len(self._heap))

    def _push(self, row: Deadline) -> None:
        self._count += 1
        heappush(self._heap, (row.at, self._count, row))
