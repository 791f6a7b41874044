"""From an entry and its sandbox settings to the command that is started in its place.

``plan_launch`` chooses a backend and builds the command from given capabilities and locations; it inspects files and
starts nothing. ``prepare_launch`` is what a host calls: it detects these, creates the server's private folder, and
refuses a start whose sandbox cannot be set up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import ConfigError
from trunkline.host.config.model import ServerEntry
from trunkline.host.sandbox.backends import (
    NO_PROCESS_LIMIT_FOR_ROOT,
    SIGNALS_LANDLOCK,
    SIGNALS_OPEN,
    Capabilities,
    bubblewrap_options,
    check_bwrap,
    choose_engine,
    container_command,
    engine_environment,
    inspect_machine,
    landlock_ruleset,
)
from trunkline.host.sandbox.enter_sandbox import pack
from trunkline.host.sandbox.file_access import (
    PROC,
    FileAccess,
    SandboxLocations,
    find_file_access,
    is_within,
)
from trunkline.host.sandbox.hints import SandboxHints
from trunkline.host.sandbox.seccomp import seccomp_filter
from trunkline.host.sandbox.settings import SandboxSettings, parse_sandbox
from trunkline.transports.process import find_interpreter, find_program

__all__ = ["LaunchPlan", "plan_launch", "prepare_launch"]

#: ``none``: no sandbox is configured; ``limits``: only the environment and the resource limits apply.
AppliedSandbox: TypeAlias = Literal["none", "limits", "landlock", "bwrap", "container"]

#: The host's variables that a sandboxed server inherits: locale, terminal and program path.
_HARMLESS = ("LANG", "LANGUAGE", "LC_*", "PATH", "TERM", "TZ")
#: Variables by which the loader finds the libraries of an interpreter in an unusual location.
_LOADER = ("DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH")
_LIMITS: Mapping[str, str] = MappingProxyType({"memory": "DATA", "files": "NOFILE", "cpu_seconds": "CPU"})
_SAFE = re.compile(r"[^A-Za-z0-9_.-]")


class LaunchPlan(Struct, frozen=True, kw_only=True):
    """How a server is started."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    made: AppliedSandbox = "none"
    #: What the user should know about this sandbox.
    notes: tuple[str, ...] = ()
    #: What was configured and is not available.
    missing: tuple[str, ...] = ()
    #: Returns the sandbox as a text, with what it kept from a server with this output; None if nothing is hidden.
    describe: Callable[[str], str] | None = None
    #: Returns only what was kept from the server, empty if nothing.
    explain: Callable[[str], str] | None = None
    #: What the server can reach.
    reach: str = ""

    @property
    def remark(self) -> str | None:
        """The remark about the sandbox in the server's status; None if there is none."""
        said = [f"not sandboxed as configured: {each}" for each in self.missing]
        return "; ".join([*said, *self.notes]) or None


def prepare_launch(
    entry: ServerEntry,
    *,
    env: Mapping[str, str] | None = None,
    roots: Sequence[str] | None = None,
    folder: Path | None = None,
    capabilities: Capabilities | None = None,
) -> LaunchPlan:
    """Plan the launch of a server; ``env`` and ``roots`` override its entry's, ``folder`` is the host's state folder.

    Raises:
        ConfigError: its sandbox settings are not valid, or the sandbox is required and cannot be set up here.
        LinkError: its program does not exist.
    """
    entry = entry if env is None else replace(entry, env=env)
    if entry.command is None:
        raise ConfigError(f"{entry.name}: there is no command to start")
    try:
        sandbox = parse_sandbox(entry.settings.sandbox)
        if sandbox is None:
            return LaunchPlan(command=entry.command, env=entry.env, cwd=entry.cwd)
        locations = _places(entry, folder)
        opened = (entry.settings.roots or ()) if roots is None else roots
        launch = plan_launch(entry, sandbox, opened, capabilities=capabilities or _able(sandbox), locations=locations)
    except ConfigError as error:
        raise ConfigError(f"{entry.source}: {entry.name}: {error}") from error
    if launch.missing and sandbox.required:
        raise ConfigError(
            f"{entry.source}: {entry.name}: not started, because its sandbox cannot be set up: "
            f'{"; ".join(launch.missing)} (or set "required": false in its sandbox to start it anyway)'
        )
    _make_private(locations.private)
    return launch


def _able(sandbox: SandboxSettings) -> Capabilities:
    seen = inspect_machine()
    return check_bwrap(seen) if sandbox.kind in ("auto", "bwrap") else seen


def _places(entry: ServerEntry, folder: Path | None) -> SandboxLocations:
    from trunkline.host.state_files import config_folder, state_folder

    state = state_folder() if folder is None else folder
    return SandboxLocations(
        private=os.path.realpath(state / "sandboxes" / _SAFE.sub("_", entry.name)),
        protected=tuple(dict.fromkeys(os.path.realpath(each) for each in (state, state_folder(), config_folder()))),
        home=os.path.realpath(os.path.expanduser("~")),
        cwd=os.getcwd(),
        environ=dict(os.environ),
    )


def _make_private(private: str) -> None:
    """Create a server's private folder, and remove the temporary folders of processes that ended."""
    import shutil

    for name in ("home", "tmp"):
        os.makedirs(os.path.join(private, name), 0o700, exist_ok=True)
    for name in os.listdir(os.path.join(private, "tmp")):
        if not (name.isdigit() and os.path.exists(f"/proc/{name}")):
            shutil.rmtree(os.path.join(private, "tmp", name), ignore_errors=True)


# --- choosing a backend ----------------------------------------------------------------------------------------------


class _Start(Struct, frozen=True, kw_only=True):
    """One launch, with everything known about it."""

    entry: ServerEntry
    sandbox: SandboxSettings
    program: str
    env: dict[str, str]
    access: FileAccess
    capabilities: Capabilities
    locations: SandboxLocations
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def home(self) -> str:
        """The server's private home."""
        return os.path.join(self.locations.private, "home")

    @property
    def cwd(self) -> str:
        """The working directory: the entry's, if the server can see it, else its private home."""
        wanted = os.path.realpath(self.entry.cwd or self.locations.cwd)
        return wanted if self.access.covers(wanted) else self.home


def plan_launch(
    entry: ServerEntry,
    sandbox: SandboxSettings,
    roots: Sequence[str],
    *,
    capabilities: Capabilities,
    locations: SandboxLocations,
) -> LaunchPlan:
    """Plan the launch of a server in its sandbox; what is not available is listed in ``missing``.

    Raises:
        ConfigError: a path or a variable cannot be passed to the sandbox.
        LinkError: the program does not exist.
    """
    if sandbox.kind == "container":
        return _container_launch(entry, sandbox, roots, capabilities=capabilities, locations=locations)
    kind = sandbox.kind
    if kind == "auto":
        kind = "bwrap" if capabilities.obstacle("bwrap") is None else "landlock"
    env = _environment(entry, sandbox, locations)
    program = find_program((entry.command or ("",))[0], env, cwd=entry.cwd)
    access = find_file_access(entry, sandbox, roots, program=program, locations=replace(locations, environ=env))
    obstacle = capabilities.obstacle(kind)
    start = _Start(
        entry=entry,
        sandbox=sandbox,
        program=program,
        env=env,
        access=access,
        capabilities=capabilities,
        locations=locations,
        missing=(*((obstacle,) if obstacle else ()), *_unlimited(sandbox, capabilities)),
        notes=(*access.notes, *_notes(entry, access)),
    )
    return (
        _limits_only_launch(start)
        if obstacle
        else _bubblewrap_launch(start)
        if kind == "bwrap"
        else _landlock_launch(start)
    )


def _environment(entry: ServerEntry, sandbox: SandboxSettings, locations: SandboxLocations) -> dict[str, str]:
    """Build the server's whole environment: harmless and listed variables, a private home, and the entry's own."""
    home = {"HOME": os.path.join(locations.private, "home")}
    return {**home, **_inherited((*_HARMLESS, *sandbox.env), locations), **entry.env}


def _inherited(allowed: Sequence[str], locations: SandboxLocations) -> dict[str, str]:
    """Return the host's variables that a list names; a trailing ``*`` matches any ending."""
    names = frozenset(allowed)
    beginnings = tuple(name[:-1] for name in allowed if name.endswith("*"))
    return {
        name: value
        for name, value in locations.environ.items()
        # Such a value is an exported shell function, which some shells would run.
        if (name in names or name.startswith(beginnings)) and not value.startswith("()")
    }


def _unlimited(sandbox: SandboxSettings, capabilities: Capabilities) -> tuple[str, ...]:
    """Return which limit cannot be enforced."""
    if sandbox.limits.processes is None or (capabilities.platform == "linux" and capabilities.user != 0):
        return ()
    return (
        NO_PROCESS_LIMIT_FOR_ROOT
        if capabilities.user == 0
        else "the number of processes cannot be limited here; use a container",
    )


def _notes(entry: ServerEntry, access: FileAccess) -> tuple[str, ...]:
    """Return a note if the server could change its own entry without a new approval."""
    file = entry.source.file
    if file is None or entry.source.scope == "project":
        return ()
    real = os.path.realpath(os.path.expanduser(file))
    return (
        (f"it can change {file}, which contains its own entry",)
        if any(is_within(real, each) for each in access.write)
        else ()
    )


# --- the backends ----------------------------------------------------------------------------------------------------


def _landlock_launch(start: _Start) -> LaunchPlan:
    capabilities, access = start.capabilities, start.access
    seen = replace(access, system=(*access.system, *PROC), write=(*access.write, start.home))
    rules = landlock_ruleset(capabilities.landlock, seen, sandboxed_sockets=not start.sandbox.sockets)
    covered = tuple(
        f"{place}, where the host keeps its own files, is inside a folder that the server may access, and Landlock "
        f"cannot exclude it; allow a smaller folder, or use bubblewrap"
        for place in access.covered
    )
    open_signals = (SIGNALS_OPEN,) if capabilities.landlock < SIGNALS_LANDLOCK else ()
    start = replace(start, missing=(*start.missing, *covered), notes=(*start.notes, *open_signals))
    return _entered_launch(start, "landlock", {"landlock": rules})


def _bubblewrap_launch(start: _Start) -> LaunchPlan:
    words = bubblewrap_options(start.access, home=start.home, cwd=start.cwd, network=start.sandbox.network)
    # With its own file system the server has its own /tmp, too.
    start = replace(start, env={"TMPDIR": "/tmp", **start.env})
    wrapping = {"program": start.capabilities.bwrap, "words": words}
    # bubblewrap itself drops the privileges, some of which it needs to start.
    return _entered_launch(
        start, "bwrap", {"bwrap": wrapping, "close": False, "temporary": None, "cwd": start.locations.private}
    )


def _limits_only_launch(start: _Start) -> LaunchPlan:
    """Plan a launch without the unavailable backend; the caller rejects it if the sandbox is required."""
    linux = start.capabilities.platform == "linux"
    return _entered_launch(start, "limits", {"close": linux, "cwd": start.entry.cwd or start.locations.cwd})


def _entered_launch(start: _Start, made: AppliedSandbox, more: Mapping[str, Any]) -> LaunchPlan:
    """Plan a launch through ``enter_sandbox``."""
    limits = start.sandbox.limits
    countable = start.capabilities.platform == "linux" and start.capabilities.user != 0
    wanted = {name: getattr(limits, field) for field, name in _LIMITS.items()}
    record = {
        "program": start.program,
        "argv": list(start.entry.command or ()),
        "env": dict(start.env),
        "cwd": start.cwd,
        "temporary": os.path.join(start.locations.private, "tmp"),
        "limits": {name: value for name, value in wanted.items() if value is not None},
        "processes": limits.processes if countable else None,
        "filter": _filter(start.sandbox, start.capabilities),
        "close": True,
        "landlock": None,
        "bwrap": None,
        **more,
    }
    return LaunchPlan(
        command=_program("enter_sandbox"),
        env={**_loader(start.locations), **pack(record)},
        cwd=None,
        made=made,
        notes=start.notes,
        missing=start.missing,
        **({} if made == "limits" else _explanations(start, made)),
    )


def _explanations(start: _Start, made: AppliedSandbox) -> dict[str, Any]:
    """Return the members of a plan that explain failures."""
    locations = start.locations
    hints = SandboxHints(
        made=made,
        # The server's private folder is not hidden from it.
        access=replace(start.access, write=(*start.access.write, locations.private)),
        cwd=start.entry.cwd or locations.cwd,
        home=locations.home,
        private_home=start.home if start.env["HOME"] == start.home else locations.home,
        passed=frozenset(start.env),
        withheld=frozenset(locations.environ) - frozenset(start.env),
    )
    return {"describe": hints.describe, "explain": hints.find, "reach": hints.reach()}


def _filter(sandbox: SandboxSettings, capabilities: Capabilities) -> str | None:
    if not capabilities.filters:
        return None
    return seccomp_filter(
        capabilities.architecture, network=sandbox.network, sockets=sandbox.sockets, watch=sandbox.watch
    ).hex()


def _program(name: str) -> tuple[str, ...]:
    """Return the command of one of the two programs of this package."""
    # Imported by name, the module is loaded from its compiled file; run by path, it would be compiled each time.
    code = f"import sys; sys.path.append({os.path.dirname(__file__)!r}); import {name}; {name}.main()"
    return (find_interpreter(), "-I", "-S", "-c", code)


def _loader(locations: SandboxLocations) -> dict[str, str]:
    return {name: locations.environ[name] for name in _LOADER if name in locations.environ}


def _container_launch(
    entry: ServerEntry,
    sandbox: SandboxSettings,
    roots: Sequence[str],
    *,
    capabilities: Capabilities,
    locations: SandboxLocations,
) -> LaunchPlan:
    container = sandbox.container
    assert container is not None
    engine = choose_engine(container, capabilities)
    if engine is None:
        name = "neither docker nor podman" if container.engine == "auto" else container.engine
        missing = capabilities.obstacle("container") or f"{name} is not installed; install it, or name the other one"
        return LaunchPlan(command=(), env=MappingProxyType({}), cwd=None, made="container", missing=(missing,))
    access = find_file_access(entry, sandbox, roots, program=None, locations=locations)
    env = {**_inherited(sandbox.env, locations), **entry.env}
    words = container_command(
        entry,
        sandbox,
        access,
        engine=engine,
        env=env,
        user=capabilities.user,
        group=os.getgid() if hasattr(os, "getgid") else 0,
    )
    usual = {name: locations.environ[name] for name in ("HOME", "PATH") if name in locations.environ}
    record = {
        "argv": words,
        "env": {**usual, **engine_environment(locations.environ), **env},
        "engine": engine.name,
        "name": f"trunkline-{_SAFE.sub('_', entry.name)}",
    }
    return LaunchPlan(
        command=_program("run_container"),
        env={**_loader(locations), **pack(record)},
        cwd=None,
        made="container",
        notes=(*access.notes, *_notes(entry, access)),
        describe=lambda output: "its sandbox (container)",
        reach="the files of its image, and its roots",
    )
