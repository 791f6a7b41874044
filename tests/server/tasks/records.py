"""Records of tasks for tests of everything below the wire."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

import trunkline.types as t
from trunkline.protocol.caller import Principal
from trunkline.protocol.channel import Question
from trunkline.protocol.revisions import NEWEST
from trunkline.server.tasks.record import CallerFacts, TaskRecord, owner_of

__all__ = ["RESULT", "make_question", "make_record", "user"]

#: The result of a finished task.
RESULT = Raw(b'{"content":[{"type":"text","text":"done"}]}')


def user(name: str | None) -> Principal | None:
    """Return the principal of a user; None for no name."""
    return None if name is None else Principal(subject=name)


def make_record(id: str = "one", *, owner: str | None = None, **members: Any) -> TaskRecord:
    """Return a new task; the owner is the name of a user."""
    principal = user(owner)
    usual: dict[str, Any] = {
        "owner": owner_of(principal),
        "tool": "work",
        "caller": CallerFacts(NEWEST.name, {}, principal=principal),
        "created": 100.0,
        "updated": 100.0,
        "ttl": 60.0,
        "poll": 1.0,
        "runner": "here",
    }
    return TaskRecord(id=id, **{**usual, **members})


def make_question(text: str = "Really?") -> Question:
    """Return a question to the caller of a task."""
    return Question(t.InputRequest(method="elicitation/create", params=Raw(b'{"message":"%s"}' % text.encode())), text)
