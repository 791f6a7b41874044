"""Chains of thought: the number of thoughts and the branches of each, their owners, and their lifetime.

This module knows no protocol. A chain belongs to a session, or is reached by a handle given to its owner. The thoughts
themselves are not stored, so a chain stays small however long it gets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from trunkline.errors import ToolError

__all__ = ["Line", "Lines", "Thought"]

_MOST_BRANCHES = 1000
_LONGEST_BRANCH = 200
#: Most chains by handle, in total and per owner, and most chains by session.
_MOST = 10_000
_MOST_OF_ONE = 1000
_MOST_SESSIONS = 1024
#: Seconds after which an unused handle expires.
_IDLE = 3600.0


class Thought(Struct, frozen=True):
    """One thought, as given by the caller."""

    text: str
    number: int
    total: int
    more: bool
    revises: int | None = None
    is_revision: bool = False
    branches_from: int | None = None
    branch: str | None = None


class Line(Struct):
    """A chain of thought."""

    owner: object = None
    handle: str | None = None
    used: float = 0.0
    length: int = 0
    #: In order of creation.
    branches: dict[str, None] = field(default_factory=dict)

    def add(self, thought: Thought) -> dict[str, Any]:
        """Add a thought and return the result.

        Raises:
            ToolError: it starts a branch beyond the limits.
        """
        if thought.branches_from and thought.branch and thought.branch not in self.branches:
            if len(thought.branch) > _LONGEST_BRANCH or len(self.branches) >= _MOST_BRANCHES:
                raise ToolError(
                    f"A line of thought has at most {_MOST_BRANCHES} branches, with a branchId of at most "
                    f"{_LONGEST_BRANCH} characters: go on in one of them."
                )
            self.branches[thought.branch] = None
        self.length += 1
        answer: dict[str, Any] = {
            "thoughtNumber": thought.number,
            "totalThoughts": max(thought.total, thought.number),
            "nextThoughtNeeded": thought.more,
            "branches": list(self.branches),
            "thoughtHistoryLength": self.length,
        }
        return answer if self.handle is None else {**answer, "handle": self.handle}


class Lines:
    """All chains of thought of a server."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Start empty; ``now`` returns the seconds of a monotonic clock."""
        self._now = now
        #: Least recently used first.
        self._by_handle: OrderedDict[str, Line] = OrderedDict()
        #: The session is kept with its chain, so that its id cannot be reused by another object.
        self._by_session: OrderedDict[int, tuple[object, Line]] = OrderedDict()

    def of_session(self, session: object) -> Line:
        """Return the chain of a session, created with its first thought."""
        kept, line = self._by_session.pop(id(session), (session, Line()))
        assert kept is session
        while len(self._by_session) >= _MOST_SESSIONS:
            self._by_session.popitem(last=False)
        self._by_session[id(session)] = (session, line)
        return line

    def of_handle(self, handle: str, owner: object) -> Line:
        """Return the chain of a handle.

        Raises:
            ToolError: the owner has no such handle, or it has expired.
        """
        self._forget()
        line = self._by_handle.get(handle)
        if line is None or line.owner != owner:
            raise ToolError(
                "There is no line of thought with this handle; it is forgotten when it was not used for an hour. "
                "Leave the handle out to begin a new line."
            )
        line.used = self._now()
        self._by_handle.move_to_end(handle)
        return line

    def begin(self, owner: object) -> Line:
        """Create a chain with a new handle."""
        import secrets

        self._forget()
        own = [handle for handle, line in self._by_handle.items() if line.owner == owner]
        if len(own) >= _MOST_OF_ONE:
            del self._by_handle[own[0]]
        while len(self._by_handle) >= _MOST:
            self._by_handle.popitem(last=False)
        handle = secrets.token_urlsafe(16)
        line = self._by_handle[handle] = Line(owner, handle, self._now())
        return line

    def _forget(self) -> None:
        oldest = self._now() - _IDLE
        while self._by_handle and next(iter(self._by_handle.values())).used < oldest:
            self._by_handle.popitem(last=False)
