"""Timers: the deadlines of a Server or a Client, run by a clock that tests can replace.

A ``DeadlineQueue`` holds deadlines and knows no time. Adding a deadline costs a heap push; moving it later costs one
assignment, because an entry that is reached too early is pushed again. Cancelled entries are dropped when they are
reached, or all at once when there are many. ``Timers`` adds the clock, and sweeps the queue when the next deadline is
due; each Server and each Client has one. ``wait_within`` awaits something with a timeout by that clock.
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

    __slots__ = ("_compact_at", "_count", "_heap")

    def __init__(self) -> None:
        """Start empty."""
        self._heap: list[tuple[float, int, Deadline]] = []
        self._count = 0
        self._compact_at = _COMPACT_THRESHOLD

    def add(self, at: float, expired: Callable[[], None]) -> Deadline:
        """Add a deadline whose callback is called once, at a time of the caller's clock."""
        deadline = Deadline(at, expired)
        if len(self._heap) >= self._compact_at:
            self._drop_cancelled()
        self._push(deadline)
        return deadline

    def next_at(self) -> float | None:
        """Return when to sweep next, or None if the queue is empty; cancelled entries on top are dropped."""
        heap = self._heap
        while heap:
            at, _, deadline = heap[0]
            if deadline.expired is None:
                heappop(heap)
            elif deadline.at > at:
                heappop(heap)
                self._push(deadline)
            else:
                return at
        return None

    def sweep(self, now: float) -> None:
        """Call every deadline that is due."""
        while (at := self.next_at()) is not None and at <= now:
            _, _, deadline = heappop(self._heap)
            expired, deadline.expired = deadline.expired, None
            assert expired is not None
            expired()

    def __len__(self) -> int:
        """Return the number of entries, including cancelled ones not yet dropped."""
        return len(self._heap)

    def _drop_cancelled(self) -> None:
        """Drop cancelled entries: those of fast calls would pile up for as long as the calls might have taken."""
        self._heap[:] = [entry for entry in self._heap if entry[2].expired is not None]
        heapify(self._heap)
        self._compact_at = max(_COMPACT_THRESHOLD, 2 * len(self._heap))

    def _push(self, deadline: Deadline) -> None:
        self._count += 1
        heappush(self._heap, (deadline.at, self._count, deadline))


class TimerHandle(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the call."""


class Clock(Protocol):
    """A monotonic clock with timers; tests bring their own."""

    def now(self) -> float:
        """Return the time in seconds, which never goes back."""

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Schedule a call at the given time."""


class LoopClock:
    """The system's monotonic clock with the event loop's timers.

    The loop's own time is not used: a loop may cache it for a whole iteration.
    """

    __slots__ = ("_loop",)

    #: The time in seconds. Every request reads it, so it is the system's function without a wrapper.
    now: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self) -> None:
        """Use the running event loop."""
        self._loop = asyncio.get_running_loop()

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Schedule a call on the event loop."""
        return self._loop.call_later(max(0.0, when - time.monotonic()), callback)


class Timers:
    """Calls deadlines when they are due; sets no timer while there are none."""

    __slots__ = ("_queue", "_timer", "_timer_at", "clock")

    def __init__(self, clock: Clock | None = None) -> None:
        """Use the given clock, or that of the running event loop."""
        self.clock: Clock = LoopClock() if clock is None else clock
        self._queue = DeadlineQueue()
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0

    def after(self, seconds: float, expired: Callable[[], None]) -> Deadline:
        """Call ``expired`` after some seconds, unless the returned deadline is cancelled."""
        at = self.clock.now() + seconds
        deadline = self._queue.add(at, expired)
        if self._timer is None or at < self._timer_at:
            self._set(at)
        return deadline

    def close(self) -> None:
        """Cancel the timer."""
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
            self._queue.sweep(self.clock.now())
        finally:
            # A callback that fails must not stop the timer of the others.
            at = self._queue.next_at()
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

    deadline = timers.after(seconds, expire)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise
    finally:
        deadline.cancel()
    if task.cancelled():
        raise RequestTimeout(f"not done after {seconds:g} s", clock="start", seconds=seconds)
    return task.result()
