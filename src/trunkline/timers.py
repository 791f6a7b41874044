"""A queue of deadlines: all those of a Server or a Client, with the time passed in from outside.

Adding a deadline costs a heap push; moving it later costs one assignment, because an entry that comes up too early is
just pushed again. Cancelled entries are dropped when they come up, or all at once when there are many. Nothing here
waits: the driver asks ``next_at`` and calls ``sweep``.

The clock side of deadlines: wakes a Sweeper when its next row is due; one for each Server and each Client.

``protocol.deadlines`` knows rows and no time; this file knows time and no rows. Tests bring a clock of their own.

Bounded waiting, by a clock that tests can replace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from heapq import heapify, heappop, heappush
from typing import Protocol, TypeVar

from trunkline.errors import RequestTimeout

__all__ = ["Clock", "Deadline", "DeadlineQueue", "LoopClock", "TimerHandle", "Timers", "wait_within"]

# With fewer entries than this, the cancelled ones are not worth a search.
_COMPACT_THRESHOLD = 1024


class Deadline:
    """A deadline and its callback; ``at`` may be moved later at any time."""

    __slots__ = ("at", "expired")

    def __init__(self, at: float, expired: Callable[[], None] | None) -> None:
        """Create a deadline; use ``DeadlineQueue.add``."""
        self.at: float = at
        self.expired = expired

    def cancel(self) -> None:
        """Cancel the deadline; its callback will not be called."""
        self.expired = None


class DeadlineQueue:
    """Keeps deadlines in order and calls those that are due."""

    __slots__ = ("_count", "_heap", "_many")

    def __init__(self) -> None:
        """Start empty."""
        self._heap: list[tuple[float, int, Deadline]] = []
        self._count = 0
        self._many = _COMPACT_THRESHOLD

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
        self._many = max(_COMPACT_THRESHOLD, 2 * len(self._heap))

    def _push(self, row: Deadline) -> None:
        self._count += 1
        heappush(self._heap, (row.at, self._count, row))


class TimerHandle(Protocol):
    """A call that can be called off."""

    def cancel(self) -> None:
        """Call it off."""


class Clock(Protocol):
    """Where time comes from; tests bring their own."""

    def now(self) -> float:
        """Say what time it is, in seconds that never go back."""

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Have something called at a time."""


class LoopClock:
    """The system's clock, and the event loop's timers; a loop's own time may stand still during a turn."""

    __slots__ = ("_loop",)

    #: Says what time it is; each call asks, so no function of ours stands in between.
    now: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self) -> None:
        """Take the running loop."""
        self._loop = asyncio.get_running_loop()

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Ask the loop to call."""
        return self._loop.call_later(max(0.0, when - time.monotonic()), callback)


class Timers:
    """Wakes one Sweeper when its next row is due; sleeps while it is empty."""

    __slots__ = ("_sweeper", "_timer", "_timer_at", "clock")

    def __init__(self, clock: Clock | None = None) -> None:
        """Take a clock, or the running loop's."""
        self.clock: Clock = LoopClock() if clock is None else clock
        self._sweeper = DeadlineQueue()
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0

    def after(self, seconds: float, expired: Callable[[], None]) -> Deadline:
        """Have something called after a while, unless the row is cancelled."""
        at = self.clock.now() + seconds
        row = self._sweeper.add(at, expired)
        if self._timer is None or at < self._timer_at:
            self._set(at)
        return row

    def close(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.clock.call_at(at, self._wake)

    def _wake(self) -> None:
        self._timer = None
        try:
            self._sweeper.sweep(self.clock.now())
        finally:
            # A row that fails must not stop the others' clock.
            at = self._sweeper.next_at()
            if at is not None and (self._timer is None or at < self._timer_at):
                self._set(at)


T = TypeVar("T")


async def wait_within(timers: Timers, seconds: float | None, work: Awaitable[T]) -> T:
    """Await something for at most ``seconds``; on timeout or cancellation, cancel it and wait for it to end first.

    Raises:
        RequestTimeout: the time is up.
    """
    if seconds is None:
        return await work
    task = asyncio.ensure_future(work)

    def expire() -> None:
        task.cancel()

    row = timers.after(seconds, expire)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise
    finally:
        row.cancel()
    if task.cancelled():
        raise RequestTimeout(f"not done after {seconds:g} s", clock="start", seconds=seconds)
    return task.result()
