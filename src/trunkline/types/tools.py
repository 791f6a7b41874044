"""Tools that a server offers: their definitions, calls and results."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, field

from trunkline.types.base import CacheableResult, Cursor, Icon, InputResponses, OptionalRaw, RequestParams, Result, Wire
from trunkline.types.content import ContentBlock
from trunkline.types.tasks import TaskMetadata

__all__ = [
    "CallToolRequestParams",
    "CallToolResult",
    "ListToolsResult",
    "Tool",
    "ToolAnnotations",
    "ToolExecution",
]


class ToolAnnotations(Wire, frozen=True, kw_only=True):
    """A server's claims about a tool's effects; hints, not promises."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(Wire, frozen=True, kw_only=True):
    """Whether a tool may, must or must not be called as a task."""

    task_support: Literal["forbidden", "optional", "required"] | None = None


class Tool(Wire, frozen=True, kw_only=True):
    """A tool as a server lists it."""

    name: str
    input_schema: dict[str, Any]
    title: str | None = None
    description: str | None = None
    output_schema: dict[str, Any] | None = None
    annotations: ToolAnnotations | None = None
    execution: ToolExecution | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ListToolsResult(CacheableResult, frozen=True, kw_only=True):
    """One page of a server's tools."""

    tools: list[Tool]
    next_cursor: Cursor | None = None


class CallToolRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``tools/call``; the arguments stay undecoded until the tool's signature is known."""

    name: str
    arguments: OptionalRaw = None
    input_responses: InputResponses | None = None
    request_state: str | None = None
    task: TaskMetadata | None = None


def _no_blocks() -> list[ContentBlock]:
    return []


class CallToolResult(Result, frozen=True, kw_only=True):
    """The result of a tool call; a failure of the tool is a result with ``is_error``; missing content reads as none."""

    content: list[ContentBlock] = field(default_factory=_no_blocks)
    structured_content: Any = UNSET
    is_error: bool | None = None
