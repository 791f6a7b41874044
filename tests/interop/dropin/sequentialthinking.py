"""The sequential thinking server and the official one: a line of thought with revisions and branches."""

from __future__ import annotations

from typing import Any

from tests.interop.dropin.harness import Call, Script, npm, ours

__all__ = ["SCRIPT"]


def _think(name: str | None = None, **changes: Any) -> Call:
    step = {"thought": "a step", "nextThoughtNeeded": True, "thoughtNumber": 1, "totalThoughts": 3}
    return Call("sequentialthinking", {**step, **changes}, name)


_HANDLE = "A handle keeps steps together where there are no sessions."
_NULL = "Null is taken as left out, as models send it; a choice of types is written as anyOf."
_TRUTHS = ("nextThoughtNeeded", "isRevision", "needsMoreThoughts")
_OPTIONAL = ("isRevision", "revisesThought", "branchFromThought", "branchId", "needsMoreThoughts")

SCRIPT = Script(
    server="sequentialthinking",
    official=npm("sequential-thinking"),
    ours=ours("sequentialthinking"),
    environment={"DISABLE_THOUGHT_LOGGING": "true"},
    steps=(
        _think(),
        _think(thoughtNumber=2),
        _think(thoughtNumber=5),
        _think(thoughtNumber="6", totalThoughts="8"),
        _think(nextThoughtNeeded="FALSE"),
        _think(isRevision=True, revisesThought=1),
        _think(isRevision="true", revisesThought="2"),
        _think(branchFromThought=1, branchId="b"),
        _think(branchFromThought=2, branchId="a"),
        _think(branchFromThought=2, branchId="b"),
        _think(branchId="nowhere"),
        _think(needsMoreThoughts=True),
        _think(thought="", nextThoughtNeeded=False),
        _think("wrong: no truth value", nextThoughtNeeded="yes"),
        _think("wrong: a number as a truth value", nextThoughtNeeded=2),
        _think("wrong: zero", thoughtNumber=0),
        _think("wrong: a fraction", thoughtNumber=1.5),
        _think("wrong: no number", totalThoughts="many"),
        _think("wrong: too large", thoughtNumber=2**60),
        _think("wrong: no text", thought=5),
        Call("sequentialthinking", {}, "wrong: no arguments"),
        Call("sequentialthoughts", {}),
        _think(),
        _think("unknown argument", unknown=1),
        _think("null", isRevision=None, branchId=None),
        _think("one as a truth value", nextThoughtNeeded=1),
    ),
    differences={
        "server:capabilities/logging": "Log messages are sent to clients that ask for them.",
        **{f"tools:*/inputSchema/properties/{name}/type": _NULL for name in _OPTIONAL},
        **{f"tools:*/inputSchema/properties/{name}/anyOf": _NULL for name in _TRUTHS},
        "tools:*/inputSchema/properties/nextThoughtNeeded/type": _NULL,
        "tools:*/inputSchema/properties/handle": _HANDLE,
        "tools:*/outputSchema/properties/handle": _HANDLE,
        "wrong: *:content/0/text": "The words of an error are written anew.",
        "unknown argument:*": "An argument that a tool does not have is an error that names those it has.",
        "null:*": _NULL,
        "one as a truth value:*": "The numbers 0 and 1 are read as false and true, which some models write.",
        "call sequentialthoughts:*": "A tool that does not exist is an error of the protocol, as specified.",
    },
)
