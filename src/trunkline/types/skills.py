"""Skills of the extension ``io.modelcontextprotocol/skills``: folders with instructions for an agent."""

from __future__ import annotations

from typing import Any, Literal

from trunkline.types.base import CacheableResult, Cursor, PaginatedRequestParams, PaginatedResult, RequestParams, Wire
from trunkline.types.resources import Resource

__all__ = [
    "GetSkillRequestParams",
    "GetSkillResult",
    "ListSkillsResult",
    "ReadResourceDirectoryRequestParams",
    "ReadResourceDirectoryResult",
    "Skill",
    "SkillResource",
]


class SkillResource(Wire, frozen=True, kw_only=True):
    """A file of a skill: its URI, and the digest (``sha256:`` and 64 hex digits) and size of its bytes."""

    uri: str
    digest: str
    size: int


class Skill(Wire, frozen=True, kw_only=True):
    """A skill: the URI of its ``SKILL.md``, that file's frontmatter, and all its files.

    ``resources`` is ``"dynamic"`` if the content is generated, so that no digests can be published.
    """

    uri: str
    frontmatter: dict[str, Any]
    resources: list[SkillResource] | Literal["dynamic"]


class ListSkillsResult(CacheableResult, frozen=True, kw_only=True):
    """One page of a server's skills."""

    skills: list[Skill]
    next_cursor: Cursor | None = None


class GetSkillRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``skills/get``: the URI of a ``SKILL.md``."""

    uri: str


class GetSkillResult(CacheableResult, frozen=True, kw_only=True):
    """One skill."""

    skill: Skill


class ReadResourceDirectoryRequestParams(PaginatedRequestParams, frozen=True, kw_only=True):
    """The params of ``resources/directory/read``: the URI of a directory, without a trailing slash."""

    uri: str


class ReadResourceDirectoryResult(PaginatedResult, frozen=True, kw_only=True):
    """One page of the direct children of a directory."""

    resources: list[Resource]
