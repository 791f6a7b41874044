"""The types of the tools' arguments, and checks that involve several of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta

from trunkline import ToolError

__all__ = [
    "CHANGES",
    "CREATES",
    "DESTROYS",
    "READS",
    "Body",
    "Branch",
    "Direction",
    "Hints",
    "Number",
    "OptionalBody",
    "OptionalNumber",
    "Owner",
    "Page",
    "PerPage",
    "PrNumber",
    "PullNumber",
    "Query",
    "Repo",
    "Sha",
    "Title",
    "chosen",
    "commit_sha",
    "given",
]

_SHA = re.compile(r"[0-9a-fA-F]{7,64}")

Owner = Annotated[str, Meta(max_length=100, description="Who the repository belongs to: a user or an organization")]
Repo = Annotated[str, Meta(max_length=100, description="The name of the repository")]
Branch = Annotated[str, Meta(max_length=255, description="The name of a branch")]
Number = Annotated[int, Meta(ge=1, description="The number of the issue")]
OptionalNumber = Annotated[int | None, Meta(ge=1)]
PullNumber = Annotated[int | None, Meta(ge=1, description="The number of the pull request")]
PrNumber = Annotated[int | None, Meta(ge=1, description="Another name of pull_number; give one of the two")]
Page = Annotated[int | None, Meta(ge=1, le=10_000, description="Which page, from 1 on")]
PerPage = Annotated[int | None, Meta(ge=1, le=100, description="How many items on a page, up to 100")]
Query = Annotated[str, Meta(min_length=1, max_length=1_000, description="What to look for, in GitHub's search syntax")]
#: The limits of GitHub itself.
Title = Annotated[str, Meta(min_length=1, max_length=1_000)]
Body = Annotated[str, Meta(max_length=65_536, description="The text, in Markdown")]
OptionalBody = Annotated[str | None, Meta(max_length=65_536, description="The text, in Markdown")]
Sha = Annotated[str | None, Meta(max_length=64)]
Direction = Literal["asc", "desc"] | None

Hints = Mapping[str, bool]
READS: Hints = MappingProxyType({"readOnlyHint": True, "openWorldHint": True})
#: Adds something without changing what exists.
CREATES: Hints = MappingProxyType(
    {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": True}
)
#: Replaces something; repeating it has no further effect.
CHANGES: Hints = MappingProxyType(
    {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": True}
)
#: Replaces something on each call.
DESTROYS: Hints = MappingProxyType(
    {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
)


def chosen(pull_number: int | None, pr_number: int | None) -> int:
    """Return the number of the pull request, which has two parameter names.

    Raises:
        ToolError: both or neither was given.
    """
    if pull_number is not None and pr_number is not None:
        raise ToolError("pull_number and pr_number are two names for the same thing: give one of them")
    number = pr_number if pull_number is None else pull_number
    if number is None:
        raise ToolError("pull_number (or pr_number) is missing: the number of the pull request")
    return number


def commit_sha(value: str | None, what: str) -> str | None:
    """Return a commit id if it is valid.

    Raises:
        ToolError: it is not.
    """
    if value is not None and not _SHA.fullmatch(value):
        raise ToolError(f"{what} must be the id of a commit, in hexadecimal digits, not {value!r}")
    return value


def given(**members: Any) -> dict[str, Any]:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}
