"""The servers of the fleet: how each is started, and harmless calls that work without a network.

In commands, variables and arguments ``{env}`` stands for the folder its packages are installed in and ``{work}`` for a
folder that is made anew before each look, with a text file, a Git repository and a database in it.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from tests.fleet.install import folder_of
from tests.fleet.packages import ENVIRONMENTS, NPM

__all__ = ["SERVERS", "Call", "PublicServer", "fill_in", "lay_out"]


class Call(NamedTuple):
    """One request that is compared: a tool that is called, a prompt that is rendered or a resource that is read."""

    kind: str
    name: str
    arguments: dict[str, Any] = {}
    #: Patterns of what differs from call to call, such as a time.
    mask: tuple[str, ...] = ()


class PublicServer(NamedTuple):
    """A public server, and what is asked of it."""

    name: str
    #: The environment it is installed in; its package and version are there.
    environment: str
    #: The program inside the environment, and its arguments.
    command: tuple[str, ...]
    calls: tuple[Call, ...] = ()
    env: dict[str, str] = {}
    #: Little enough to be started many times at once.
    small: bool = False

    @property
    def package(self) -> str:
        """The package with its version."""
        found = ENVIRONMENTS[self.environment]
        alone = [each for each in found.packages if each.rpartition("@")[0].endswith(f"server-{self.name}")]
        return alone[0] if alone else found.subject


def fill_in(value: Any, server: PublicServer, work: Path) -> Any:
    """Return a command, variables or arguments with the folders filled in."""
    if isinstance(value, str):
        return value.replace("{env}", str(folder_of(ENVIRONMENTS[server.environment]))).replace("{work}", str(work))
    if isinstance(value, dict):
        return {name: fill_in(each, server, work) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(fill_in(each, server, work) for each in value)
    return value


def lay_out(work: Path) -> None:
    """Make the folder that servers work on, always the same."""
    shutil.rmtree(work, ignore_errors=True)
    (work / "files").mkdir(parents=True)
    (work / "home").mkdir()
    (work / "files" / "notes.txt").write_text("The river is long.\nThe sea is wide.\n")
    (work / "files" / "hello.py").write_text("def greet(name):\n    return f'Hello {name}'\n")
    repository = work / "repository"
    at = "2026-01-01T00:00:00Z"
    settings = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at, "GIT_CONFIG_GLOBAL": os.devnull}
    git = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-C", str(repository)]
    subprocess.run(["git", "init", "-q", "-b", "main", str(repository)], check=True)
    (repository / "a.txt").write_text("one\n")
    for words in (["add", "a.txt"], ["commit", "-q", "-m", "The first one"]):
        subprocess.run([*git, *words], check=True, env={**os.environ, **settings})
    with sqlite3.connect(work / "data.db") as database:
        database.executescript("create table rivers (name text, length int); insert into rivers values ('Rhine', 1230);")
    database.close()
