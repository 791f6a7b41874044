"""A clock that stands still until a test advances it, so that no test waits for time to pass.

It can be passed wherever the package accepts a clock. Scheduled callbacks run inside ``advance``, in the order they are
due, each at its own time.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

__all__ = ["FakeClock", "FakeTimer"]


class FakeTimer:
    """A scheduled callback; it can be cancelled."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        """Create a timer; use ``FakeClock.call_at``."""
        self.when: float = when
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the timer; its callback will not run."""
        self.callback = None


class FakeClock:
    """A clock that shows the time it was set to."""

    __slots__ = ("_count", "_now", "_timers")

    def __init__(self, start: float = 1000.0) -> None:
        """Start at the given time."""
        self._now = start
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._count = 0

    def now(self) -> float:
        """Return the current time in seconds."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> FakeTimer:
        """Schedule a callback for when the clock reaches a time."""
        timer = FakeTimer(when, callback)
        self._count += 1
        heappush(self._timers, (when, self._count, timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Advance the clock and run the callbacks that fall due.

        Raises:
            ValueError: the number of seconds is negative.
        """
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds} seconds")
        until = self._now + seconds
        while self._timers and self._timers[0][0] <= until:
            when, _, timer = heappop(self._timers)
            self._now = max(self._now, when)
            if timer.callback is not None:
                timer.callback()
        self._now = until
