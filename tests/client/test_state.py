"""The lifecycle of a client."""

from __future__ import annotations

import pytest

from trunkline.client.options import TRANSITIONS, ClientState, Lifecycle


def test_a_state_change_is_reported_with_its_reason() -> None:
    told: list[tuple[ClientState, Exception | None]] = []
    life = Lifecycle(lambda state, reason: told.append((state, reason)))
    reason = ValueError("gone")
    life.move(ClientState.CONNECTING)
    life.move(ClientState.FAILED, reason)
    assert told == [(ClientState.CONNECTING, None), (ClientState.FAILED, reason)]
    assert life.reason is reason


@pytest.mark.parametrize(
    "state", [ClientState.INITIALIZED, ClientState.ACTIVE, ClientState.FAILED, ClientState.CREATED]
)
def test_a_move_that_is_not_in_the_table_does_nothing(state: ClientState) -> None:
    life = Lifecycle(None)
    life.move(state)
    assert life.state is ClientState.CREATED


def test_a_callback_that_fails_stops_nothing() -> None:
    def broken(state: ClientState, reason: Exception | None) -> None:
        raise ZeroDivisionError

    life = Lifecycle(broken)
    life.move(ClientState.CONNECTING)
    assert life.state is ClientState.CONNECTING


def test_every_state_but_the_last_can_end() -> None:
    assert {state for state, following in TRANSITIONS.items() if ClientState.TERMINATED not in following} == {
        ClientState.TERMINATED
    }
