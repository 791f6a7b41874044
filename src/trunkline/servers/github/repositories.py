"""The tools for repositories: search, create, fork, branch, list commits."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from trunkline.servers.github.answers import answer
from trunkline.servers.github.arguments import CREATES, READS, Branch, Hints, Owner, Page, PerPage, Query, Repo, given
from trunkline.servers.github.calls import GitHub, check_branch, picked
from trunkline.servers.github.shapes import FORK, REFERENCE, REPOSITORY, SEARCH
from trunkline.types import TextContent

__all__ = ["HINTS", "Repositories"]

HINTS: tuple[tuple[str, Hints], ...] = (
    ("search_repositories", READS),
    ("create_repository", CREATES),
    ("fork_repository", CREATES),
    ("create_branch", CREATES),
    ("list_commits", READS),
)

Organization = Annotated[str | None, Meta(max_length=100, description="The organization to fork to, else your account")]
From = Annotated[str | None, Meta(max_length=255, description="The branch to start at, else the default branch")]
Description = Annotated[str | None, Meta(max_length=350, description="What the repository is about")]


class Repositories:
    """The tools, sharing one API client."""

    def __init__(self, github: GitHub) -> None:
        self._github = github

    async def search_repositories(self, query: Query, page: Page = None, perPage: PerPage = None) -> list[TextContent]:
        """Search repositories by words and qualifiers such as language:python or stars:>100."""
        asked = {"q": query, "page": page or 1, "per_page": perPage or 30}
        return answer(await self._github.read("/search/repositories", asked), SEARCH)

    async def create_repository(
        self,
        name: Annotated[str, Meta(min_length=1, max_length=100, description="The name of the new repository")],
        description: Description = None,
        private: Annotated[bool | None, Meta(description="Whether only invited people see it")] = None,
        autoInit: Annotated[bool | None, Meta(description="Whether it starts with a README.md")] = None,
    ) -> list[TextContent]:
        """Create a repository in the account of the token's owner."""
        body = given(name=name, description=description, private=private, auto_init=autoInit)
        return answer(await self._github.write("POST", "/user/repos", body), REPOSITORY)

    async def fork_repository(self, owner: Owner, repo: Repo, organization: Organization = None) -> list[TextContent]:
        """Fork a repository to your account or to an organization."""
        body = given(organization=organization)
        return answer(await self._github.write("POST", self._github.at(owner, repo, "forks"), body), FORK)

    async def create_branch(
        self, owner: Owner, repo: Repo, branch: Branch, from_branch: From = None
    ) -> list[TextContent]:
        """Create a branch at the tip of another one."""
        github = self._github
        github.need_token()
        name = check_branch(branch)
        if from_branch is None:
            from_branch = picked(await github.read(github.at(owner, repo)), "default_branch")
        body = {"ref": f"refs/heads/{name}", "sha": await github.tip(owner, repo, from_branch)}
        return answer(await github.write("POST", github.at(owner, repo, "git", "refs"), body), REFERENCE)

    async def list_commits(
        self,
        owner: Owner,
        repo: Repo,
        sha: Annotated[str | None, Meta(max_length=255, description="A branch or a commit to start at")] = None,
        page: Page = None,
        perPage: PerPage = None,
    ) -> list[TextContent]:
        """List the commits of a branch, newest first."""
        asked = {"sha": sha, "page": page, "per_page": perPage}
        return answer(await self._github.read(self._github.at(owner, repo, "commits"), asked))
