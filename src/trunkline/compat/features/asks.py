"""Results of FastMCP that ask the caller for more before there is a result."""

from __future__ import annotations

from typing import Any

import msgspec

from trunkline.compat.context import current_context
from trunkline.compat.exceptions import McpError
from trunkline.compat.input_required import is_input_required, to_input_required
from trunkline.compat.results import PromptResult, ResourceResult, ToolResult
from trunkline.protocol.revisions import REVISIONS, Feature

__all__ = [
    "InputRequiredPromptResult",
    "InputRequiredResourceResult",
    "InputRequiredToolResult",
    "answer",
    "as_ask",
    "continued",
]


class InputRequiredToolResult(ToolResult):
    """What a tool asks for; it has no content."""

    __slots__ = ("input_required",)

    def __init__(self, input_required: Any) -> None:
        """Initialize with the questions."""
        self.content = []
        self.structured_content = msgspec.UNSET
        self.meta = None
        self.is_error = False
        self.input_required = input_required


class InputRequiredPromptResult(PromptResult):
    """What a prompt asks for; it has no messages."""

    def __init__(self, input_required: Any) -> None:
        """Initialize with the questions."""
        super().__init__([])
        self.input_required = input_required


class InputRequiredResourceResult(ResourceResult):
    """What a resource asks for; it has no contents."""

    def __init__(self, input_required: Any) -> None:
        """Initialize with the questions."""
        super().__init__([])
        self.input_required = input_required


def as_ask(kind: Any, value: Any) -> Any:
    """Return the result of a kind that asks, or None if a value is no question."""
    return kind(value) if is_input_required(value) else None


async def answer(server: Any, exchange: Any, result: Any) -> Any:
    """Return what the caller is asked, or None if a result asks nothing.

    Raises:
        McpError: the revision of the caller has no such results.
    """
    found = getattr(result, "input_required", None)
    if found is None:
        return None
    if Feature.INPUT_REQUIRED not in exchange.admitted.caller.revision.features:
        first = next(each.name for each in REVISIONS if Feature.INPUT_REQUIRED in each.features)
        revision = exchange.admitted.caller.revision.name
        raise McpError(
            code=-32603,
            message=f"InputRequiredResult needs protocol version {first}, and this connection has {revision}: "
            "ask with ctx.elicit() there",
        )
    return await to_input_required(server, exchange, found)


def continued(message: Any) -> Any:
    """Return the params of a call with the answers and the state of the round that it continues."""
    context = current_context()
    if context is not None:
        message.input_responses = context.input_responses
        message.request_state = context.request_state
    return message
