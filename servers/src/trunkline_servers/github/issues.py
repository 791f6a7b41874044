"""The tools for issues."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trunkline.types import TextContent
from trunkline_servers.github.client import (
    CHANGES,
    CREATES,
    READS,
    Body,
    Direction,
    GitHubClient,
    Hints,
    Number,
    OptionalBody,
    OptionalNumber,
    Owner,
    Page,
    PerPage,
    Repo,
    Title,
    without_none,
)
from trunkline_servers.github.responses import to_content

__all__ = ["ISSUE_HINTS", "IssueTools"]

ISSUE_HINTS: tuple[tuple[str, Hints], ...] = (
    ("create_issue", CREATES),
    ("list_issues", READS),
    ("update_issue", CHANGES),
    ("add_issue_comment", CREATES),
    ("get_issue", READS),
)

_Short = Annotated[str, Meta(min_length=1, max_length=100)]
Labels = Annotated[list[_Short] | None, Meta(max_length=100, description="Names of labels")]
Assignees = Annotated[list[_Short] | None, Meta(max_length=10, description="Logins of the people to assign")]
Since = Annotated[str | None, Meta(max_length=40, description="Changed since this time, such as 2026-01-31T00:00:00Z")]


class IssueTools:
    """The tools, sharing one API client."""

    def __init__(self, github: GitHubClient) -> None:
        self._github = github

    async def create_issue(
        self,
        owner: Owner,
        repo: Repo,
        title: Title,
        body: OptionalBody = None,
        assignees: Assignees = None,
        milestone: OptionalNumber = None,
        labels: Labels = None,
    ) -> list[TextContent]:
        """Open an issue."""
        asked = without_none(title=title, body=body, assignees=assignees, milestone=milestone, labels=labels)
        return to_content(await self._github.write("POST", self._github.repository_path(owner, repo, "issues"), asked))

    async def list_issues(
        self,
        owner: Owner,
        repo: Repo,
        direction: Direction = None,
        labels: Labels = None,
        page: Page = None,
        per_page: PerPage = None,
        since: Since = None,
        sort: Literal["created", "updated", "comments"] | None = None,
        state: Literal["open", "closed", "all"] | None = None,
    ) -> list[TextContent]:
        """List the issues of a repository; pull requests are among them."""
        asked = without_none(direction=direction, page=page, per_page=per_page, since=since, sort=sort, state=state)
        if labels:
            asked["labels"] = ",".join(labels)
        return to_content(await self._github.read(self._github.repository_path(owner, repo, "issues"), asked))

    async def update_issue(
        self,
        owner: Owner,
        repo: Repo,
        issue_number: Number,
        title: Annotated[str | None, Meta(min_length=1, max_length=1_000)] = None,
        body: OptionalBody = None,
        assignees: Assignees = None,
        milestone: OptionalNumber = None,
        labels: Labels = None,
        state: Literal["open", "closed"] | None = None,
    ) -> list[TextContent]:
        """Change an issue: what is given replaces what was there."""
        asked = without_none(
            title=title, body=body, assignees=assignees, milestone=milestone, labels=labels, state=state
        )
        return to_content(
            await self._github.write("PATCH", self._github.repository_path(owner, repo, "issues", issue_number), asked)
        )

    async def add_issue_comment(self, owner: Owner, repo: Repo, issue_number: Number, body: Body) -> list[TextContent]:
        """Comment on an issue or a pull request."""
        place = self._github.repository_path(owner, repo, "issues", issue_number, "comments")
        return to_content(await self._github.write("POST", place, {"body": body}))

    async def get_issue(self, owner: Owner, repo: Repo, issue_number: Number) -> list[TextContent]:
        """Show an issue."""
        return to_content(await self._github.read(self._github.repository_path(owner, repo, "issues", issue_number)))
