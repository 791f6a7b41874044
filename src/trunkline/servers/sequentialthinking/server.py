"""The sequential thinking server: one tool, with state that belongs to a session or a handle."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from trunkline import Context, Server, ToolError, ToolResult, __version__
from trunkline.servers.sequentialthinking.drawing import draw, show
from trunkline.servers.sequentialthinking.lines import Line, Lines, Thought

__all__ = ["make_server"]

_DESCRIPTION = """Think about a problem in numbered steps, one call for each, where the way is not clear yet.

Say how many steps you expect, and change that number whenever you know better. A step may continue the one before it, \
correct an earlier one (isRevision, revisesThought), or try another way from an earlier one (branchFromThought, \
branchId). Name your doubts and assumptions, state a solution as a hypothesis, and check it against your steps before \
you rely on it. Set nextThoughtNeeded to false only with the step that holds the answer.

If an answer has a handle, give that handle with the next step: it keeps your steps together."""

_LARGEST = 2**53 - 1
_Number = Annotated[int, Meta(ge=1, le=_LARGEST)]


def _output_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "thoughtNumber": {"type": "number"},
            "totalThoughts": {"type": "number"},
            "nextThoughtNeeded": {"type": "boolean"},
            "branches": {"type": "array", "items": {"type": "string"}},
            "thoughtHistoryLength": {"type": "number"},
            "handle": {"type": "string", "description": "Give it with the next step."},
        },
        "required": ["thoughtNumber", "totalThoughts", "nextThoughtNeeded", "branches", "thoughtHistoryLength"],
    }


def make_server(*, show_thoughts: bool | None = None, now: Callable[[], float] = time.monotonic) -> Server:
    """Make the server.

    ``show_thoughts`` draws thoughts on stderr; by default the variable ``DISABLE_THOUGHT_LOGGING`` decides.
    """
    if show_thoughts is None:
        show_thoughts = os.environ.get("DISABLE_THOUGHT_LOGGING", "").lower() != "true"
    server = Server("sequential-thinking-server", title="Sequential Thinking", version=__version__)
    lines = Lines(now)
    hints = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}

    @server.tool(
        title="Sequential Thinking", description=_DESCRIPTION, annotations=hints, output_schema=_output_schema()
    )
    async def sequentialthinking(
        ctx: Context,
        thought: Annotated[str, Meta(description="This step.")],
        nextThoughtNeeded: Annotated[bool | str, Meta(description="Whether another step follows.")],
        thoughtNumber: Annotated[_Number, Meta(description="The number of this step, from 1.")],
        totalThoughts: Annotated[_Number, Meta(description="How many steps you expect in all.")],
        isRevision: Annotated[bool | str, Meta(description="Whether this step corrects another.")] | None = None,
        revisesThought: Annotated[_Number | None, Meta(description="The number of the step it corrects.")] = None,
        branchFromThought: Annotated[_Number | None, Meta(description="The number of the step it starts from.")] = None,
        branchId: Annotated[str | None, Meta(description="A name for the branch.")] = None,
        needsMoreThoughts: Annotated[bool | str, Meta(description="Whether it takes more steps than that.")]
        | None = None,
        handle: Annotated[str | None, Meta(description="The handle of the answer before, if it had one.")] = None,
    ) -> ToolResult:
        _truth("needsMoreThoughts", needsMoreThoughts)
        step = Thought(
            text=thought,
            number=thoughtNumber,
            total=totalThoughts,
            more=_truth("nextThoughtNeeded", nextThoughtNeeded),
            revises=revisesThought,
            is_revision=_truth("isRevision", isRevision),
            branches_from=branchFromThought,
            branch=branchId,
        )
        answer = _line(lines, ctx, handle).add(step)
        if show_thoughts:
            await asyncio.to_thread(show, draw(step))
        return ToolResult(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode(), answer)

    return server


def _line(lines: Lines, ctx: Context, handle: str | None) -> Line:
    """Return the chain of a caller: that of the handle or the session, or a new one."""
    principal = ctx.auth
    owner = None if principal is None else (principal.issuer, principal.subject)
    if handle:
        return lines.of_handle(handle, owner)
    session = ctx.exchange.admitted.caller.session
    return lines.begin(owner) if session is None else lines.of_session(session)


def _truth(name: str, value: bool | str | None) -> bool:
    """Parse a boolean, which models often write as a string.

    Raises:
        ToolError: it is another string.
    """
    match value.lower() if isinstance(value, str) else value:
        case True | "true":
            return True
        case False | None | "false":
            return False
    raise ToolError(f"{name}: expected true or false, got {value!r:.100}.")
