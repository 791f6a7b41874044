"""The git server and the official one: the same repository on both sides, looked at and worked on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from tests.interop.dropin.harness import Call, Script, ours, pypi

__all__ = ["SCRIPT"]

#: Both commit at the same time, so that even the ids are the same.
_ENVIRONMENT = {
    "GIT_AUTHOR_DATE": "1705312800 +0200",
    "GIT_COMMITTER_DATE": "1705312800 +0200",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def _prepare(folder: Path) -> None:
    repository = folder / "repository"
    repository.mkdir()

    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", *arguments], cwd=repository, env={**os.environ, **_ENVIRONMENT}, check=True, capture_output=True
        )

    git("init", "--quiet", "--initial-branch=main")
    git("config", "user.name", "Ann Example")
    git("config", "user.email", "ann@example.com")
    (repository / "a.txt").write_text("one\ntwo\nthree\n")
    (repository / "long.txt").write_text("".join(f"line {number}\n" for number in range(30)))
    (repository / "folder").mkdir()
    (repository / "folder" / "b.txt").write_text("b\n")
    (repository / "Grüße.txt").write_text("hallo\n", encoding="utf-8")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    git("tag", "-a", "v1", "-m", "one")
    git("mv", "long.txt", "renamed.txt")
    git("rm", "--quiet", "folder/b.txt")
    (repository / "picture.bin").write_bytes(bytes(range(32)))
    (repository / "empty.txt").write_text("")
    (repository / "program").write_text("#!/bin/sh\n")
    git("add", ".")
    git("commit", "--quiet", "-m", "second\n\nwith a body")
    (repository / "program").chmod(0o755)
    git("commit", "--quiet", "-am", "mode")
    (repository / "a.txt").write_text("one\n2\nthree\n")
    (repository / "new.txt").write_text("new\n")
    git("add", "new.txt")


def _call(tool: str, name: str | None = None, **arguments: Any) -> Call:
    return Call(f"git_{tool}", {"repo_path": "{folder}/repository", **arguments}, name)


_WORDS = "The words of an error, and of the news that there was nothing to stage, are written anew."
_LISTS = "Lists may change in any server made with Trunkline, which announces it."
_NONE = "There are no prompts and no resources, so none are announced."
_NULL = "An optional text is declared in one line, and its default, null, is not repeated."
_FALSE = "A result that is no error does not say so: false is the default."
_OWN = "A path inside of .git is refused; the official server takes it for nothing to stage."
_LINES = "A negative number of context lines is refused; git makes a broken patch of it."

SCRIPT = Script(
    server="git",
    official=pypi("mcp-server-git", "--repository", "{folder}/repository"),
    ours=ours("git", "--repository", "{folder}/repository"),
    prepare=_prepare,
    environment=_ENVIRONMENT,
    steps=(
        _call("status"),
        _call("diff_unstaged"),
        _call("diff_unstaged", context_lines=0),
        _call("diff_staged"),
        _call("diff", target="HEAD"),
        _call("diff", target="v1"),
        _call("diff", target="HEAD~2", context_lines=1),
        _call("log"),
        _call("log", max_count=1),
        _call("log", max_count=0),
        _call("log", max_count=-1),
        _call("log", start_timestamp="2024-01-01", end_timestamp="2024-02-01"),
        _call("log", start_timestamp="yesterday"),
        _call("show", revision="HEAD"),
        _call("show", revision="HEAD~1"),
        _call("show", revision="HEAD~2"),
        _call("show", revision="v1"),
        _call("show", revision="HEAD:a.txt"),
        _call("show", revision="v1:"),
        _call("show", revision="v1:folder"),
        _call("branch", branch_type="local"),
        _call("branch", branch_type="remote"),
        _call("branch", branch_type="all", contains="HEAD"),
        _call("create_branch", branch_name="side"),
        _call("create_branch", branch_name="other", base_branch="side"),
        _call("create_branch", branch_name="tagged", base_branch="v1"),
        _call("branch", branch_type="local", not_contains="HEAD"),
        _call("add", files=["a.txt"]),
        _call("add", files=["."]),
        _call("reset"),
        _call("status"),
        _call("add", files=["."]),
        _call("diff_staged"),
        _call("commit", message="third\n\nby the server"),
        _call("log", max_count=2),
        _call("show", revision="HEAD"),
        _call("checkout", branch_name="side"),
        _call("status"),
        _call("checkout", branch_name="v1"),
        _call("status"),
        _call("checkout", branch_name="main"),
        # What goes wrong.
        Call("git_status", {}, "wrong: no arguments"),
        _call("branch", "wrong: no branch_type"),
        Call("git_status", {"repo_path": 3}, "wrong: a number for a path"),
        Call("git_status", {"repo_path": "{folder}"}, "wrong: outside"),
        Call("git_status", {"repo_path": "{folder}/repository/folder"}, "wrong: below the top"),
        Call("git_status", {"repo_path": "{folder}/repository/missing"}, "wrong: missing"),
        _call("commit", "wrong: nothing staged", message="nothing"),
        _call("add", "wrong: no files", files=[]),
        _call("add", "wrong: no such file", files=["missing"]),
        _call("add", "wrong: a file outside", files=["../x"]),
        _call("add", "nothing to stage", files=["."]),
        _call("add", "own folder", files=[".git/config"]),
        _call("diff", "wrong: no such target", target="missing"),
        _call("diff", "wrong: an option", target="--output=x"),
        _call("diff", "wrong: a range", target="side..main"),
        _call("show", "wrong: no such revision", revision="missing"),
        _call("show", "wrong: no such path", revision="HEAD:missing"),
        _call("log", "wrong: an option as a date", start_timestamp="-x"),
        _call("branch", "wrong: no such type", branch_type="x"),
        _call("branch", "wrong: contains nothing", branch_type="all", contains="missing"),
        _call("create_branch", "wrong: twice", branch_name="side"),
        _call("create_branch", "wrong: no name", branch_name="a..b"),
        _call("create_branch", "wrong: no base", branch_name="x", base_branch="missing"),
        _call("checkout", "wrong: no such branch", branch_name="missing"),
        _call("diff_staged", "negative lines", context_lines=-1),
        Call("git_nothing", {}),
    ),
    differences={
        "server:capabilities/tools/listChanged": _LISTS,
        "server:capabilities/logging": "Log messages are sent to clients that ask for them.",
        "server:capabilities/prompts": _NONE,
        "server:capabilities/resources": _NONE,
        "prompts:": _NONE,
        "resource*:": _NONE,
        **{
            f"tools:*/properties/{name}/*": _NULL
            for name in ("start_timestamp", "end_timestamp", "base_branch", "contains", "not_contains")
        },
        "call git_*:isError": _FALSE,
        "nothing to stage:isError": _FALSE,
        "nothing to stage:content/0/text": _WORDS,
        "call git_add#2:content/0/text": _WORDS,
        "wrong: *:content/0/text": _WORDS,
        "own folder:*": _OWN,
        "negative lines:*": _LINES,
    },
)
