"""The tools for repositories, files and search."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from trunkline import ToolError
from trunkline.types import TextContent
from trunkline_servers.api_client import ApiError
from trunkline_servers.github.client import (
    COMMIT_OF_FILE,
    CREATES,
    DESTROYS,
    ENTRY,
    FILE,
    FORK,
    READS,
    REFERENCE,
    REPOSITORY,
    SEARCH,
    Branch,
    Direction,
    GitHubClient,
    Hints,
    Owner,
    Page,
    PerPage,
    Query,
    Repo,
    Sha,
    check_branch,
    check_file,
    commit_sha,
    select_fields,
    text_at,
    to_content,
    without_none,
)

__all__ = [
    "FILE_HINTS",
    "MOST_BYTES",
    "MOST_FILES",
    "REPOSITORY_HINTS",
    "SEARCH_HINTS",
    "FileTools",
    "RepositoryTools",
    "SearchTools",
]

REPOSITORY_HINTS: tuple[tuple[str, Hints], ...] = (
    ("search_repositories", READS),
    ("create_repository", CREATES),
    ("fork_repository", CREATES),
    ("create_branch", CREATES),
    ("list_commits", READS),
)

Organization = Annotated[str | None, Meta(max_length=100, description="The organization to fork to, else your account")]
From = Annotated[str | None, Meta(max_length=255, description="The branch to start at, else the default branch")]
Description = Annotated[str | None, Meta(max_length=350, description="What the repository is about")]


class RepositoryTools:
    """The tools, sharing one API client."""

    def __init__(self, github: GitHubClient) -> None:
        self._github = github

    async def search_repositories(self, query: Query, page: Page = None, perPage: PerPage = None) -> list[TextContent]:
        """Search repositories by words and qualifiers such as language:python or stars:>100."""
        asked = {"q": query, "page": page or 1, "per_page": perPage or 30}
        return to_content(await self._github.read("/search/repositories", asked), SEARCH)

    async def create_repository(
        self,
        name: Annotated[str, Meta(min_length=1, max_length=100, description="The name of the new repository")],
        description: Description = None,
        private: Annotated[bool | None, Meta(description="Whether only invited people see it")] = None,
        autoInit: Annotated[bool | None, Meta(description="Whether it starts with a README.md")] = None,
    ) -> list[TextContent]:
        """Create a repository in the account of the token's owner."""
        body = without_none(name=name, description=description, private=private, auto_init=autoInit)
        return to_content(await self._github.write("POST", "/user/repos", body), REPOSITORY)

    async def fork_repository(self, owner: Owner, repo: Repo, organization: Organization = None) -> list[TextContent]:
        """Fork a repository to your account or to an organization."""
        body = without_none(organization=organization)
        return to_content(
            await self._github.write("POST", self._github.repository_path(owner, repo, "forks"), body), FORK
        )

    async def create_branch(
        self, owner: Owner, repo: Repo, branch: Branch, from_branch: From = None
    ) -> list[TextContent]:
        """Create a branch at the tip of another one."""
        github = self._github
        github.need_token()
        name = check_branch(branch)
        if from_branch is None:
            from_branch = text_at(await github.read(github.repository_path(owner, repo)), "default_branch")
        body = {"ref": f"refs/heads/{name}", "sha": await github.branch_head(owner, repo, from_branch)}
        return to_content(
            await github.write("POST", github.repository_path(owner, repo, "git", "refs"), body), REFERENCE
        )

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
        return to_content(await self._github.read(self._github.repository_path(owner, repo, "commits"), asked))


FILE_HINTS: tuple[tuple[str, Hints], ...] = (
    ("create_or_update_file", DESTROYS),
    ("get_file_contents", READS),
    ("push_files", DESTROYS),
)

#: GitHub returns the contents of files up to this size; larger ones are neither read nor written.
MOST_BYTES = 1024 * 1024
MOST_FILES = 200
_MOST_BYTES_PUSHED = 8 * MOST_BYTES

Message = Annotated[str, Meta(min_length=1, max_length=65_536, description="The message of the commit")]
Path = Annotated[str, Meta(description="The path of the file, from the top of the repository")]
OldSha = Annotated[Sha, Meta(description="The id (sha) of the file being replaced; looked up if not given")]


class FileToPush(Struct):
    """A file to be pushed."""

    path: Annotated[str, Meta(description="The path of the file, from the top of the repository")]
    content: Annotated[str, Meta(description="Its whole text")]


class FileTools:
    """The tools, sharing one API client."""

    def __init__(self, github: GitHubClient) -> None:
        self._github = github

    async def create_or_update_file(
        self, owner: Owner, repo: Repo, path: Path, content: str, message: Message, branch: Branch, sha: OldSha = None
    ) -> list[TextContent]:
        """Create or replace one file in a repository, with a commit of its own."""
        github = self._github
        github.need_token()
        check_file(path)
        _check_size(path, content)
        place = github.contents_path(owner, repo, path)
        name = check_branch(branch)
        old = commit_sha(sha, "sha") or await self._sha_of(place, path, name)
        text = b64encode(content.encode()).decode()
        body = without_none(message=message, content=text, branch=name, sha=old)
        return to_content(await github.write("PUT", place, body), COMMIT_OF_FILE)

    async def _sha_of(self, place: str, path: str, branch: str) -> str | None:
        """Return the id of the existing file; None if there is none."""
        there = await self._github.find(place, {"ref": branch})
        if isinstance(there, list):
            raise ToolError(f"{path!r} is a folder in the branch {branch}: give the path of a file")
        return None if there is None else text_at(there, "sha")

    async def get_file_contents(
        self,
        owner: Owner,
        repo: Repo,
        path: Annotated[str, Meta(description="The path of a file or folder; empty for the top")],
        branch: Annotated[str | None, Meta(max_length=255, description="A branch, else the default one")] = None,
    ) -> list[TextContent]:
        """Read a file, or list a folder, of a repository."""
        ref = None if branch is None else check_branch(branch)
        found = await self._github.read(self._github.contents_path(owner, repo, path), {"ref": ref})
        if isinstance(found, list):
            return to_content(found, ENTRY)
        if not isinstance(found, dict):
            raise ApiError("The response of GitHub is not as expected")
        # A file is returned completely or not at all: a truncated one could be written back.
        text = json.dumps(_decoded(select_fields(found, FILE), path), indent=2, ensure_ascii=False)
        return [TextContent(text=text)]

    async def push_files(
        self,
        owner: Owner,
        repo: Repo,
        branch: Branch,
        files: Annotated[list[FileToPush], Meta(min_length=1, max_length=MOST_FILES, description="The files to write")],
        message: Message,
    ) -> list[TextContent]:
        """Write several files to a branch in one commit: all of them or none."""
        github = self._github
        github.need_token()
        entries = _entries(files)
        place = github.branch(owner, repo, branch)
        tip = await github.branch_head(owner, repo, branch)
        body: dict[str, Any] = {"tree": entries, "base_tree": tip}
        tree = await github.write("POST", github.repository_path(owner, repo, "git", "trees"), body)
        body = {"message": message, "tree": text_at(tree, "sha"), "parents": [tip]}
        commit = await github.write("POST", github.repository_path(owner, repo, "git", "commits"), body)
        # So far the branch is unchanged. It is updated atomically, and only if it has not moved meanwhile.
        try:
            moved = await github.write("PATCH", place, {"sha": text_at(commit, "sha"), "force": False})
        except ApiError as error:
            if error.status not in (409, 422):
                raise
            raise ToolError(f"Nothing was pushed: {error}. The branch may have moved meanwhile; try again") from error
        return to_content(moved, REFERENCE)


def _check_size(path: str, content: str) -> int:
    try:
        size = len(content.encode())
    except UnicodeEncodeError:
        raise ToolError(f"The text of {path} is not valid Unicode") from None
    if size > MOST_BYTES:
        raise ToolError(f"The text of {path} has {size} bytes; a file may have up to {MOST_BYTES}")
    return size


def _entries(files: list[FileToPush]) -> list[dict[str, str]]:
    """Return the entries of the new tree after checking all files."""
    paths = [check_file(file.path) for file in files]
    if len(set(paths)) != len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise ToolError(f"{twice} occurs twice in files: give each path once")
    total = sum(_check_size(path, file.content) for path, file in zip(paths, files, strict=True))
    if total > _MOST_BYTES_PUSHED:
        raise ToolError(f"The files have {total} bytes together; one push may have up to {_MOST_BYTES_PUSHED}")
    return [
        {"path": path, "mode": "100644", "type": "blob", "content": file.content}
        for path, file in zip(paths, files, strict=True)
    ]


def _decoded(file: Any, path: str) -> Any:
    """Return a file with its content decoded; binary content stays base64, as ``encoding`` says."""
    size = file.get("size", 0)
    if file.get("type") == "file" and size > MOST_BYTES:
        raise ToolError(f"{path} has {size} bytes; files up to {MOST_BYTES} bytes can be read")
    if file.get("encoding") != "base64":
        return file
    try:
        return {**file, "content": b64decode(file["content"]).decode(), "encoding": "utf-8"}
    except (UnicodeDecodeError, binascii.Error, KeyError):
        return file


SEARCH_HINTS: tuple[tuple[str, Hints], ...] = (
    ("search_code", READS),
    ("search_issues", READS),
    ("search_users", READS),
)

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


class SearchTools:
    """The tools, sharing one API client."""

    def __init__(self, github: GitHubClient) -> None:
        self._github = github

    async def search_code(
        self, q: Query, order: Direction = None, page: Page = None, per_page: PerPage = None
    ) -> list[TextContent]:
        """Search code; qualifiers such as repo:owner/name or extension:py narrow it. GitHub requires a token."""
        asked = without_none(q=q, order=order, page=page, per_page=per_page)
        return to_content(await self._github.read("/search/code", asked))

    async def search_issues(
        self,
        q: Query,
        order: Direction = None,
        page: Page = None,
        per_page: PerPage = None,
        sort: _ByIssues | None = None,
    ) -> list[TextContent]:
        """Search issues and pull requests; qualifiers such as is:open or repo:owner/name narrow it."""
        asked = without_none(q=q, order=order, page=page, per_page=per_page, sort=sort)
        return to_content(await self._github.read("/search/issues", asked))

    async def search_users(
        self,
        q: Query,
        order: Direction = None,
        page: Page = None,
        per_page: PerPage = None,
        sort: Literal["followers", "repositories", "joined"] | None = None,
    ) -> list[TextContent]:
        """Search users and organizations."""
        asked = without_none(q=q, order=order, page=page, per_page=per_page, sort=sort)
        return to_content(await self._github.read("/search/users", asked))
