"""Prompts: templates that a server offers to the user."""

from __future__ import annotations

from typing import Any

from msgspec import field

from trunkline.types.base import CacheableResult, Cursor, Icon, InputResponses, RequestParams, Result, Role, Wire
from trunkline.types.content import ContentBlock

__all__ = [
    "GetPromptRequestParams",
    "GetPromptResult",
    "ListPromptsResult",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
]


class PromptArgument(Wire, frozen=True, kw_only=True):
    """One argument of a prompt."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class Prompt(Wire, frozen=True, kw_only=True):
    """A prompt as a server lists it."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ListPromptsResult(CacheableResult, frozen=True, kw_only=True):
    """One page of a server's prompts."""

    prompts: list[Prompt]
    next_cursor: Cursor | None = None


class GetPromptRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``prompts/get``: a prompt and its arguments."""

    name: str
    arguments: dict[str, str] | None = None
    input_responses: InputResponses | None = None
    request_state: str | None = None


class PromptMessage(Wire, frozen=True, kw_only=True):
    """One message of a rendered prompt."""

    role: Role
    content: ContentBlock


class GetPromptResult(Result, frozen=True, kw_only=True):
    """A rendered prompt."""

    messages: list[PromptMessage]
    description: str | None = None
