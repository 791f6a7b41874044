"""The drop-in proof of the GitHub server: every tool of the archived one, both over a fresh double of the REST API."""

from __future__ import annotations

import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.interop.dropin.harness import Call, Script, npm, ours

__all__ = ["SCRIPT"]

_BESIDE = [sys.executable, str(Path(__file__).parents[1] / "programs" / "with_double.py"), "github"]
_BUTTON = "src/components/Button.tsx"


def _call(tool: str, **arguments: Any) -> Call:
    return Call(tool, {"owner": "acme", "repo": "project", **arguments})


STEPS = (
    _call("get_pull_request", pull_number=42),
    _call("list_pull_requests", state="open", sort="created", direction="desc", per_page=5, page=1),
    _call("get_pull_request_files", pull_number=42),
    _call("get_pull_request_status", pull_number=42),
    _call("get_issue", issue_number=7),
    _call("list_issues", state="all", labels=["enhancement"]),
    _call("list_commits", sha="button-markup", perPage=2),
    _call("get_file_contents", path="src"),
    _call("get_file_contents", path="README.md", branch="main"),
    Call("search_repositories", {"query": "project"}),
    Call("search_code", {"q": "Buttons"}),
    Call("search_issues", {"q": "bold", "sort": "created", "order": "asc"}),
    Call("search_users", {"q": "acme"}),
    _call("create_issue", title="Focus ring", body="It is gone.", labels=["bug"]),
    _call("update_issue", issue_number=7, state="closed"),
    _call("add_issue_comment", issue_number=7, body="Done."),
    _call("create_branch", branch="feature/a"),
    _call("create_branch", branch="feature/b", from_branch="button-markup"),
    _call("create_or_update_file", path="new.txt", content="grüße", message="Add", branch="feature/a"),
    _call("create_or_update_file", path="new.txt", content="again", message="Change", branch="feature/a"),
    _call("push_files", branch="feature/a", message="Two", files=[{"path": "a", "content": "1"}]),
    _call("create_pull_request", title="Again", head="feature/a", base="main", draft=True),
    _call(
        "create_pull_request_review",
        pull_number=42,
        body="No.",
        event="REQUEST_CHANGES",
        comments=[{"path": _BUTTON, "line": 42, "body": "Here."}],
    ),
    _call("get_pull_request_reviews", pull_number=42),
    _call("get_pull_request_comments", pull_number=42),
    _call("update_pull_request_branch", pull_number=42),
    _call("merge_pull_request", pull_number=42, merge_method="squash"),
    Call("create_repository", {"name": "new", "private": True}),
    _call("fork_repository"),
    # Errors: something that is not there, an argument too few, one of the wrong type.
    _call("get_issue", issue_number=999),
    Call("get_issue", {"owner": "acme", "repo": "project"}),
    _call("get_issue", issue_number="seven"),
    Call("no_such_tool", {}),
)

_BOUNDS = "Numbers are whole, and numbers, texts and lists have bounds; the schema says so."
_ERRORS = "A failure is a result with isError, which the model sees, not an error of the protocol."
_HINTS = "Hints say which tools only read and which overwrite, so that a host can ask before the latter."
_NULL = "An optional argument may also be null."
_NUMBER = (
    "The number of a pull request goes by pull_number or pr_number, so the schema requires neither; one is needed."
)
_PAGES = "Files, comments and reviews come 100 on a page, not 30, and further pages can be asked for."

DIFFERENCES = {
    "server:capabilities/*": "Log messages and changes of the list of tools are announced as possible.",
    "tools:*/annotations": _HINTS,
    "tools:*/maxLength": _BOUNDS,
    "tools:*/minLength": _BOUNDS,
    "tools:*/maxItems": _BOUNDS,
    "tools:*/minItems": _BOUNDS,
    "tools:*/minimum": _BOUNDS,
    "tools:*/maximum": _BOUNDS,
    "tools:*/inputSchema/properties/*/type": f"{_NULL} {_BOUNDS}",
    "tools:*/inputSchema/properties/*/enum/*": _NULL,
    "tools:*/additionalProperties": "An unknown argument is refused, whether or not the schema says so.",
    "tools:*/inputSchema/properties/pr_number": _NUMBER,
    "tools:*_pull_request*/inputSchema/required/*": _NUMBER,
    "tools:get_pull_request_*/inputSchema/properties/page": _PAGES,
    "tools:create_pull_request_review/inputSchema/properties/comments/items/*": (
        "A comment of a review is one object with line or position, not one of two objects; exactly one is needed."
    ),
    "tools:post_review_comment": "One call comments on a line, on a file, or on the whole pull request.",
    "call get_file_contents#2:content/0/text": (
        "encoding is utf-8 where the content is text; what is no text stays in base64 and says so."
    ),
    "call get_pull_request_comments:content/0/text": "A comment on a line says which line.",
    "call get_issue#2:*": _ERRORS,
    "call get_issue#3:*": _ERRORS,
    "call get_issue#4:*": _ERRORS,
    "call no_such_tool:*": "An unknown tool is an error of the protocol, as the specification says.",
}

SCRIPT = Script(
    server="github",
    official=[*_BESIDE, *npm("github")],
    ours=[*_BESIDE, *ours("github")],
    steps=STEPS,
    environment={"GITHUB_PERSONAL_ACCESS_TOKEN": "token-of-the-double"},
    differences=MappingProxyType(DIFFERENCES),
)
