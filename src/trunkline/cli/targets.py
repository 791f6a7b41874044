"""Resolves TARGET: a URL, a command that starts a server, or the name of a configured server.

A ``.py`` file, with or without an object, is run by ``trunkline run`` in the same interpreter, so it need not start
itself. A single word, or ``NAME/REST``, is first looked up among the configured servers, then as a program; with
``--config`` it can only be a name. Nothing is started or called here, and no shell is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Sequence
from typing import NamedTuple

from trunkline.cli.exits import Exit, Failure
from trunkline.cli.loading import split_spec

__all__ = ["Launch", "Named", "Site", "read_target"]

_NOTHING = "expected a .py file, FILE:OBJECT, a quoted command, a URL, or the name of a configured server"


class Launch(NamedTuple):
    """A server to start: its command, and environment variables it needs besides those the user gives."""

    command: list[str]
    env: dict[str, str]


class Site(NamedTuple):
    """A server that is already running at a URL."""

    url: str


class Named(NamedTuple):
    """A configured server, run by the host under the user's policy."""

    #: None: all configured servers.
    server: str | None
    #: The files given with ``--config``; empty: those that are found.
    files: tuple[str, ...]
    #: The item of the server, if TARGET was ``SERVER/ITEM``.
    rest: str | None = None


def read_target(text: str | None, files: Sequence[str] = ()) -> Launch | Site | Named:
    """Resolve a TARGET; with files, it is the name of a server in them, and None means all their servers.

    Raises:
        CommandError: TARGET cannot be resolved.
        ConfigError: a given file cannot be used.
    """
    if files or text is None:
        return _in_files(text, files)
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
    return _one_word(words[0] if words else "")


def _python_file(path: str, name: str | None) -> Launch:
    from trunkline.cli.loading import check_library

    check_library(path)
    spec = os.path.abspath(path) + ("" if name is None else f":{name}")
    # -P: the server's modules must not come from the current directory.
    command = [sys.executable, "-P", "-m", "trunkline", "run", "--", spec]
    # The file is the user's own program: it finds the modules that their other programs find.
    return Launch(command, {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ})


def _words(text: str) -> list[str]:
    import shlex

    try:
        return shlex.split(text)
    except ValueError as error:
        raise Failure(f"cannot parse the command {text!r}: {error}", Exit.USAGE) from error


def _program(word: str) -> Launch | None:
    import shutil

    if os.sep in word:
        return Launch([os.path.abspath(word)], {}) if os.path.isfile(word) else None
    return Launch([word], {}) if word and shutil.which(word) is not None else None


# --- names -----------------------------------------------------------------------------------------------------------


def _one_word(word: str) -> Launch | Named:
    """Resolve a word as the name of a configured server, otherwise as a program.

    A server of a project's file runs only after approval, so no project can silently take the place of a program.
    """
    program = _program(word)
    if program is not None and os.sep in word:
        return program
    from trunkline.cli.configs import read_configuration

    configuration = read_configuration()
    server, rest = _split(word, configuration.entries)
    if server is not None:
        return Named(server, (), rest)
    if program is not None:
        return program
    for problem in configuration.problems:
        if problem.severity == "error":
            raise Failure(str(problem), Exit.CONFIG)
    if os.sep in word:
        raise Failure(f"there is no file {word}", Exit.CONFIG)
    raise Failure(f"{word!r} is neither a configured server nor a program: {_NOTHING}", Exit.USAGE)


def _in_files(text: str | None, files: Sequence[str]) -> Named:
    """Resolve a name in the given files; without a name, all servers."""
    from trunkline.cli.configs import name_hint, read_configuration

    configuration = read_configuration(files)
    if text is None:
        if not files and not configuration.files:
            raise Failure(f"no configuration found: {_NOTHING}", Exit.USAGE)
        return Named(None, tuple(files))
    server, rest = _split(text, configuration.entries)
    if server is None:
        name = text if "://" in text else text.partition("/")[0]
        hint = name_hint(name, configuration.entries)
        raise Failure(f"there is no server {name!r} in {', '.join(files)}; {hint}", Exit.CONFIG)
    return Named(server, tuple(files), rest)


def _split(text: str, names: Container[str]) -> tuple[str | None, str | None]:
    """Split NAME or NAME/REST; a name itself has no slash."""
    if text in names:
        return text, None
    name, slash, rest = text.partition("/")
    return (name, rest) if slash and rest and name in names else (None, None)
