"""What a session owns: its budget above all."""

from __future__ import annotations

import pytest

from trunkline.errors import RequestFailed
from trunkline.host.session import CallBudget, HostSession


class Clock:
    """Time that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def used(budget: CallBudget, times: int) -> int:
    """Make calls one after the other; count those that were let through."""
    through = 0
    for _ in range(times):
        try:
            budget.enter()
        except RequestFailed:
            continue
        budget.leave()
        through += 1
    return through


@pytest.mark.parametrize("per_minute", [1, 60, 600])
def test_a_budget_starts_with_a_minutes_worth(per_minute: int) -> None:
    assert used(CallBudget(Clock(), per_minute=per_minute, concurrent=1), 2 * per_minute) == per_minute


@pytest.mark.parametrize(("seconds", "more"), [(0.9, 0), (1.0, 1), (10.5, 10), (3600.0, 60)])
def test_a_budget_grows_with_time_up_to_a_minutes_worth(seconds: float, more: int) -> None:
    clock = Clock()
    budget = CallBudget(clock, per_minute=60, concurrent=1)
    used(budget, 60)
    clock.now += seconds
    assert used(budget, 100) == more


def test_a_refusal_says_in_how_many_seconds_to_try_again() -> None:
    clock = Clock()
    budget = CallBudget(clock, per_minute=6, concurrent=1)
    used(budget, 6)
    with pytest.raises(RequestFailed, match="in 10 s") as refused:
        budget.enter()
    clock.now += refused.value.data["retryAfter"]
    assert used(budget, 5) == 1


def test_calls_at_once_are_counted_until_they_leave() -> None:
    budget = CallBudget(Clock(), per_minute=None, concurrent=2)
    budget.enter()
    budget.enter()
    with pytest.raises(RequestFailed, match="the limit is 2 for each caller"):
        budget.enter()
    budget.leave()
    budget.enter()


def test_a_call_that_is_refused_for_its_number_costs_nothing() -> None:
    budget = CallBudget(Clock(), per_minute=2, concurrent=1)
    budget.enter()
    with pytest.raises(RequestFailed, match="at once"):
        budget.enter()
    budget.leave()
    assert used(budget, 5) == 1


def test_session_ids_cannot_be_guessed() -> None:
    names = {HostSession(now=Clock()).id for _ in range(100)}
    assert len(names) == 100
    assert all(len(name) == 16 for name in names)
