"""The fake clock that tests advance by hand."""

from __future__ import annotations

import pytest

from trunkline.testing.clock import FakeClock


def test_calls_run_in_the_order_they_are_due_each_at_its_time() -> None:
    clock = FakeClock(start=0.0)
    seen: list[float] = []

    def note() -> None:
        seen.append(clock.now())

    def schedule_another() -> None:
        clock.call_at(2.0, note)

    clock.call_at(3.0, note)
    clock.call_at(1.0, schedule_another)
    clock.call_at(1.5, note).cancel()
    clock.call_at(11.0, note)
    clock.advance(10.0)
    assert (seen, clock.now()) == ([2.0, 3.0], 10.0)


def test_the_fake_clock_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        FakeClock().advance(-1.0)
