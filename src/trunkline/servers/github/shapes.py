"""Which members of GitHub's responses are passed on: those that the archived official server passes on, in its order.

A selection maps member names to None (passed on as it is) or another selection, which applies to each item of a list.
Members missing in a response are skipped, so a deleted fork or account does not fail the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

__all__ = [
    "COMMENT",
    "COMMIT_OF_FILE",
    "ENTRY",
    "FILE",
    "FILE_CHANGED",
    "FORK",
    "PULL",
    "REFERENCE",
    "REPOSITORY",
    "REVIEW",
    "SEARCH",
    "STATUS",
    "shaped",
]

Shape = Mapping[str, Any]


def shaped(value: Any, shape: Shape | None) -> Any:
    """Return a value with only the selected members; a list item by item."""
    if shape is None:
        return value
    if isinstance(value, list):
        return [shaped(each, shape) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: shaped(value[name], inner) for name, inner in shape.items() if name in value}


def _plain(names: str, **inner: Shape) -> Shape:
    """Return a selection of names in order; those in ``inner`` have a selection of their own."""
    return MappingProxyType({name: inner.get(name) for name in names.split()})


_PERSON = _plain("login id avatar_url url html_url")
_OWNER = _plain("login id node_id avatar_url url html_url type")
_AUTHOR = _plain("name email date")
_LABEL = _plain("id node_id url name color default description")

REPOSITORY = _plain(
    "id node_id name full_name private owner html_url description fork url created_at updated_at pushed_at git_url "
    "ssh_url clone_url default_branch",
    owner=_OWNER,
)
FORK: Shape = MappingProxyType({**REPOSITORY, "parent": REPOSITORY, "source": REPOSITORY})
SEARCH = _plain("total_count incomplete_results items", items=REPOSITORY)

FILE = _plain(
    "name path sha size url html_url git_url download_url type content encoding _links",
    _links=_plain("self git html"),
)
ENTRY = _plain("type size name path sha url git_url html_url download_url")
_TREE = _plain("sha url")
COMMIT_OF_FILE = _plain(
    "content commit",
    content=FILE,
    commit=_plain(
        "sha node_id url html_url author committer message tree parents",
        author=_AUTHOR,
        committer=_AUTHOR,
        tree=_TREE,
        parents=_plain("sha url html_url"),
    ),
)
REFERENCE = _plain("ref node_id url object", object=_plain("sha type url"))

_SIDE = _plain("label ref sha user repo", user=_PERSON, repo=REPOSITORY)
PULL = _plain(
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
FILE_CHANGED = _plain("sha filename status additions deletions changes blob_url raw_url contents_url patch")
STATUS = _plain(
    "state statuses sha total_count",
    statuses=_plain("url state description target_url context created_at updated_at"),
)
_HREF = _plain("href")
COMMENT = _plain(
    "url id node_id pull_request_review_id diff_hunk path line position original_position commit_id original_commit_id "
    "user body created_at updated_at html_url pull_request_url author_association _links",
    user=_PERSON,
    _links=_plain("self html pull_request", self=_HREF, html=_HREF, pull_request=_HREF),
)
REVIEW = _plain(
    "id node_id user body state html_url pull_request_url commit_id submitted_at author_association", user=_PERSON
)
