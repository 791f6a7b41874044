"""Timers: deadlines that fire once, in order, on the loop's clock or on one a test brings; waiting with a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.scripted_server import settle
from trunkline.errors import RequestTimeout
from trunkline.testing.clock import FakeClock, FakeTimer
from trunkline.timers import DeadlineQueue, LoopClock, Timers, wait_within


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


async def test_without_a_clock_the_running_loop_is_used() -> None:
    fired = asyncio.get_running_loop().create_future()
    keeper = Timers()
    keeper.after(0.0, lambda: fired.set_result(None))
    await fired
    assert isinstance(keeper.clock, LoopClock)


# --- the queue --------------------------------------------------------------------------------------------------------


def note(fired: list[str], name: str) -> Callable[[], None]:
    """Return a callback that records its name."""
    return lambda: fired.append(name)


def test_a_cancelled_deadline_does_not_fire_and_is_dropped() -> None:
    fired: list[str] = []
    sweeper = DeadlineQueue()
    sweeper.add(1.0, note(fired, "a")).cancel()
    assert (sweeper.next_at(), len(sweeper)) == (None, 0)
    sweeper.sweep(9.0)
    assert fired == []


def test_a_deadline_moved_later_fires_at_its_new_time() -> None:
    fired: list[str] = []
    sweeper = DeadlineQueue()
    row = sweeper.add(1.0, note(fired, "moved"))
    sweeper.add(2.0, note(fired, "other"))
    row.at = 3.0
    assert sweeper.next_at() == 2.0
    sweeper.sweep(2.5)
    assert (fired, sweeper.next_at()) == (["other"], 3.0)
    sweeper.sweep(3.0)
    assert fired == ["other", "moved"]


def test_a_deadline_may_add_and_cancel_others_while_it_fires() -> None:
    fired: list[str] = []
    sweeper = DeadlineQueue()
    doomed = sweeper.add(2.0, note(fired, "doomed"))

    def act() -> None:
        doomed.cancel()
        sweeper.add(1.5, note(fired, "added"))

    sweeper.add(1.0, act)
    sweeper.sweep(2.0)
    assert fired == ["added"]


def test_cancelled_deadlines_do_not_pile_up() -> None:
    sweeper = DeadlineQueue()
    kept = sweeper.add(60.0, nothing)
    assert max(add_and_cancel(sweeper) for _ in range(10_000)) < 2000
    assert (kept.expired, sweeper.next_at()) == (nothing, 60.0)


def add_and_cancel(sweeper: DeadlineQueue) -> int:
    """Add and cancel a deadline as a fast call does; return the number of entries."""
    sweeper.add(60.0, nothing).cancel()
    return len(sweeper)


@given(pattern=st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=20))
def test_dropping_many_cancelled_deadlines_keeps_the_others_in_order(pattern: list[tuple[int, bool]]) -> None:
    fired: list[tuple[int, int]] = []
    sweeper = DeadlineQueue()
    wanted = [
        (at, index) for index, (at, kept) in enumerate((pattern * 1100)[:1100]) if add(sweeper, fired, at, index, kept)
    ]
    sweeper.add(99, nothing)
    sweeper.sweep(50)
    assert fired == sorted(wanted)


def add(sweeper: DeadlineQueue, fired: list[tuple[int, int]], at: int, index: int, kept: bool) -> bool:
    """Add a deadline that records itself; cancel it unless it is to be kept."""
    row = sweeper.add(at, lambda: fired.append((at, index)))
    row.expired = row.expired if kept else None
    return kept


# --- waiting with a bound ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [1.0, None])
async def test_wait_within_returns_the_result(seconds: float | None) -> None:
    assert await wait_within(Timers(FakeClock()), seconds, asyncio.sleep(0, "done")) == "done"


async def test_wait_within_cancels_on_timeout() -> None:
    clock = FakeClock()
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait_within(Timers(clock), 2.0, never))
    await settle()
    clock.advance(2.0)
    with pytest.raises(RequestTimeout, match="2 s"):
        await waiting
    assert never.cancelled()


async def test_cancelling_wait_within_cancels_the_awaited_task() -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait_within(Timers(FakeClock()), 2.0, never))
    await settle()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert never.cancelled()
