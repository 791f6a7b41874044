"""Valid but unusual repositories and names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from servers.tests.git.support import (
    EVERY_TOOL,
    NEEDS_GIT,
    any_server,
    call,
    calls,
    git,
    outcome,
    write,
)

pytestmark = NEEDS_GIT


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A repository without a commit."""
    made = tmp_path / "empty"
    made.mkdir()
    git(made, "init", "--quiet", "--initial-branch=main", "--template=")
    git(made, "config", "user.name", "Ann Example")
    git(made, "config", "user.email", "ann@example.com")
    return made


NAMES = ["-x", "--", "new\nline", "tab\t", " blank ", "[b]*.txt", "Grüße", "\u202e", "\\", '"', "'", ":colon", "a.git"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_is_staged_shown_and_committed(repository: Path, name: str) -> None:
    write(repository / name, "odd\n")
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("git_add", {"files": [f"./{name}"]}),
        ("git_diff_staged", {}),
        ("git_commit", {"message": "odd"}),
        ("git_show", {"revision": "HEAD"}),
        ("git_status", {}),
    ]

    results = [outcome(each) for each in calls(any_server(), repository, wanted)]

    assert [text for failed, text in results if failed] == []
    assert f"+++ b/{name}\n" in results[3][1]
    assert git(repository, "show", "-z", "--name-only", "--format=", "HEAD").strip("\0") == name.lstrip()


def test_a_file_whose_name_is_no_text_is_staged_and_shown(repository: Path) -> None:
    with open(os.fsencode(repository) + b"/odd\xff", "wb") as file:
        file.write(b"odd\xff\n")
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("git_add", {"files": ["."]}),
        ("git_commit", {"message": "odd"}),
        ("git_show", {"revision": "HEAD"}),
        ("git_show", {"revision": "HEAD:"}),
    ]

    results = [outcome(each) for each in calls(any_server(), repository, wanted)]

    assert [text for failed, text in results if failed] == []
    assert "+++ b/odd\ufffd\n@@ -0,0 +1 @@\n+odd\ufffd\n" in results[2][1]
    assert results[3][1] == "a.txt\nodd\ufffd"


def test_a_name_without_a_file_is_reported(repository: Path) -> None:
    names = ["no\nfile", "no\tfile", "no'file", "nö", "no file\n"]
    results = calls(any_server(), repository, [("git_add", {"files": ["a.txt", name]}) for name in names])
    assert [outcome(each) for each in results if "is not a file, or is ignored" not in outcome(each)[1]] == []


EMPTY: list[tuple[str, dict[str, Any], bool, str]] = [
    ("git_status", {}, False, "No commits yet"),
    ("git_diff_unstaged", {}, False, "Unstaged changes:"),
    ("git_diff_staged", {}, False, "Staged changes:"),
    ("git_diff", {"target": "HEAD"}, True, "there is no 'HEAD'"),
    ("git_show", {"revision": "HEAD"}, True, "there is no 'HEAD'"),
    ("git_log", {}, True, "Invalid revision: there is no 'HEAD' in this repository, or it is no commit."),
    ("git_diff_unstaged", {"context_lines": -1}, True, "context_lines must be 0 or more."),
    ("git_branch", {"branch_type": "all"}, False, ""),
    ("git_reset", {}, False, "All staged changes reset"),
    ("git_commit", {"message": "m"}, True, "git_add first"),
    ("git_create_branch", {"branch_name": "new"}, True, "there is no 'HEAD'"),
    ("git_checkout", {"branch_name": "main"}, True, "there is no 'main'"),
    ("git_add", {"files": ["."]}, False, "No changes were staged"),
]


def test_a_repository_without_a_commit_can_be_asked_anything(empty: Path) -> None:
    results = [outcome(each) for each in calls(any_server(), empty, [(tool, given) for tool, given, _, _ in EMPTY])]
    told = [(failed, words in text) for (failed, text), (_, _, _, words) in zip(results, EMPTY, strict=True)]
    assert told == [(failed, True) for _, _, failed, _ in EMPTY]


def test_the_first_commit_can_be_made(empty: Path) -> None:
    write(empty / "a.txt", "a\n")

    results = calls(
        any_server(),
        empty,
        [
            ("git_add", {"files": ["."]}),
            ("git_reset", {}),
            ("git_add", {"files": ["a.txt"]}),
            ("git_commit", {"message": "m"}),
        ],
    )

    assert [outcome(each)[1] for each in results if each.is_error] == []
    assert git(empty, "log", "--format=%s") == "m"


def test_every_tool_works_where_ids_are_longer(tmp_path: Path) -> None:
    long = tmp_path / "long"
    long.mkdir()
    git(long, "init", "--quiet", "--object-format=sha256", "--initial-branch=main", "--template=")
    (long / ".git" / "config").write_text(
        (long / ".git" / "config").read_text() + "[user]\n\tname = A\n\temail = a@b.c\n"
    )
    write(long / "a.txt", "one\n")
    git(long, "add", ".")
    git(long, "commit", "--quiet", "-m", "first")
    write(long / "a.txt", "two\n")

    results = calls(any_server(), long, EVERY_TOOL)

    assert [outcome(each)[1] for each in results if each.is_error] == []
    assert len(outcome(results[5])[1].rpartition(" ")[2]) == 64


def test_every_tool_works_in_a_linked_working_tree(repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "--quiet", "-b", "side", str(linked))
    write(linked / "a.txt", "linked\n")
    wanted = [each for each in EVERY_TOOL if each[0] != "git_checkout"]
    results = [outcome(each) for each in calls(any_server(), linked, wanted)]
    assert [text for failed, text in results if failed] == []
    assert git(linked, "log", "-1", "--format=%s") == "by the server"
    assert git(repository, "log", "-1", "--format=%s") == "first"


def test_a_conflict_is_shown_resolved_and_committed(repository: Path) -> None:
    git(repository, "commit", "--quiet", "-am", "ours")
    git(repository, "checkout", "--quiet", "-b", "side", "HEAD~1")
    write(repository / "a.txt", "one\nTWO\nthree\n")
    git(repository, "commit", "--quiet", "-am", "theirs")
    git(repository, "merge", "--quiet", "main", check=False)

    status = call(repository, "git_status")[1]
    shown = call(repository, "git_diff_unstaged")[1]
    refused = call(repository, "git_commit", message="too early")
    switched = call(repository, "git_checkout", branch_name="main")
    write(repository / "a.txt", "one\nboth\nthree\n")
    added = call(repository, "git_add", files=["a.txt"])
    done = call(repository, "git_commit", message="merged")

    assert ("both modified:   a.txt" in status, shown.startswith("Unstaged changes:\ndiff --cc a.txt")) == (True, True)
    assert (refused[0], switched[0], added, done[0]) == (True, True, (False, "Files staged successfully"), False)
    assert len(git(repository, "log", "-1", "--format=%P").split()) == 2


def test_a_commit_of_a_detached_head_is_made_there(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "--detach")
    git(repository, "add", ".")
    assert call(repository, "git_commit", message="loose")[0] is False
    assert "HEAD detached" in call(repository, "git_status")[1]
    assert git(repository, "log", "-1", "--format=%s", "main") == "first"
    assert call(repository, "git_branch", branch_type="local")[1].startswith("* (HEAD detached from ")
