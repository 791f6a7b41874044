"""The tools that read pull requests and open them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trunkline.servers.github.answers import answer, page_note
from trunkline.servers.github.arguments import (
    CREATES,
    READS,
    Direction,
    Hints,
    OptionalBody,
    Owner,
    Page,
    PerPage,
    PrNumber,
    PullNumber,
    Repo,
    Title,
    chosen,
    given,
)
from trunkline.servers.github.calls import GitHub, picked
from trunkline.servers.github.shapes import COMMENT, FILE_CHANGED, PULL, REVIEW, STATUS, Shape
from trunkline.types import TextContent

__all__ = ["HINTS", "Pulls"]

HINTS: tuple[tuple[str, Hints], ...] = (
    ("create_pull_request", CREATES),
    ("get_pull_request", READS),
    ("list_pull_requests", READS),
    ("get_pull_request_files", READS),
    ("get_pull_request_status", READS),
    ("get_pull_request_comments", READS),
    ("get_pull_request_reviews", READS),
)

_ALL = 100

Head = Annotated[str, Meta(max_length=355, description="The branch with the changes; owner:branch if in a fork")]
Base = Annotated[str, Meta(max_length=255, description="The branch that is to take them in")]
OfHead = Annotated[str | None, Meta(max_length=355, description="Only those from this branch, as owner:branch")]
OfBase = Annotated[str | None, Meta(max_length=255, description="Only those into this branch")]


class Pulls:
    """The tools, sharing one API client."""

    def __init__(self, github: GitHub) -> None:
        self._github = github

    async def create_pull_request(
        self,
        owner: Owner,
        repo: Repo,
        title: Title,
        head: Head,
        base: Base,
        body: OptionalBody = None,
        draft: Annotated[bool | None, Meta(description="Whether it is a draft yet")] = None,
        maintainer_can_modify: Annotated[bool | None, Meta(description="Whether maintainers may push to it")] = None,
    ) -> list[TextContent]:
        """Open a pull request."""
        asked = given(
            title=title, body=body, head=head, base=base, draft=draft, maintainer_can_modify=maintainer_can_modify
        )
        return answer(await self._github.write("POST", self._github.at(owner, repo, "pulls"), asked), PULL)

    async def get_pull_request(
        self, owner: Owner, repo: Repo, pull_number: PullNumber = None, pr_number: PrNumber = None
    ) -> list[TextContent]:
        """Show a pull request; get_pull_request_files has its changes."""
        number = chosen(pull_number, pr_number)
        return answer(await self._github.read(self._github.at(owner, repo, "pulls", number)), PULL)

    async def list_pull_requests(
        self,
        owner: Owner,
        repo: Repo,
        state: Literal["open", "closed", "all"] | None = None,
        head: OfHead = None,
        base: OfBase = None,
        sort: Literal["created", "updated", "popularity", "long-running"] | None = None,
        direction: Direction = None,
        per_page: PerPage = None,
        page: Page = None,
    ) -> list[TextContent]:
        """List the pull requests of a repository."""
        asked = given(state=state, head=head, base=base, sort=sort, direction=direction, per_page=per_page, page=page)
        return answer(await self._github.read(self._github.at(owner, repo, "pulls"), asked), PULL)

    async def get_pull_request_files(
        self,
        owner: Owner,
        repo: Repo,
        pull_number: PullNumber = None,
        pr_number: PrNumber = None,
        page: Page = None,
    ) -> list[TextContent]:
        """List the files that a pull request changes, with patches; 100 on a page."""
        number = chosen(pull_number, pr_number)
        return await self._listed(owner, repo, number, "files", page, FILE_CHANGED)

    async def get_pull_request_status(
        self, owner: Owner, repo: Repo, pull_number: PullNumber = None, pr_number: PrNumber = None
    ) -> list[TextContent]:
        """Show how the checks of a pull request's newest commit went."""
        number = chosen(pull_number, pr_number)
        pull = await self._github.read(self._github.at(owner, repo, "pulls", number))
        sha = picked(pull, "head", "sha")
        return answer(await self._github.read(self._github.at(owner, repo, "commits", sha, "status")), STATUS)

    async def get_pull_request_comments(
        self,
        owner: Owner,
        repo: Repo,
        pull_number: PullNumber = None,
        pr_number: PrNumber = None,
        page: Page = None,
    ) -> list[TextContent]:
        """List the comments on lines of a pull request; 100 on a page."""
        number = chosen(pull_number, pr_number)
        return await self._listed(owner, repo, number, "comments", page, COMMENT)

    async def get_pull_request_reviews(
        self,
        owner: Owner,
        repo: Repo,
        pull_number: PullNumber = None,
        pr_number: PrNumber = None,
        page: Page = None,
    ) -> list[TextContent]:
        """List the reviews of a pull request; 100 on a page."""
        number = chosen(pull_number, pr_number)
        return await self._listed(owner, repo, number, "reviews", page, REVIEW)

    async def _listed(
        self, owner: str, repo: str, number: int, what: str, page: int | None, shape: Shape
    ) -> list[TextContent]:
        page = page or 1
        place = self._github.at(owner, repo, "pulls", number, what)
        items = await self._github.read(place, {"per_page": _ALL, "page": page})
        return answer(items, shape, note=page_note(items, page, _ALL))
