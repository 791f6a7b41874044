"""Calls to the REST API of GitHub: names become quoted paths, refusals become sentences that say what to do.

Reading works without a token as far as the data is public; writing asks for one before anything is sent.
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
    """The API with the token of whoever started the server."""

    def __init__(self, *, token: str | None = None, api_url: str = DEFAULT_URL, seconds: float = 30.0) -> None:
        """Take the token and the address.

        Raises:
            ConfigError: one of them cannot be one.
        """
        self._token = read_token(token, VARIABLE)
        headers = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
        if self._token is not None:
            check_line(api_url, "GitHub")
            headers["authorization"] = f"Bearer {self._token}"
        self.api = Api(api_url, service="GitHub", headers=headers, seconds=seconds)

    # --- asking ------------------------------------------------------------------------------------------------------

    async def read(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Read something; gives the value of the answer."""
        return await self._ask("GET", path, query=query)

    async def find(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Read something that need not be there; gives None if it is not."""
        try:
            return await self.read(path, query)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def write(self, method: str, path: str, body: Any = None) -> Any:
        """Change something; gives the value of the answer.

        Raises:
            ToolError: there is no token to do it with.
        """
        self.need_token()
        return await self._ask(method, path, body=body)

    def need_token(self) -> None:
        """Make sure that there is a token.

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
        """Give the path of something in a repository.

        Raises:
            ToolError: owner or repo is no name.
        """
        return self.api.path("repos", _name(owner, "owner"), _name(repo, "repo"), *rest)

    async def tip(self, owner: str, repo: str, branch: str) -> str:
        """Give the id of the newest commit of a branch; one that only begins with that name is another."""
        place = self.at(owner, repo, "git", "ref", "heads", *check_branch(branch).split("/"))
        return picked(await self.read(place), "object", "sha")

    def branch(self, owner: str, repo: str, branch: str) -> str:
        """Give the path by which a branch is moved."""
        return self.at(owner, repo, "git", "refs", "heads", *check_branch(branch).split("/"))

    def contents(self, owner: str, repo: str, path: str) -> str:
        """Give the path of a file or folder; that of the whole repository for ``""`` or ``/``."""
        return self.at(owner, repo, "contents", *check_path(path))


def picked(value: Any, *names: str) -> str:
    """Give a text inside an answer.

    Raises:
        ApiError: it is not there.
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
    """Give the name of a branch as it was given.

    Raises:
        ToolError: git does not allow it.
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
        raise ToolError(f"{branch!r} is no name of a branch: use letters, digits, '-', '_', '.' and single '/'")
    return branch


def check_path(path: str) -> list[str]:
    """Give the segments of a path in a repository.

    Raises:
        ToolError: it leads elsewhere, or is too long.
    """
    if len(path) > _LONGEST_PATH:
        raise ToolError(f"A path must not be longer than {_LONGEST_PATH} characters")
    inner = path.strip("/")
    segments = inner.split("/") if inner else []
    if any(each in ("", ".", "..") or "\x00" in each for each in segments):
        raise ToolError(f"{path!r} is no path in a repository: write it from the top, without '.', '..' and '//'")
    return segments


def check_file(path: str) -> str:
    """Give the path of a file in a repository, from the top.

    Raises:
        ToolError: it is none.
    """
    segments = check_path(path)
    if not segments or path.endswith("/"):
        raise ToolError(f"{path!r} is no path of a file: write it from the top of the repository, as in src/main.py")
    return "/".join(segments)
