"""Loads the files of all scopes and decides which entries are active; an entry replaces another as a whole.

Managed overrides given, given overrides project, project overrides user. A broken file that was named, or that the
administrator installed, is an error: what it would have said is unknown. One that was merely found is reported as a
problem, and the other files still count.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from trunkline.host.config.assembling import Placed, assemble
from trunkline.host.config.collecting import Ground
from trunkline.host.config.documents import BadFile, Document, read_document
from trunkline.host.config.records import Configuration, Input, LoadedFile, Problem
from trunkline.host.config.variables import Surroundings
from trunkline.host.entries import Scope

__all__ = ["Ask", "Places", "find_config", "load", "managed_file", "place"]

#: Prompts a person for an input; returns None if there is no answer.
Ask: TypeAlias = Callable[[Input], str | None]

_PROJECT = ("mcp.json", ".mcp.json", os.path.join(".vscode", "mcp.json"), os.path.join(".cursor", "mcp.json"))
_EDITORS = frozenset({".vscode", ".cursor"})


class Places(Struct, frozen=True, kw_only=True):
    """The configuration files that were found in the default locations."""

    project: Path | None = None
    user: Path | None = None
    managed: Path | None = None


def find_config(cwd: Path, *, user_folder: Path | None = None, managed: Path | None = None) -> Places:
    """Find the project's file in a folder, the user's file, and the administrator's."""
    from trunkline.host.folders import config_folder

    user = (config_folder() if user_folder is None else user_folder) / "mcp.json"
    ruled = managed_file() if managed is None else managed
    project = next((path for name in _PROJECT if os.path.lexists(path := cwd / name)), None)
    return Places(
        # In the user's configuration folder the file is the user's, not a project's.
        project=None if project == user else project,
        user=user if os.path.lexists(user) else None,
        managed=ruled if os.path.lexists(ruled) else None,
    )


def managed_file() -> Path:
    """Return the path of the administrator's file on this system."""
    if sys.platform == "darwin":
        return Path("/Library/Application Support/Trunkline/mcp.json")
    if sys.platform == "win32":
        return Path(os.environ.get("PROGRAMDATA", "C:\\ProgramData")) / "Trunkline" / "mcp.json"
    return Path("/etc/trunkline/mcp.json")


def load(
    *,
    given: Sequence[Path | str] = (),
    project: Path | str | None = None,
    user: Path | str | None = None,
    managed: Path | str | None = None,
    environ: Mapping[str, str],
    inputs: Ask | None = None,
) -> Configuration:
    """Load files into a configuration; of several given files, a later one overrides an earlier.

    Raises:
        InvalidConfigFile: a given file, or the managed one, cannot be used (a ``ConfigError``).
    """
    wanted: list[tuple[Scope, Path | str | None]] = [("managed", managed)]
    wanted += [("given", path) for path in reversed(given)]
    wanted += [("project", project), ("user", user)]
    placed: list[Placed] = []
    files: list[LoadedFile] = []
    problems: list[Problem] = []
    for scope, path in wanted:
        if path is None:
            continue
        file = os.fspath(path)
        try:
            document = read_document(file, scope=scope)
        except BadFile as error:
            if scope in ("managed", "given"):
                raise
            files.append(LoadedFile(path=file, scope=scope, problem=error.problem))
            problems.append(error.problem)
            continue
        files.append(LoadedFile(path=file, scope=scope, servers=tuple(each.name for each in document.servers)))
        placed.append(place(document, scope=scope, environ=environ, ask=inputs))
    return assemble(placed, files=files, problems=problems)


# --- the context of a file -------------------------------------------------------------------------------------------


def place(document: Document, *, scope: Scope, environ: Mapping[str, str], ask: Ask | None) -> Placed:
    """Give a document its scope: what its paths are relative to, and the sources of its variables."""
    file = document.file
    folder = os.path.dirname(os.path.abspath(file)) if file is not None else os.getcwd()
    folder = os.path.dirname(folder) if os.path.basename(folder) in _EDITORS else folder
    home = environ.get("HOME") or environ.get("USERPROFILE") or os.path.expanduser("~")
    folders = {"userHome": home, "pathSeparator": os.sep, "/": os.sep}
    if scope in ("given", "project"):
        folders |= {"workspaceFolder": folder, "workspaceFolderBasename": os.path.basename(folder)}
    around = Surroundings(environ=environ, folders=folders, inputs=document.inputs, ask=ask and _once(ask))
    return Placed(document=document, scope=scope, ground=Ground(file=file, folder=folder, home=home, around=around))


def _once(ask: Ask) -> Ask:
    """Wrap a prompt so that each input is asked for once, however many entries use it."""
    answers: dict[str, str | None] = {}

    def asked(declared: Input) -> str | None:
        if declared.id not in answers:
            answers[declared.id] = ask(declared)
        return answers[declared.id]

    return asked
