"""A clock that stands still until a test moves it: no test waits for time to pass.

It fits wherever the package takes a clock. Calls that were asked for run inside ``advance``, in the order they are
due, each at its own time.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

__all__ = ["FakeClock", "FakeTimer"]


class FakeTimer:
    """A call that waits for its time; it can be called off."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        """Make a timer; ``FakeClock.call_at`` does."""
        self.when = when
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Call it off; nothing will happen."""
        self.callback = None


class FakeClock:
    """Tells the time it was set to."""

    __slots__ = ("_count", "_now", "_timers")

    def __init__(self, start: float = 1000.0) -> None:
        """Begin at a time."""
        self._now = start
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._count = 0

    def now(self) -> float:
        """Say the time, in seconds."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> FakeTimer:
        """Have something called once the clock has reached a time."""
        timer = FakeTimer(when, callback)
        self._count += 1
        heappush(self._timers, (when, self._count, timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Let time pass and run what falls due meanwhile.

        Raises:
            ValueError: time does not go back.
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
