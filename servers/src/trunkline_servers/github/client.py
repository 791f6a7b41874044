"""The REST client for GitHub, the arguments of the tools and their validation, and responses as text.

Only selected fields of a response are returned, as text of bounded length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta

from trunkline import ToolError
from trunkline.types import TextContent
from trunkline_servers.api_client import (
    ApiClient,
    ApiError,
    read_token,
    redact_token,
    require_secure_url,
    require_token,
)

__all__ = [
    "CHANGES",
    "COMMENT",
    "COMMIT_OF_FILE",
    "CREATES",
    "DEFAULT_URL",
    "DESTROYS",
    "ENTRY",
    "FILE",
    "FILE_CHANGED",
    "FORK",
    "MOST_CHARACTERS",
    "PULL",
    "READS",
    "REFERENCE",
    "REPOSITORY",
    "REVIEW",
    "SEARCH",
    "STATUS",
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
    "page_note",
    "pull_request_number",
    "select_fields",
    "text_at",
    "to_content",
    "without_none",
]

_SHA = re.compile(r"[0-9a-fA-F]{7,64}")

Owner = Annotated[str, Meta(max_length=100, description="The owner of the repository: a user or an organization")]
Repo = Annotated[str, Meta(max_length=100, description="The name of the repository")]
Branch = Annotated[str, Meta(max_length=255, description="The name of a branch")]
Number = Annotated[int, Meta(ge=1, description="The number of the issue")]
OptionalNumber = Annotated[int | None, Meta(ge=1)]
PullNumber = Annotated[int | None, Meta(ge=1, description="The number of the pull request")]
PrNumber = Annotated[int | None, Meta(ge=1, description="Alternative name of pull_number; give one of the two")]
Page = Annotated[int | None, Meta(ge=1, le=10_000, description="Which page, from 1 on")]
PerPage = Annotated[int | None, Meta(ge=1, le=100, description="How many items on a page, up to 100")]
Query = Annotated[str, Meta(min_length=1, max_length=1_000, description="The search query, in GitHub's syntax")]
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
            self._token, "GitHub accepts changes from authenticated users only", f"{TOKEN_VARIABLE} (or GITHUB_TOKEN)"
        )

    async def _ask(self, method: str, path: str, **more: Any) -> Any:
        try:
            return (await self.api.request(method, path, **more)).json()
        except ApiError as error:
            raise redact_token(error, self._token, self._hint(error)) from None

    def _hint(self, error: ApiError) -> str:
        if error.status == 401 and self._token is None:
            return f". GitHub requires authentication for this: set {TOKEN_VARIABLE} for the server"
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
        raise ApiError("The response of GitHub is not as expected; nothing was changed")
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


FieldSelection = Mapping[str, Any]


def select_fields(value: Any, shape: FieldSelection | None) -> Any:
    """Return a value with only the selected members; a list item by item."""
    if shape is None:
        return value
    if isinstance(value, list):
        return [select_fields(each, shape) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: select_fields(value[name], inner) for name, inner in shape.items() if name in value}


def _fields(names: str, **inner: FieldSelection) -> FieldSelection:
    """Return a selection of names in order; those in ``inner`` have a selection of their own."""
    return MappingProxyType({name: inner.get(name) for name in names.split()})


_PERSON = _fields("login id avatar_url url html_url")
_OWNER = _fields("login id node_id avatar_url url html_url type")
_AUTHOR = _fields("name email date")
_LABEL = _fields("id node_id url name color default description")

REPOSITORY = _fields(
    "id node_id name full_name private owner html_url description fork url created_at updated_at pushed_at git_url "
    "ssh_url clone_url default_branch",
    owner=_OWNER,
)
FORK: FieldSelection = MappingProxyType({**REPOSITORY, "parent": REPOSITORY, "source": REPOSITORY})
SEARCH = _fields("total_count incomplete_results items", items=REPOSITORY)

FILE = _fields(
    "name path sha size url html_url git_url download_url type content encoding _links",
    _links=_fields("self git html"),
)
ENTRY = _fields("type size name path sha url git_url html_url download_url")
_TREE = _fields("sha url")
COMMIT_OF_FILE = _fields(
    "content commit",
    content=FILE,
    commit=_fields(
        "sha node_id url html_url author committer message tree parents",
        author=_AUTHOR,
        committer=_AUTHOR,
        tree=_TREE,
        parents=_fields("sha url html_url"),
    ),
)
REFERENCE = _fields("ref node_id url object", object=_fields("sha type url"))

_SIDE = _fields("label ref sha user repo", user=_PERSON, repo=REPOSITORY)
PULL = _fields(
    "url id node_id html_url diff_url patch_url issue_url number state locked title user body created_at updated_at "
    "closed_at merged_at merge_commit_sha assignee assignees requested_reviewers labels head base",
    user=_PERSON,
    assignee=_PERSON,
    assignees=_PERSON,
    requested_reviewers=_PERSON,
    labels=_LABEL,
    head=_SIDE,
    base=_SIDE,
)
FILE_CHANGED = _fields("sha filename status additions deletions changes blob_url raw_url contents_url patch")
STATUS = _fields(
    "state statuses sha total_count",
    statuses=_fields("url state description target_url context created_at updated_at"),
)
_HREF = _fields("href")
COMMENT = _fields(
    "url id node_id pull_request_review_id diff_hunk path line position original_position commit_id original_commit_id "
    "user body created_at updated_at html_url pull_request_url author_association _links",
    user=_PERSON,
    _links=_fields("self html pull_request", self=_HREF, html=_HREF, pull_request=_HREF),
)
REVIEW = _fields(
    "id node_id user body state html_url pull_request_url commit_id submitted_at author_association", user=_PERSON
)


#: Most characters of one result: more would fill the context of most models.
MOST_CHARACTERS = 400_000
_LONGEST_TEXT = 40_000
_SHORTER_TEXT = 4_000


#: Answers of GitHub nest a dozen levels; the walks over them are recursive, and how deep they may go differs between
#: versions of Python.
_MAX_DEPTH = 200


def _is_deeper_than(value: Any, levels: int) -> bool:
    """Return whether a JSON value is nested deeper than so many levels."""
    layer = [value]
    for _ in range(levels):
        layer = [
            part
            for each in layer
            if isinstance(each, dict | list)
            for part in (each.values() if isinstance(each, dict) else each)
        ]
        if not layer:
            return False
    return True


def to_content(value: Any, shape: FieldSelection | None = None, *, note: str | None = None) -> list[TextContent]:
    """Return the content of a tool result.

    Raises:
        ToolError: it is too large even when shortened, or too deep.
    """
    if _is_deeper_than(value, _MAX_DEPTH):
        raise ToolError("The answer of GitHub is too deeply nested to be shown")
    text, cut = _fit(select_fields(value, shape))
    notes = [each for each in (cut, note) if each]
    return [TextContent(text=text), *(TextContent(text=each) for each in notes)]


def page_note(items: Any, page: int, size: int) -> str | None:
    """Return a note that there may be more, if a page is full."""
    if not isinstance(items, list) or len(items) < size:
        return None
    return f"Note: page {page} is full ({size} items); there may be more on page {page + 1}."


def _fit(value: Any) -> tuple[str, str | None]:
    """Return a value as text, and a note about what was left out."""
    whole = _text(value)
    if len(whole) <= MOST_CHARACTERS:
        return whole, None
    for longest in (_LONGEST_TEXT, _SHORTER_TEXT):
        shorter = _text(_shortened(value, longest))
        if len(shorter) <= MOST_CHARACTERS:
            return shorter, f"Note: texts longer than {longest} characters were cut; each says so at its end."
    value = _shortened(value, _SHORTER_TEXT)
    items = value if isinstance(value, list) else value.get("items") if isinstance(value, dict) else None
    if not isinstance(items, list):
        raise ToolError(f"The answer of GitHub is larger than {MOST_CHARACTERS} characters, even when shortened")
    kept = _first_that_fit(items)
    text = _text(kept if isinstance(value, list) else {**value, "items": kept})
    return (
        text,
        f"Note: only {len(kept)} of {len(items)} items are shown, and long texts are cut; ask for smaller pages.",
    )


def _text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _shortened(value: Any, longest: int) -> Any:
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:longest]}\n[cut: {len(value) - longest} more characters]"
    if isinstance(value, list):
        return [_shortened(each, longest) for each in value]
    if isinstance(value, dict):
        return {name: _shortened(each, longest) for name, each in value.items()}
    return value


def _first_that_fit(items: list[Any]) -> list[Any]:
    kept: list[Any] = []
    # Reserve for brackets, indentation and the members around the list.
    room = MOST_CHARACTERS - 4_000
    for item in items:
        room -= len(_text(item)) + 8 * _text(item).count("\n")
        if room < 0:
            break
        kept.append(item)
    return kept
