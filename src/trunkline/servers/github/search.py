"""The tools that search all of GitHub: code, issues, users."""

from __future__ import annotations

from typing import Literal

from trunkline.servers.github.answers import answer
from trunkline.servers.github.arguments import READS, Direction, Hints, Page, PerPage, Query, given
from trunkline.servers.github.calls import GitHub
from trunkline.types import TextContent

__all__ = ["HINTS", "Search"]

HINTS: tuple[tuple[str, Hints], ...] = (("search_code", READS), ("search_issues", READS), ("search_users", READS))

_ByIssues = Literal[
    "comments",
    "reactions",
    "reactions-+1",
    "reactions--1",
    "reactions-smile",
    "reactions-thinking_face",
    "reactions-heart",
    "reactions-tada",
    "interactions",
    "created",
    "updated",
]


class Search:
    """The tools, sharing one API client."""

    def __init__(self, github: GitHub) -> None:
        self._github = github

    async def search_code(
        self, q: Query, order: Direction = None, page: Page = None, per_page: PerPage = None
    ) -> list[TextContent]:
        """Search code; qualifiers such as repo:owner/name or extension:py narrow it. GitHub wants a token for this."""
        asked = given(q=q, order=order, page=page, per_page=per_page)
        return answer(await self._github.read("/search/code", asked))

    async def search_issues(
        self,
        q: Query,
        order: Direction = None,
        page: Page = None,
        per_page: PerPage = None,
        sort: _ByIssues | None = None,
    ) -> list[TextContent]:
        """Search issues and pull requests; qualifiers such as is:open or repo:owner/name narrow it."""
        asked = given(q=q, order=order, page=page, per_page=per_page, sort=sort)
        return answer(await self._github.read("/search/issues", asked))

    async def search_users(
        self,
        q: Query,
        order: Direction = None,
        page: Page = None,
        per_page: PerPage = None,
        sort: Literal["followers", "repositories", "joined"] | None = None,
    ) -> list[TextContent]:
        """Search users and organizations."""
        asked = given(q=q, order=order, page=page, per_page=per_page, sort=sort)
        return answer(await self._github.read("/search/users", asked))
