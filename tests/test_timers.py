"""The timekeeper: wakes the sweeper when a row is due, on the loop's clock or on one a test brings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.support import run_async
from trunkline.testing.clock import FakeClock, FakeTimer
from trunkline.timers import LoopClock, Timers


def nothing() -> None:
    """Do nothing."""


class CountedClock(FakeClock):
    """Counts the timers that were asked for."""

    timers = 0

    def call_at(self, when: float, callback: Callable[[], None]) -> FakeTimer:
        """Count, and do what the clock does."""
        self.timers += 1
        return super().call_at(when, callback)


def test_a_deadline_fires_after_its_time() -> None:
    clock, fired = FakeClock(), list[str]()
    Timers(clock).after(5.0, lambda: fired.append("a"))
    clock.advance(4.9)
    assert fired == []
    clock.advance(0.1)
    assert fired == ["a"]


def test_an_earlier_deadline_added_later_fires_first() -> None:
    clock, fired = FakeClock(), list[str]()
    keeper = Timers(clock)
    keeper.after(5.0, lambda: fired.append("late"))
    keeper.after(1.0, lambda: fired.append("soon"))
    clock.advance(1.0)
    assert fired == ["soon"]
    clock.advance(4.0)
    assert fired == ["soon", "late"]


def test_a_cancelled_deadline_does_not_fire() -> None:
    clock, fired = FakeClock(), list[str]()
    Timers(clock).after(1.0, lambda: fired.append("a")).cancel()
    clock.advance(2.0)
    assert fired == []


def test_a_deadline_moved_later_fires_at_its_new_time() -> None:
    clock, fired = FakeClock(), list[str]()
    row = Timers(clock).after(1.0, lambda: fired.append("a"))
    row.at = clock.now() + 3.0
    clock.advance(2.9)
    assert fired == []
    clock.advance(0.1)
    assert fired == ["a"]


def test_a_later_deadline_sets_no_timer() -> None:
    clock = CountedClock()
    keeper = Timers(clock)
    keeper.after(1.0, nothing)
    keeper.after(2.0, nothing)
    assert clock.timers == 1


def test_no_timer_is_set_without_deadlines() -> None:
    clock = CountedClock()
    Timers(clock).after(1.0, nothing)
    clock.advance(100.0)
    assert clock.timers == 1


def test_a_deadline_may_add_another_while_it_fires() -> None:
    clock, fired = FakeClock(), list[str]()
    keeper = Timers(clock)
    keeper.after(5.0, lambda: fired.append("late"))

    def act() -> None:
        keeper.after(9.0, lambda: fired.append("added"))

    keeper.after(1.0, act)
    clock.advance(5.0)
    assert fired == ["late"]
    clock.advance(5.0)
    assert fired == ["late", "added"]


def test_a_failing_callback_does_not_stop_later_deadlines() -> None:
    clock, fired = FakeClock(), list[str]()
    keeper = Timers(clock)
    keeper.after(1.0, lambda: fired.append(str(1 // 0)))
    keeper.after(2.0, lambda: fired.append("b"))
    with pytest.raises(ZeroDivisionError):
        clock.advance(1.0)
    clock.advance(1.0)
    assert fired == ["b"]


def test_closed_timers_call_nothing() -> None:
    clock, fired = FakeClock(), list[str]()
    keeper = Timers(clock)
    keeper.after(1.0, lambda: fired.append("a"))
    keeper.close()
    keeper.close()
    clock.advance(2.0)
    assert fired == []


def test_without_a_clock_the_running_loop_is_used() -> None:
    async def main() -> tuple[bool, bool]:
        loop = asyncio.get_running_loop()
        fired = loop.create_future()
        keeper = Timers()
        before = keeper.clock.now()
        keeper.after(0.0, lambda: fired.set_result(None))
        await fired
        return isinstance(keeper.clock, LoopClock), before <= loop.time()

    assert run_async(main()) == (True, True)
