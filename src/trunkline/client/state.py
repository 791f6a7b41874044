"""The lifecycle of a client, and the callback for its changes.

::

    created ─▶ connecting ─▶ initialized ─▶ active ─▶ terminated
                   │  ▲            │           │
                   ▼  └── next call, or entered again ──┐
                 failed ◀──────────┴───────────┴────────┘

``initialized`` means that a revision was negotiated; in stateless revisions by the answer to ``server/discover``.
No call is sent before ``active``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

__all__ = ["MOVES", "Life", "State", "StateCallback"]

log = logging.getLogger("trunkline")


class State(StrEnum):
    """The states of a client; each equals its name as a string."""

    CREATED = "created"
    CONNECTING = "connecting"
    INITIALIZED = "initialized"
    ACTIVE = "active"
    TERMINATED = "terminated"
    FAILED = "failed"


StateCallback: TypeAlias = Callable[[State, Exception | None], object]

#: By state: the states that may follow it.
MOVES = MappingProxyType(
    {
        State.CREATED: frozenset({State.CONNECTING, State.TERMINATED}),
        State.CONNECTING: frozenset({State.INITIALIZED, State.FAILED, State.TERMINATED}),
        State.INITIALIZED: frozenset({State.ACTIVE, State.FAILED, State.TERMINATED}),
        State.ACTIVE: frozenset({State.FAILED, State.TERMINATED}),
        State.FAILED: frozenset({State.CONNECTING, State.TERMINATED}),
        State.TERMINATED: frozenset({State.CONNECTING}),
    }
)


class Life:
    """The current state of one client, with the reason if it failed."""

    __slots__ = ("_on_state", "reason", "state")

    def __init__(self, on_state: StateCallback | None) -> None:
        """Start in the state ``created``."""
        self.state = State.CREATED
        self.reason: Exception | None = None
        self._on_state = on_state

    def move(self, state: State, reason: Exception | None = None) -> None:
        """Change the state and call the callback; a transition that is not in the table does nothing.

        Several things can end a connection at once (a process dies while it is being closed), and the first one
        decides.
        """
        if state not in MOVES[self.state]:
            return
        self.state = state
        self.reason = reason
        if self._on_state is not None:
            try:
                self._on_state(state, reason)
            except Exception:
                log.exception("a state callback failed (%s)", state)
