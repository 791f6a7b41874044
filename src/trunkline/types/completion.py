"""Completion: proposals for an argument of a prompt or a variable of a resource template."""

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
    """The prompt whose argument is being typed."""

    name: str
    title: str | None = None


class ResourceTemplateReference(Wire, frozen=True, kw_only=True, tag_field="type", tag="ref/resource"):
    """The resource template whose variable is being typed."""

    uri: str


#: What the two oldest revisions call the same thing.
ResourceReference: TypeAlias = ResourceTemplateReference
CompletionReference: TypeAlias = PromptReference | ResourceTemplateReference


class CompletionArgument(Wire, frozen=True, kw_only=True):
    """The argument being typed, and what is there so far."""

    name: str
    value: str


class CompletionContext(Wire, frozen=True, kw_only=True):
    """The arguments that have been filled in before."""

    arguments: dict[str, str] | None = None


class CompleteRequestParams(RequestParams, frozen=True, kw_only=True):
    """A wish for proposals."""

    ref: CompletionReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Wire, frozen=True, kw_only=True):
    """At most a hundred proposals, and how many there are in all."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result, frozen=True, kw_only=True):
    """The proposals."""

    completion: Completion
