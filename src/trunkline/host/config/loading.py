"""Reads the files of all scopes and says which entries hold: a whole entry hides another, they are never merged.

Managed beats given, given beats project, project beats user. A broken file that was named, or that the administrator
put there, ends it: nobody can know what it would have said. One that was only found is a problem that is told, and
stops nobody else.
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

#: Asks a person for an input; None: no answer.
Ask: TypeAlias = Callable[[Input], str | None]

_PROJECT = ("mcp.json", ".mcp.json", os.path.join(".vscode", "mcp.json"), os.path.join(".cursor", "mcp.json"))
_EDITORS = frozenset({".vscode", ".cursor"})


class Places(Struct, frozen=True, kw_only=True):
    """The files that were found where configurations usually are."""

    project: Path | None = None
    user: Path | None = None
    managed: Path | None = None


def find_config(cwd: Path, *, user_folder: Path | None = None, managed: Path | None = None) -> Places:
    """Look for files: the project's in the folder one is in, the user's, and the administrator's."""
    from trunkline.host.folders import config_folder

    user = (config_folder() if user_folder is None else user_folder) / "mcp.json"
    ruled = managed_file() if managed is None else managed
    project = next((path for name in _PROJECT if os.path.lexists(path := cwd / name)), None)
    return Places(
        # In the user's own folder their file is theirs, not some project's.
        project=None if project == user else project,
        user=user if os.path.lexists(user) else None,
        managed=ruled if os.path.lexists(ruled) else None,
    )


def managed_file() -> Path:
    """Say where the administrator's file is on this system."""
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
    """Read files and say which entries hold; of several that were given a later one beats an earlier.

    Raises:
        BadFile: a file that was given, or the managed one, cannot be used (a ``ConfigError``).
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


# --- where a file stands ---------------------------------------------------------------------------------------------


def place(document: Document, *, scope: Scope, environ: Mapping[str, str], ask: Ask | None) -> Placed:
    """Say what paths and variables of a document mean."""
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
    """Ask for each input once, however many entries use it."""
    answers: dict[str, str | None] = {}

    def asked(declared: Input) -> str | None:
        if declared.id not in answers:
            answers[declared.id] = ask(declared)
        return answers[declared.id]

    return asked
