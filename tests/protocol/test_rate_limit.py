"""Rates with a burst: how they are written, and how events are counted against them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline import ConfigError, RateLimit
from trunkline.protocol.rate_limit import _MOST_KEYS, RateCounts, parse_rate_limit


@pytest.mark.parametrize(
    ("text", "rate", "burst"),
    [("10/s", 10.0, 10), ("90/m", 1.5, 90), ("36/h", 0.01, 36), ("0.5/s", 0.5, 1), ("10/s,burst=50", 10.0, 50)],
)
def test_a_rate_is_written_as_a_number_and_a_unit(text: str, rate: float, burst: int) -> None:
    limit = parse_rate_limit(text)
    assert (limit.per_second, limit.most_at_once) == (rate, burst)


@pytest.mark.parametrize("text", ["", "10", "10/d", "-1/s", "0/s", "1/s,burst=0", "1e9/s", "10/s burst=2", "nan/s"])
def test_anything_else_is_no_rate(text: str) -> None:
    with pytest.raises(ConfigError, match="rate_limit="):
        parse_rate_limit(text)


@pytest.mark.parametrize(("rate", "burst"), [(0.0, 1), (-1.0, 1), (float("inf"), 1), (float("nan"), 1), (1.0, 0)])
def test_a_limit_that_admits_nothing_is_rejected(rate: float, burst: int) -> None:
    with pytest.raises(ConfigError, match="must be positive"):
        RateLimit(per_second=rate, burst=burst)


@pytest.mark.parametrize(("rate", "burst"), [(2.5, 3), (0.1, 1)])
def test_the_usual_burst_is_that_of_one_second(rate: float, burst: int) -> None:
    assert RateLimit(per_second=rate).most_at_once == burst


def admitted(counts: RateCounts, times: list[float], key: str = "ada", cost: int = 1) -> list[bool]:
    """Return which events at these times are admitted, and count those."""
    found = []
    for now in times:
        free = not counts.wait(key, now=now, cost=cost)
        if free:
            counts.count(key, now=now, cost=cost)
        found.append(free)
    return found


def test_a_burst_is_admitted_and_then_one_for_each_interval() -> None:
    counts = RateCounts(RateLimit(per_second=10, burst=3))
    assert admitted(counts, [0, 0, 0, 0, 0.05, 0.1, 0.1, 0.2]) == [True, True, True, False, False, True, False, True]


def test_each_key_is_counted_by_itself() -> None:
    counts = RateCounts(RateLimit(per_second=1, burst=1))
    assert [admitted(counts, [0.0], key) for key in ("ada", "bob", "ada")] == [[True], [True], [False]]


def test_several_events_are_admitted_together_or_not_at_all() -> None:
    counts = RateCounts(RateLimit(per_second=1, burst=5))
    assert admitted(counts, [0, 0, 1, 3], cost=3) == [True, False, True, False]


def test_the_wait_is_the_time_until_the_next_is_admitted() -> None:
    counts = RateCounts(RateLimit(per_second=4, burst=1))
    counts.count("ada", now=10.0)
    assert counts.wait("ada", now=10.1) == pytest.approx(0.15)


def test_the_number_of_remembered_keys_is_bounded() -> None:
    counts = RateCounts(RateLimit(per_second=1, burst=1))
    for number in range(_MOST_KEYS + 10):
        counts.count(f"{number}", now=0.0)
    assert len(counts) == _MOST_KEYS
    assert counts.wait(f"{_MOST_KEYS}", now=0.0)


@given(st.lists(st.floats(0, 100), max_size=200), st.floats(0.1, 20), st.integers(1, 20))
def test_never_more_than_rate_and_burst_allow(times: list[float], rate: float, burst: int) -> None:
    times.sort()
    counts = RateCounts(RateLimit(per_second=rate, burst=burst))
    passed = [now for now, free in zip(times, admitted(counts, times), strict=True) if free]
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            assert last - first + 1 <= burst + rate * (passed[last] - passed[first]) + 1e-6
