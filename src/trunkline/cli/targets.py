"""Reads TARGET: the URL, the command that starts the server, or the server's name in a configuration.

A ``.py`` file, with or without an object, is served by ``trunkline run`` in the same interpreter, so it need not start
itself. A single word, or ``NAME/REST``, is looked for among the names of the configuration, and after that is a
program; with a configuration that was named it is a name and nothing else. Nothing is started or called here, and
nothing is read by a shell.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Sequence
from typing import NamedTuple

from trunkline.cli.exits import Exit, Failure
from trunkline.cli.loading import split_spec

__all__ = ["Launch", "Named", "Site", "read_target"]

_NOTHING = "give a file, FILE:object, a quoted command, a URL, or the name of a server in a configuration"


class Launch(NamedTuple):
    """How to start a server: the words of its command, and variables it needs besides what the user gives."""

    command: list[str]
    env: dict[str, str]


class Site(NamedTuple):
    """Where a server is that runs already."""

    url: str


class Named(NamedTuple):
    """A server of a configuration, run by the host under the user's rules."""

    #: None: all servers.
    server: str | None
    #: The files that were named; none: those that are found.
    files: tuple[str, ...]
    #: What was meant of it, if that was said in the same word: ``server/tool``.
    rest: str | None = None


def read_target(text: str | None, files: Sequence[str] = ()) -> Launch | Site | Named:
    """Say how to reach what a TARGET names; with files, it is a name in them, and no TARGET means all their servers.

    Raises:
        Failure: it names nothing that can be reached.
        ConfigError: a file that was named cannot be used.
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


def _program(word: str) -> Launch | None:
    import shutil

    if os.sep in word:
        return Launch([os.path.abspath(word)], {}) if os.path.isfile(word) else None
    return Launch([word], {}) if word and shutil.which(word) is not None else None


# --- names -----------------------------------------------------------------------------------------------------------


def _one_word(word: str) -> Launch | Named:
    """Look for a word among the names of the configuration that is found; else it is a program.

    What has a name in a project's file runs only once it is approved, so that no project takes the place of a program.
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
    raise Failure(f"there is no server and no program {word!r}: {_NOTHING}", Exit.USAGE)


def _in_files(text: str | None, files: Sequence[str]) -> Named:
    """Find a name in the files that were named; without a text all servers are meant."""
    from trunkline.cli.configs import name_hint, read_configuration

    configuration = read_configuration(files)
    if text is None:
        if not files and not configuration.files:
            raise Failure(f"no configuration is found here: {_NOTHING}", Exit.USAGE)
        return Named(None, tuple(files))
    server, rest = _split(text, configuration.entries)
    if server is None:
        name = text if "://" in text else text.partition("/")[0]
        hint = name_hint(name, configuration.entries)
        raise Failure(f"no server is called {name!r} in {', '.join(files)}; {hint}", Exit.CONFIG)
    return Named(server, tuple(files), rest)


def _split(text: str, names: Container[str]) -> tuple[str | None, str | None]:
    """Read NAME or NAME/REST; a name itself has no slash."""
    if text in names:
        return text, None
    name, slash, rest = text.partition("/")
    return (name, rest) if slash and rest and name in names else (None, None)
