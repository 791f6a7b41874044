"""The lifecycle of a client."""

from __future__ import annotations

import pytest

from trunkline.client.state import MOVES, Life, State


def test_a_move_is_told_with_its_reason() -> None:
    told: list[tuple[State, Exception | None]] = []
    life = Life(lambda state, reason: told.append((state, reason)))
    reason = ValueError("gone")
    life.move(State.CONNECTING)
    life.move(State.FAILED, reason)
    assert told == [(State.CONNECTING, None), (State.FAILED, reason)]
    assert life.reason is reason


@pytest.mark.parametrize("state", [State.INITIALIZED, State.ACTIVE, State.FAILED, State.CREATED])
def test_a_move_that_is_not_in_the_table_does_nothing(state: State) -> None:
    life = Life(None)
    life.move(state)
    assert life.state is State.CREATED


def test_a_callback_that_fails_stops_nothing() -> None:
    def broken(state: State, reason: Exception | None) -> None:
        raise ZeroDivisionError

    life = Life(broken)
    life.move(State.CONNECTING)
    assert life.state is State.CONNECTING


def test_every_state_but_the_last_can_end() -> None:
    assert {state for state, following in MOVES.items() if State.TERMINATED not in following} == {State.TERMINATED}
