"""Real repositories for the tests of the git server, and a function that calls it."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from servers.tests.over_http import texts
from tests.support import run_async
from trunkline import Client, Server
from trunkline.client.tool_cache import CallResult
from trunkline_servers.git import make_server

__all__ = [
    "EVERY_TOOL",
    "NEEDS_GIT",
    "any_server",
    "call",
    "calls",
    "git",
    "make_repository",
    "outcome",
    "refused",
    "write",
]

NEEDS_GIT = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git on this machine")

#: What the tests' own git sees: an author, a fixed time, and no user configuration.
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": os.devnull,
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "Ann Example",
    "GIT_AUTHOR_EMAIL": "ann@example.com",
    "GIT_AUTHOR_DATE": "2024-01-15T12:00:00+02:00",
    "GIT_COMMITTER_NAME": "Ann Example",
    "GIT_COMMITTER_EMAIL": "ann@example.com",
    "GIT_COMMITTER_DATE": "2024-01-15T12:00:00+02:00",
}

#: A call of each tool, in an order in which all of them have something to do.
EVERY_TOOL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("git_status", {}),
    ("git_diff_unstaged", {}),
    ("git_diff", {"target": "HEAD"}),
    ("git_add", {"files": ["."]}),
    ("git_diff_staged", {}),
    ("git_commit", {"message": "by the server"}),
    ("git_log", {}),
    ("git_show", {"revision": "HEAD"}),
    ("git_create_branch", {"branch_name": "made"}),
    ("git_branch", {"branch_type": "all", "contains": "HEAD"}),
    ("git_checkout", {"branch_name": "HEAD~1"}),
    ("git_reset", {}),
)


def git(repository: Path, *arguments: str, check: bool = True) -> str:
    """Run git as a person would, in a repository."""
    done = subprocess.run(
        ["git", *arguments], cwd=repository, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


def write(path: Path, text: str, *, runs: bool = False) -> Path:
    """Write a file, which may be a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755 if runs else 0o644)
    return path


@cache
def _template() -> Path:
    """Make the repository of which all others are copies, once."""
    path = Path(mkdtemp(prefix="trunkline-git-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    git(path, "init", "--quiet", "--initial-branch=main", "--template=")
    git(path, "config", "user.name", "Ann Example")
    git(path, "config", "user.email", "ann@example.com")
    write(path / "a.txt", "one\ntwo\nthree\n")
    git(path, "add", "a.txt")
    git(path, "commit", "--quiet", "-m", "first")
    write(path / "a.txt", "one\n2\nthree\n")
    return path


def make_repository(path: Path) -> Path:
    """Make a repository with one commit of ``a.txt``, and a change in it that is not staged."""
    shutil.copytree(_template(), path)
    return path


def calls(
    server: Server, repository: Path, wanted: Sequence[tuple[str, dict[str, Any]]], **options: Any
) -> list[CallResult]:
    """Call tools one after the other, in one connection; a tool's failure is an answer."""

    async def scene() -> list[CallResult]:
        async with Client(server, **options) as client:
            return [
                await client.call_tool(tool, {"repo_path": str(repository), **arguments}, raise_on_error=False)
                for tool, arguments in wanted
            ]

    return run_async(scene())


def outcome(result: CallResult) -> tuple[bool, str]:
    """Return whether a call failed, and its text."""
    (text,) = texts(result)
    return result.is_error, text


@cache
def any_server() -> Server:
    """Return a shared server that allows every repository."""
    return make_server(any_repository=True)


def refused(repository: Path, tool: str, **arguments: Any) -> str:
    """Call one tool that must refuse, and return its reason."""
    failed, text = call(repository, tool, **arguments)
    assert failed
    return text


def call(repository: Path, tool: str, **arguments: Any) -> tuple[bool, str]:
    """Call one tool of a server that may work on every repository."""
    (result,) = calls(any_server(), repository, [(tool, arguments)])
    return outcome(result)
