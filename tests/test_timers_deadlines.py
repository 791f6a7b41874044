"""The deadline queue: callbacks run once, in order, when they are due and not before."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from trunkline.timers import DeadlineQueue


def note(fired: list[str], name: str) -> Callable[[], None]:
    """Return a callback that records its name."""
    return lambda: fired.append(name)


def nothing() -> None:
    """Do nothing."""


def test_an_empty_queue_has_no_next_time() -> None:
    assert DeadlineQueue().next_at() is None


def test_deadlines_fire_in_the_order_they_are_due() -> None:
    fired: list[str] = []
    sweeper = DeadlineQueue()
    sweeper.add(2.0, note(fired, "second"))
    sweeper.add(1.0, note(fired, "first"))
    sweeper.add(2.0, note(fired, "third"))
    sweeper.sweep(2.0)
    assert fired == ["first", "second", "third"]


def test_a_deadline_does_not_fire_before_its_time_and_fires_once() -> None:
    fired: list[str] = []
    sweeper = DeadlineQueue()
    sweeper.add(2.0, note(fired, "a"))
    sweeper.sweep(1.9)
    assert (fired, sweeper.next_at()) == ([], 2.0)
    sweeper.sweep(2.0)
    sweeper.sweep(3.0)
    assert (fired, len(sweeper)) == (["a"], 0)


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
