"""The sequential thinking server: one tool, with state that belongs to a session or a handle.

A chain of thought belongs to a session, or is reached by a handle given to its owner. The thoughts themselves are not
stored, so a chain stays small however long it gets.

Thoughts are drawn as boxes on stderr, with control characters made visible. Some applications never read the stderr of
a server, so writing must not block on a full pipe.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import textwrap
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from trunkline import Context, Server, ToolResult, __version__
from trunkline.errors import ToolError
from trunkline_servers.untrusted import printable

__all__ = ["Thought", "ThoughtChain", "ThoughtChains", "draw_box", "make_server", "write_to_stderr"]

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


class ThoughtChain(Struct):
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


class ThoughtChains:
    """All chains of thought of a server."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Start empty; ``now`` returns the seconds of a monotonic clock."""
        self._now = now
        #: Least recently used first.
        self._by_handle: OrderedDict[str, ThoughtChain] = OrderedDict()
        #: The session is kept with its chain, so that its id cannot be reused by another object.
        self._by_session: OrderedDict[int, tuple[object, ThoughtChain]] = OrderedDict()

    def for_session(self, session: object) -> ThoughtChain:
        """Return the chain of a session, created with its first thought."""
        kept, line = self._by_session.pop(id(session), (session, ThoughtChain()))
        assert kept is session
        while len(self._by_session) >= _MOST_SESSIONS:
            self._by_session.popitem(last=False)
        self._by_session[id(session)] = (session, line)
        return line

    def for_handle(self, handle: str, owner: object) -> ThoughtChain:
        """Return the chain of a handle.

        Raises:
            ToolError: the owner has no such handle, or it has expired.
        """
        self._forget()
        line = self._by_handle.get(handle)
        if line is None or line.owner != owner:
            raise ToolError(
                "There is no line of thought with this handle; it expires after an hour without use. "
                "Leave the handle out to begin a new line."
            )
        line.used = self._now()
        self._by_handle.move_to_end(handle)
        return line

    def begin(self, owner: object) -> ThoughtChain:
        """Create a chain with a new handle."""
        import secrets

        self._forget()
        own = [handle for handle, line in self._by_handle.items() if line.owner == owner]
        if len(own) >= _MOST_OF_ONE:
            del self._by_handle[own[0]]
        while len(self._by_handle) >= _MOST:
            self._by_handle.popitem(last=False)
        handle = secrets.token_urlsafe(16)
        line = self._by_handle[handle] = ThoughtChain(owner, handle, self._now())
        return line

    def _forget(self) -> None:
        oldest = self._now() - _IDLE
        while self._by_handle and next(iter(self._by_handle.values())).used < oldest:
            self._by_handle.popitem(last=False)


_WIDTH = 100
_MOST_CHARS = 10_000
#: Bytes that a writable pipe accepts at once, and the seconds to wait for a full one.
_PIECE = 4096
_FULL_PIPE_SECONDS = 0.1


def draw_box(thought: Thought) -> str:
    """Return the box of a thought: its kind, number and text."""
    total = max(thought.total, thought.number)
    if thought.is_revision:
        title = f"Revision {thought.number}/{total} (of thought {thought.revises})"
    elif thought.branches_from:
        branch = printable(thought.branch or "", replacement="python")
        title = f"Branch {thought.number}/{total} (from thought {thought.branches_from}, id {branch})"
    else:
        title = f"Thought {thought.number}/{total}"
    text = thought.text if len(thought.text) <= _MOST_CHARS else thought.text[:_MOST_CHARS] + " [...]"
    head = textwrap.wrap(title, _WIDTH)
    lines = [printable(line, replacement="python") for line in text.splitlines()]
    body = [piece for line in lines for piece in textwrap.wrap(line, _WIDTH) or [""]] or [""]
    width = max(len(line) for line in (*head, *body))
    rule = "─" * (width + 2)
    rows = [[f"│ {line.ljust(width)} │" for line in part] for part in (head, body)]
    return "\n".join([f"┌{rule}┐", *rows[0], f"├{rule}┤", *rows[1], f"└{rule}┘"])


def write_to_stderr(box: str) -> None:
    """Write a box to stderr, as far as the pipe accepts it."""
    rest = memoryview(f"{box}\n".encode())
    try:
        descriptor = sys.stderr.fileno()
        sys.stderr.flush()
        while rest and select.select([], [descriptor], [], _FULL_PIPE_SECONDS)[1]:
            rest = rest[os.write(descriptor, rest[:_PIECE]) :]
    except (OSError, ValueError):
        # It is closed, or not a file.
        return


_DESCRIPTION = """Think about a problem in numbered steps, one call for each, where the way is not clear yet.

Say how many steps you expect, and change that number whenever you know better. A step may continue the one before it, \
correct an earlier one (isRevision, revisesThought), or try another way from an earlier one (branchFromThought, \
branchId). Name your doubts and assumptions, state a solution as a hypothesis, and check it against your steps before \
you rely on it. Set nextThoughtNeeded to false only with the step that holds the answer.

If a result has a handle, pass that handle with the next step: it keeps your steps together."""

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
            "handle": {"type": "string", "description": "Pass it with the next step."},
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
    lines = ThoughtChains(now)
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
        handle: Annotated[str | None, Meta(description="The handle of the previous result, if it had one.")] = None,
    ) -> ToolResult:
        _parse_bool("needsMoreThoughts", needsMoreThoughts)
        step = Thought(
            text=thought,
            number=thoughtNumber,
            total=totalThoughts,
            more=_parse_bool("nextThoughtNeeded", nextThoughtNeeded),
            revises=revisesThought,
            is_revision=_parse_bool("isRevision", isRevision),
            branches_from=branchFromThought,
            branch=branchId,
        )
        answer = _chain_for(lines, ctx, handle).add(step)
        if show_thoughts:
            await asyncio.to_thread(write_to_stderr, draw_box(step))
        return ToolResult(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode(), answer)

    return server


def _chain_for(lines: ThoughtChains, ctx: Context, handle: str | None) -> ThoughtChain:
    """Return the chain of a caller: that of the handle or the session, or a new one."""
    principal = ctx.auth
    owner = None if principal is None else (principal.issuer, principal.subject)
    if handle:
        return lines.for_handle(handle, owner)
    session = ctx.exchange.admitted.caller.session
    return lines.begin(owner) if session is None else lines.for_session(session)


def _parse_bool(name: str, value: bool | str | None) -> bool:
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
