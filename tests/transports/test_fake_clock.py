"""The fake clock that tests advance by hand."""

from __future__ import annotations

import pytest

from trunkline.testing.clock import FakeClock


def test_the_fake_clock_stands_still_until_advanced() -> None:
    clock = FakeClock(start=5.0)
    clock.advance(2.5)
    assert clock.now() == 7.5


def test_calls_run_in_the_order_they_are_due_each_at_its_time() -> None:
    clock = FakeClock(start=0.0)
    seen: list[float] = []
    clock.call_at(3.0, lambda: seen.append(clock.now()))
    clock.call_at(1.0, lambda: seen.append(clock.now()))
    clock.advance(10.0)
    assert seen == [1.0, 3.0]


def test_a_scheduled_call_does_not_run_early() -> None:
    clock = FakeClock(start=0.0)
    seen: list[float] = []
    clock.call_at(3.0, lambda: seen.append(clock.now()))
    clock.advance(2.0)
    assert seen == []


def test_a_cancelled_scheduled_call_does_not_run() -> None:
    clock = FakeClock(start=0.0)
    seen: list[float] = []
    clock.call_at(1.0, lambda: seen.append(clock.now())).cancel()
    clock.advance(2.0)
    assert seen == []


def test_a_scheduled_call_may_schedule_another() -> None:
    clock = FakeClock(start=0.0)
    seen: list[float] = []

    def ask_again() -> None:
        clock.call_at(2.0, lambda: seen.append(clock.now()))

    clock.call_at(1.0, ask_again)
    clock.advance(5.0)
    assert seen == [2.0]


def test_the_fake_clock_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        FakeClock().advance(-1.0)
