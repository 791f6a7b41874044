"""The clock side of deadlines: wakes a Sweeper when its next row is due; one for each Server and each Client.

``protocol.deadlines`` knows rows and no time; this file knows time and no rows. Tests bring a clock of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from trunkline.protocol.deadlines import Deadline, Sweeper

__all__ = ["Clock", "LoopClock", "Timekeeper", "Timer"]


class Timer(Protocol):
    """A call that can be called off."""

    def cancel(self) -> None:
        """Call it off."""


class Clock(Protocol):
    """Where time comes from; tests bring their own."""

    def now(self) -> float:
        """Say what time it is, in seconds that never go back."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Have something called at a time."""


class LoopClock:
    """The system's clock, and the event loop's timers; a loop's own time may stand still during a turn."""

    __slots__ = ("_loop",)

    #: Says what time it is; each call asks, so no function of ours stands in between.
    now = staticmethod(time.monotonic)

    def __init__(self) -> None:
        """Take the running loop."""
        self._loop = asyncio.get_running_loop()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Ask the loop to call."""
        return self._loop.call_later(max(0.0, when - time.monotonic()), callback)


class Timekeeper:
    """Wakes one Sweeper when its next row is due; sleeps while it is empty."""

    __slots__ = ("_sweeper", "_timer", "_timer_at", "clock")

    def __init__(self, clock: Clock | None = None) -> None:
        """Take a clock, or the running loop's."""
        self.clock: Clock = LoopClock() if clock is None else clock
        self._sweeper = Sweeper()
        self._timer: Timer | None = None
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
