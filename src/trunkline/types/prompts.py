"""Prompts, the templates that a server offers to the user, and completion of arguments and of template variables."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import field

from trunkline.types.base import CacheableResult, Cursor, Icon, InputResponses, RequestParams, Result, Role, Wire
from trunkline.types.content import ContentBlock

__all__ = [
    "CompleteRequestParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "CompletionReference",
    "GetPromptRequestParams",
    "GetPromptResult",
    "ListPromptsResult",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "PromptReference",
    "ResourceReference",
    "ResourceTemplateReference",
]


class PromptReference(Wire, frozen=True, kw_only=True, tag_field="type", tag="ref/prompt"):
    """The prompt whose argument is being completed."""

    name: str
    title: str | None = None


class ResourceTemplateReference(Wire, frozen=True, kw_only=True, tag_field="type", tag="ref/resource"):
    """The resource template whose variable is being completed."""

    uri: str


#: The name of the same type in the two oldest revisions.
ResourceReference: TypeAlias = ResourceTemplateReference
CompletionReference: TypeAlias = PromptReference | ResourceTemplateReference


class CompletionArgument(Wire, frozen=True, kw_only=True):
    """The argument being completed, and its value so far."""

    name: str
    value: str


class CompletionContext(Wire, frozen=True, kw_only=True):
    """The arguments that were filled in before."""

    arguments: dict[str, str] | None = None


class CompleteRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``completion/complete``."""

    ref: CompletionReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Wire, frozen=True, kw_only=True):
    """At most a hundred proposed values, and how many there are in total."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result, frozen=True, kw_only=True):
    """The result of ``completion/complete``."""

    completion: Completion


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
