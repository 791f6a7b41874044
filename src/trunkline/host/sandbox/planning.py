"""From an entry and the sandbox it asks for to the command that is started in its place.

``plan`` chooses and puts together, given what the machine can do and where things are; it looks at files and starts
nothing. ``prepare`` is what a host calls: it finds these things out, makes the server's private folder, and refuses a
start whose sandbox cannot be made.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import ConfigError
from trunkline.host.entries import ServerEntry
from trunkline.host.sandbox.bubblewrap import bubblewrap_words
from trunkline.host.sandbox.container import choose_engine, container_words, engine_environment
from trunkline.host.sandbox.entering import pack
from trunkline.host.sandbox.filters import socket_filter
from trunkline.host.sandbox.landlock import ruleset
from trunkline.host.sandbox.machine import (
    NO_COUNT_FOR_ROOT,
    SIGNALS_LANDLOCK,
    SIGNALS_OPEN,
    Capabilities,
    check_bwrap,
    look,
)
from trunkline.host.sandbox.reach import PROC, Places, Reach, beneath, find_reach
from trunkline.host.sandbox.reading import read_sandbox
from trunkline.host.sandbox.wishes import Sandbox
from trunkline.transports.launch import find_interpreter, find_program

__all__ = ["Launch", "plan", "prepare"]

#: ``none``: nobody asked for a sandbox; ``limits``: only the environment and the limits hold.
Made: TypeAlias = Literal["none", "limits", "landlock", "bwrap", "container"]

#: Variables of the host's that a sandboxed server gets: how to speak to the user, and where programs are.
_HARMLESS = ("LANG", "LANGUAGE", "LC_*", "PATH", "TERM", "TZ")
#: What the loader needs to find the libraries of an interpreter that is not installed in the usual place.
_LOADER = ("DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH")
_LIMITS: Mapping[str, str] = MappingProxyType({"memory": "DATA", "files": "NOFILE", "cpu_seconds": "CPU"})
_SAFE = re.compile(r"[^A-Za-z0-9_.-]")


class Launch(Struct, frozen=True, kw_only=True):
    """How a server is started."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    made: Made = "none"
    #: What one should know of this sandbox.
    notes: tuple[str, ...] = ()
    #: What was asked for and cannot be had.
    missing: tuple[str, ...] = ()

    @property
    def remark(self) -> str | None:
        """What there is to say of the sandbox in the server's status; None if nothing."""
        said = [f"not sandboxed as asked: {each}" for each in self.missing]
        return "; ".join([*said, *self.notes]) or None


def prepare(
    entry: ServerEntry, *, env: Mapping[str, str] | None = None, folder: Path | None = None, able: Capabilities | None = None
) -> Launch:
    """Say how a server is started; ``env`` is what it gets instead of its entry's, ``folder`` the host's state.

    Raises:
        ConfigError: its sandbox makes no sense, or cannot be made here and is required.
        LinkError: its program is not there.
    """
    entry = entry if env is None else replace(entry, env=env)
    if entry.command is None:
        raise ConfigError(f"{entry.name}: there is no command to start")
    try:
        sandbox = read_sandbox(entry.settings.sandbox)
        if sandbox is None:
            return Launch(command=entry.command, env=entry.env, cwd=entry.cwd)
        places = _places(entry, folder)
        launch = plan(entry, sandbox, entry.settings.roots or (), able=able or _able(sandbox), places=places)
    except ConfigError as error:
        raise ConfigError(f"{entry.source}: {entry.name}: {error}") from error
    if launch.missing and sandbox.required:
        raise ConfigError(
            f"{entry.source}: {entry.name}: it is not started, because its sandbox cannot be made: "
            f'{"; ".join(launch.missing)} (or write "required": false in its sandbox to start it all the same)'
        )
    _make_private(places.private)
    return launch


def _able(sandbox: Sandbox) -> Capabilities:
    seen = look()
    return check_bwrap(seen) if sandbox.kind in ("auto", "bwrap") else seen


def _places(entry: ServerEntry, folder: Path | None) -> Places:
    from trunkline.host.folders import config_folder, state_folder

    state = state_folder() if folder is None else folder
    return Places(
        private=os.path.realpath(state / "sandboxes" / _SAFE.sub("_", entry.name)),
        protected=tuple(dict.fromkeys(os.path.realpath(each) for each in (state, state_folder(), config_folder()))),
        home=os.path.realpath(os.path.expanduser("~")),
        cwd=os.getcwd(),
        environ=dict(os.environ),
    )


def _make_private(private: str) -> None:
    """Make a server's private folder, and remove what is left of servers that ended."""
    import shutil

    for name in ("home", "tmp"):
        os.makedirs(os.path.join(private, name), 0o700, exist_ok=True)
    for name in os.listdir(os.path.join(private, "tmp")):
        if not (name.isdigit() and os.path.exists(f"/proc/{name}")):
            shutil.rmtree(os.path.join(private, "tmp", name), ignore_errors=True)


# --- choosing --------------------------------------------------------------------------------------------------------


def plan(
    entry: ServerEntry, sandbox: Sandbox, roots: Sequence[str], *, able: Capabilities, places: Places
) -> Launch:
    """Put together how a server is started in its sandbox; what cannot be had is in ``missing``.

    Raises:
        ConfigError: a path or a variable cannot be passed on.
        LinkError: the program is not there.
    """
    kind: Any = sandbox.kind
    if kind == "auto":
        kind = next((each for each in able.kinds if each != "container"), "landlock")
    obstacle = able.obstacle(kind)
    if kind == "container":
        return _contained(entry, sandbox, roots, able=able, places=places)
    env = _environment(entry, sandbox, places)
    program = find_program((entry.command or ("",))[0], env, cwd=entry.cwd)
    inside = replace(places, environ=env)
    reach = find_reach(entry, sandbox, roots, program=program, places=inside)
    missing = [] if obstacle is None else [obstacle]
    if sandbox.limits.processes is not None and able.user == 0:
        missing.append(NO_COUNT_FOR_ROOT)
    if obstacle is not None:
        return _bare(entry, sandbox, env, program=program, places=places, missing=missing)
    if kind == "bwrap":
        return _wrapped(entry, sandbox, env, program=program, reach=reach, able=able, places=places, missing=missing)
    return _landlocked(entry, sandbox, env, program=program, reach=reach, able=able, places=places, missing=missing)
