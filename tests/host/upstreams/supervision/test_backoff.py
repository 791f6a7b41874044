"""Waits that grow, a breaker that trips, and how often a stream is opened again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.host.upstreams.supervision.start_queue import Backoff, Breaker, Reopening

HOURS = 3600.0


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff()
    waits = [backoff.next(1.0) for _ in range(9)]
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_wait_is_spread_over_its_whole_length() -> None:
    backoff = Backoff()
    assert [backoff.next(0.0), backoff.next(0.5)] == [0.0, 0.25]


def test_a_reset_begins_with_the_first_wait() -> None:
    backoff = Backoff()
    backoff.next(1.0)
    backoff.reset()
    assert backoff.next(1.0) == 0.25


@given(st.lists(st.floats(0, 1), min_size=1, max_size=200))
def test_no_wait_is_longer_than_the_longest(spreads: list[float]) -> None:
    backoff = Backoff()
    assert all(0.0 <= backoff.next(spread) <= 30.0 for spread in spreads)


def test_crashes_within_the_time_trip_the_breaker() -> None:
    breaker = Breaker(3, 60.0)
    assert [breaker.failed(at) for at in (0.0, 30.0, 60.0)] == [False, False, True]


def test_crashes_that_lie_further_apart_do_not() -> None:
    breaker = Breaker(3, 60.0)
    assert [breaker.failed(at) for at in (0.0, 40.0, 80.0, 120.0)] == [False, False, False, False]


def test_a_reset_forgets_the_crashes() -> None:
    breaker = Breaker(2, 60.0)
    breaker.failed(0.0)
    breaker.reset()
    assert breaker.failed(1.0) is False


def test_the_one_start_after_it_tripped_has_to_work() -> None:
    breaker = Breaker(3, 60.0)
    breaker.try_once()
    assert breaker.failed(1000.0) is True


def test_a_trial_that_worked_is_no_trial_any_more() -> None:
    breaker = Breaker(3, 60.0)
    breaker.try_once()
    breaker.reset()
    assert breaker.failed(1000.0) is False


def test_at_least_one_crash_is_needed() -> None:
    assert Breaker(0, 60.0).failed(0.0) is True


def test_a_stream_that_closes_at_once_is_opened_again_three_times() -> None:
    reopening = Reopening()
    assert [reopening.closed(lived=1.0, now=0.0) for _ in range(5)] == [1.0, 2.0, 4.0, 6 * HOURS, 6 * HOURS]


def test_a_stream_that_lived_for_a_while_is_opened_again_five_times_an_hour() -> None:
    reopening = Reopening()
    assert [reopening.closed(lived=60.0, now=at * 60.0) for at in range(6)] == [1.0] * 5 + [6 * HOURS]


def test_a_stream_that_closes_every_quarter_of_an_hour_is_always_opened_again() -> None:
    reopening = Reopening()
    assert {reopening.closed(lived=900.0, now=at * 900.0) for at in range(50)} == {1.0}


@pytest.mark.parametrize("quick", [1, 2, 3], ids=str)
def test_one_that_lived_forgives_those_that_closed_at_once(quick: int) -> None:
    reopening = Reopening()
    assert all(reopening.closed(lived=0.0, now=0.0) < HOURS for _ in range(quick))
    assert reopening.closed(lived=20.0, now=30.0) == 1.0
    assert reopening.closed(lived=0.0, now=31.0) == 1.0
