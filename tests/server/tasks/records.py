"""Records of tasks for tests of everything below the wire."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

import trunkline.types as t
from trunkline.protocol.channel import Question
from trunkline.protocol.revisions import NEWEST
from trunkline.server.tasks.record import CallerFacts, TaskRecord

__all__ = ["RESULT", "make_question", "make_record"]

#: The result of a finished task.
RESULT = Raw(b'{"content":[{"type":"text","text":"done"}]}')


def make_record(id: str = "one", **members: Any) -> TaskRecord:
    """Return a new task."""
    usual: dict[str, Any] = {
        "owner": None,
        "tool": "work",
        "caller": CallerFacts(NEWEST.name, {}),
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
