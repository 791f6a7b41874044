"""The REST client for GitHub, the types of the tools' arguments and their validation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta

from trunkline import ToolError
from trunkline_servers.api_client import ApiClient, ApiError
from trunkline_servers.api_tokens import read_token, redact_token, require_secure_url, require_token

__all__ = [
    "CHANGES",
    "CREATES",
    "DEFAULT_URL",
    "DESTROYS",
    "READS",
    "TOKEN_VARIABLE",
    "Body",
    "Branch",
    "Direction",
    "GitHubClient",
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
    "check_branch",
    "check_file",
    "check_path",
    "commit_sha",
    "pull_request_number",
    "text_at",
    "without_none",
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


def pull_request_number(pull_number: int | None, pr_number: int | None) -> int:
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


def without_none(**members: Any) -> dict[str, Any]:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


DEFAULT_URL = "https://api.github.com"
TOKEN_VARIABLE = "GITHUB_PERSONAL_ACCESS_TOKEN"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_BAD_IN_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|//|@\{")
_LONGEST_PATH = 4096


class GitHubClient:
    """API client with the token of the server's user."""

    def __init__(self, *, token: str | None = None, api_url: str = DEFAULT_URL, seconds: float = 30.0) -> None:
        """Initialize with the token and the base URL.

        Raises:
            ConfigError: one of them is invalid.
        """
        self._token = read_token(token, TOKEN_VARIABLE)
        headers = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
        if self._token is not None:
            require_secure_url(api_url, "GitHub")
            headers["authorization"] = f"Bearer {self._token}"
        self.api = ApiClient(api_url, service="GitHub", headers=headers, seconds=seconds)

    # --- asking ------------------------------------------------------------------------------------------------------

    async def read(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Send a GET request and return the decoded response."""
        return await self._ask("GET", path, query=query)

    async def find(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Send a GET request; return None if it is not found."""
        try:
            return await self.read(path, query)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def write(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that changes something and return the decoded response.

        Raises:
            ToolError: there is no token.
        """
        self.need_token()
        return await self._ask(method, path, body=body)

    def need_token(self) -> None:
        """Check that there is a token.

        Raises:
            ToolError: there is none.
        """
        require_token(
            self._token, "GitHub takes changes from signed-in users only", f"{TOKEN_VARIABLE} (or GITHUB_TOKEN)"
        )

    async def _ask(self, method: str, path: str, **more: Any) -> Any:
        try:
            return (await self.api.request(method, path, **more)).json()
        except ApiError as error:
            raise redact_token(error, self._token, self._hint(error)) from None

    def _hint(self, error: ApiError) -> str:
        if error.status == 401 and self._token is None:
            return f". GitHub answers this to signed-in users only: set {TOKEN_VARIABLE} for the server"
        if error.status == 401:
            return f". The token in {TOKEN_VARIABLE} (or GITHUB_TOKEN) is wrong or has expired"
        if error.retry_after is not None:
            return "" if self._token else f"; with {TOKEN_VARIABLE} set the limit is higher"
        if error.status == 403 and self._token:
            return f". The token in {TOKEN_VARIABLE} (or GITHUB_TOKEN) may lack the permission for this"
        if error.status == 404:
            return (
                ". Check the names; the token may not be allowed to see it"
                if self._token
                else f". Check the names; what is private needs {TOKEN_VARIABLE}"
            )
        return ""

    # --- places ------------------------------------------------------------------------------------------------------

    def repository_path(self, owner: str, repo: str, *rest: str | int) -> str:
        """Return the API path of something in a repository.

        Raises:
            ToolError: owner or repo is not a valid name.
        """
        return self.api.path("repos", _name(owner, "owner"), _name(repo, "repo"), *rest)

    async def branch_head(self, owner: str, repo: str, branch: str) -> str:
        """Return the id of the newest commit of a branch; the name must match exactly, not as a prefix."""
        place = self.repository_path(owner, repo, "git", "ref", "heads", *check_branch(branch).split("/"))
        return text_at(await self.read(place), "object", "sha")

    def branch(self, owner: str, repo: str, branch: str) -> str:
        """Return the API path for updating a branch."""
        return self.repository_path(owner, repo, "git", "refs", "heads", *check_branch(branch).split("/"))

    def contents_path(self, owner: str, repo: str, path: str) -> str:
        """Return the API path of a file or folder; of the repository root for ``""`` or ``/``."""
        return self.repository_path(owner, repo, "contents", *check_path(path))


def text_at(value: Any, *names: str) -> str:
    """Return a string inside a response.

    Raises:
        ApiError: it is missing.
    """
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, str) or not value:
        raise ApiError("GitHub answered with something unexpected; nothing was changed")
    return value


def _name(value: str, what: str) -> str:
    if not _NAME.fullmatch(value) or value in (".", ".."):
        raise ToolError(
            f"{what} must be a name as in github.com/owner/repo (letters, digits, '-', '_', '.'), not {value!r}"
        )
    return value


def check_branch(branch: str) -> str:
    """Return a branch name if git allows it.

    Raises:
        ToolError: it does not.
    """
    parts = branch.split("/")
    wrong = (
        not branch
        or len(branch) > 255
        or _BAD_IN_BRANCH.search(branch)
        or branch.startswith(("-", "/"))
        or branch.endswith(("/", "."))
        or any(part.startswith(".") or part.endswith(".lock") for part in parts)
    )
    if wrong:
        raise ToolError(f"{branch!r} is not a branch name: use letters, digits, '-', '_', '.' and single '/'")
    return branch


def check_path(path: str) -> list[str]:
    """Return the segments of a path in a repository.

    Raises:
        ToolError: it is invalid or too long.
    """
    if len(path) > _LONGEST_PATH:
        raise ToolError(f"A path must not be longer than {_LONGEST_PATH} characters")
    inner = path.strip("/")
    segments = inner.split("/") if inner else []
    if any(each in ("", ".", "..") or "\x00" in each for each in segments):
        raise ToolError(f"{path!r} is not a path in a repository: write it from the top, without '.', '..' and '//'")
    return segments


def check_file(path: str) -> str:
    """Return the path of a file, relative to the repository root.

    Raises:
        ToolError: it is not a file path.
    """
    segments = check_path(path)
    if not segments or path.endswith("/"):
        raise ToolError(f"{path!r} is not a file path: write it from the top of the repository, as in src/main.py")
    return "/".join(segments)
