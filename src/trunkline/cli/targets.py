"""Reads TARGET: the URL, or the command that starts the server a person named.

A ``.py`` file, with or without an object, is served by ``trunkline run`` in the same interpreter, so it need not start
itself. What is no URL either is a command. Nothing is started or called here, and nothing is read by a shell.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from trunkline.cli.exits import Exit, Failure
from trunkline.cli.loading import split_spec
from trunkline.cli.not_yet import NO_NAMES

__all__ = ["Launch", "Site", "read_target"]


class Launch(NamedTuple):
    """How to start a server: the words of its command, and variables it needs besides what the user gives."""

    command: list[str]
    env: dict[str, str]


class Site(NamedTuple):
    """Where a server is that runs already."""

    url: str


def read_target(text: str) -> Launch | Site:
    """Say how to reach what a TARGET names.

    Raises:
        Failure: it names nothing that can be reached.
    """
    if text.lower().startswith(("http://", "https://")):
        return Site(text)
    path, name = split_spec(text)
    if os.path.isfile(path) and path.endswith(".py"):
        return _python_file(path, name)
    words = _words(text)
    if len(words) > 1:
        return Launch(words, {})
    if path.endswith(".py"):
        raise Failure(f"there is no file {path}", Exit.CONFIG)
    return _program(words[0] if words else "")


def _python_file(path: str, name: str | None) -> Launch:
    spec = os.path.abspath(path) + ("" if name is None else f":{name}")
    # -P: the folder the command is typed in is not where the server's modules come from.
    command = [sys.executable, "-P", "-m", "trunkline", "run", "--", spec]
    # The file is the user's own Python: it finds what their other programs find.
    return Launch(command, {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ})


def _words(text: str) -> list[str]:
    import shlex

    try:
        return shlex.split(text)
    except ValueError as error:
        raise Failure(f"the command {text!r} cannot be read: {error}", Exit.USAGE) from error


def _program(word: str) -> Launch:
    import shutil

    if os.sep in word:
        if not os.path.isfile(word):
            raise Failure(f"there is no file {word}", Exit.CONFIG)
        return Launch([os.path.abspath(word)], {})
    if not word or shutil.which(word) is None:
        raise Failure(NO_NAMES, Exit.USAGE)
    return Launch([word], {})
