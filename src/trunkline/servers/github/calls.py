"""The client of GitHub's REST API: names become quoted paths, and errors become messages that say what to do.

Reading public data works without a token; writing requires one before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trunkline import ToolError
from trunkline.servers.rest import Api, ApiError
from trunkline.servers.tokens import check_line, demanded, read_token, without

__all__ = ["DEFAULT_URL", "VARIABLE", "GitHub", "check_branch", "check_file", "check_path", "picked"]

DEFAULT_URL = "https://api.github.com"
VARIABLE = "GITHUB_PERSONAL_ACCESS_TOKEN"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_BAD_IN_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|//|@\{")
_LONGEST_PATH = 4096


class GitHub:
    """API client with the token of the server's user."""

    def __init__(self, *, token: str | None = None, api_url: str = DEFAULT_URL, seconds: float = 30.0) -> None:
        """Initialize with the token and the base URL.

        Raises:
            ConfigError: one of them is invalid.
        """
        self._token = read_token(token, VARIABLE)
        headers = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
        if self._token is not None:
            check_line(api_url, "GitHub")
            headers["authorization"] = f"Bearer {self._token}"
        self.api = Api(api_url, service="GitHub", headers=headers, seconds=seconds)

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
        demanded(self._token, "GitHub takes changes from signed-in users only", f"{VARIABLE} (or GITHUB_TOKEN)")

    async def _ask(self, method: str, path: str, **more: Any) -> Any:
        try:
            return (await self.api.request(method, path, **more)).json()
        except ApiError as error:
            raise without(error, self._token, self._hint(error)) from None

    def _hint(self, error: ApiError) -> str:
        if error.status == 401 and self._token is None:
            return f". GitHub answers this to signed-in users only: start the server with {VARIABLE} in its environment"
        if error.status == 401:
            return f". The token in {VARIABLE} (or GITHUB_TOKEN) is wrong or has expired"
        if error.retry_after is not None:
            return "" if self._token else f"; with {VARIABLE} set the limit is higher"
        if error.status == 403 and self._token:
            return f". The token in {VARIABLE} (or GITHUB_TOKEN) may lack the permission for this"
        if error.status == 404:
            return (
                ". Check the names; the token may not be allowed to see it"
                if self._token
                else f". Check the names; what is private needs {VARIABLE}"
            )
        return ""

    # --- places ------------------------------------------------------------------------------------------------------

    def at(self, owner: str, repo: str, *rest: str | int) -> str:
        """Return the API path of something in a repository.

        Raises:
            ToolError: owner or repo is not a valid name.
        """
        return self.api.path("repos", _name(owner, "owner"), _name(repo, "repo"), *rest)

    async def tip(self, owner: str, repo: str, branch: str) -> str:
        """Return the id of the newest commit of a branch; the name must match exactly, not as a prefix."""
        place = self.at(owner, repo, "git", "ref", "heads", *check_branch(branch).split("/"))
        return picked(await self.read(place), "object", "sha")

    def branch(self, owner: str, repo: str, branch: str) -> str:
        """Return the API path for updating a branch."""
        return self.at(owner, repo, "git", "refs", "heads", *check_branch(branch).split("/"))

    def contents(self, owner: str, repo: str, path: str) -> str:
        """Return the API path of a file or folder; of the repository root for ``""`` or ``/``."""
        return self.at(owner, repo, "contents", *check_path(path))


def picked(value: Any, *names: str) -> str:
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
