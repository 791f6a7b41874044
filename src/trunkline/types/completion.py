"""Completion of an argument of a prompt or a variable of a resource template."""

from __future__ import annotations

from typing import TypeAlias

from trunkline.types.base import RequestParams, Result, Wire

__all__ = [
    "CompleteRequestParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "CompletionReference",
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
