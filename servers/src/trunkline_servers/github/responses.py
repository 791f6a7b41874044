"""Which fields of GitHub's responses are passed on, and how they become text of bounded length."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from trunkline import ToolError
from trunkline.types import TextContent

__all__ = [
    "COMMENT",
    "COMMIT_OF_FILE",
    "ENTRY",
    "FILE",
    "FILE_CHANGED",
    "FORK",
    "MOST_CHARACTERS",
    "PULL",
    "REFERENCE",
    "REPOSITORY",
    "REVIEW",
    "SEARCH",
    "STATUS",
    "page_note",
    "select_fields",
    "to_content",
]

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


def to_content(value: Any, shape: FieldSelection | None = None, *, note: str | None = None) -> list[TextContent]:
    """Return the content of a tool result.

    Raises:
        ToolError: it is too large even when shortened, or too deep.
    """
    try:
        text, cut = _fit(select_fields(value, shape))
    except RecursionError:
        raise ToolError("The answer of GitHub is too deeply nested to be shown") from None
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
