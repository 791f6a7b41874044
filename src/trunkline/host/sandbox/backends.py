"""The three sandbox backends: which of them work on this machine, and their arguments.

They are bubblewrap, the kernel's Landlock, and a container engine (docker or podman). The options of bubblewrap travel
in a memory file, not on a command line; later ones cover earlier ones, so a folder comes before what it contains, and
the host's own folders are hidden last. Landlock can only take away rights that the running kernel knows. A container
has no privileges; variable values never stand on a command line, and nothing from a configuration can be read as an
option.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.config.model import ServerEntry
from trunkline.host.sandbox.file_access import FileAccess, is_within
from trunkline.host.sandbox.seccomp import ARCHITECTURES
from trunkline.host.sandbox.settings import ContainerSettings, SandboxSettings

__all__ = [
    "LABEL",
    "Capabilities",
    "ContainerEngine",
    "bubblewrap_options",
    "choose_engine",
    "container_command",
    "detect_capabilities",
    "engine_environment",
    "inspect_machine",
    "landlock_ruleset",
]

_LANDLOCK_CREATE_RULESET = 444  # The number of the system call, the same on all architectures.
_LANDLOCK_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION of linux/landlock.h.
_PR_SET_SECCOMP = 22  # linux/prctl.h.
_SECCOMP_FILTER = 2  # SECCOMP_MODE_FILTER of linux/seccomp.h.
_SECONDS = 5.0  # Asking an engine for its version takes milliseconds, or seconds if its daemon starts.

#: The first Landlock version that prevents truncating files; earlier ones are not enough for a sandbox.
MIN_LANDLOCK = 3
#: The first version that blocks signals to processes outside.
SIGNALS_LANDLOCK = 6


class ContainerEngine(Struct, frozen=True, kw_only=True):
    """A program that runs containers."""

    name: str
    path: str
    #: Why it does not work; None if it does, or was not checked.
    problem: str | None = None


class Capabilities(Struct, frozen=True, kw_only=True):
    """What sandboxes can use on this machine."""

    platform: str
    architecture: str
    #: The user id.
    user: int
    #: The version of the kernel's Landlock; 0 if there is none.
    landlock: int = 0
    #: Whether system calls can be filtered, which blocks the network and Unix sockets.
    filters: bool = False
    #: The path of bubblewrap, and why it does not work.
    bwrap: str | None = None
    bwrap_problem: str | None = None
    engines: tuple[ContainerEngine, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of sandbox that work here, the preferred one of ``auto`` first."""
        return tuple(kind for kind in ("bwrap", "landlock", "container") if self.obstacle(kind) is None)

    def obstacle(self, kind: str) -> str | None:
        """Return why a kind of sandbox does not work here; None if it does."""
        return _OBSTACLES[kind](self)

    def findings(self) -> tuple[str, ...]:
        """Return what does not work here as messages, each with the fix."""
        obstacles = [(kind, self.obstacle(kind)) for kind in ("landlock", "bwrap", "container")]
        found = [f"{kind} sandboxes are not available: {why}" for kind, why in obstacles if why is not None]
        if MIN_LANDLOCK <= self.landlock < SIGNALS_LANDLOCK:
            found.append(SIGNALS_OPEN)
        if self.platform == "linux" and self.user == 0:
            found.append(NO_PROCESS_LIMIT_FOR_ROOT)
        return tuple(found)


SIGNALS_OPEN = "Landlock here does not stop a server from sending signals to your other programs (Linux 6.12 does)"
NO_PROCESS_LIMIT_FOR_ROOT = (
    "the number of processes cannot be limited for root; run as another user, or use a container"
)


def _no_landlock(capabilities: Capabilities) -> str | None:
    if capabilities.platform != "linux":
        return "Landlock exists only on Linux; use a container"
    if capabilities.landlock == 0:
        return "the kernel has no Landlock, or it is switched off (lsm=); use Linux 6.2 or later, or a container"
    if capabilities.landlock < MIN_LANDLOCK:
        return "the kernel's Landlock does not prevent truncating files; use Linux 6.2 or later, or a container"
    if not capabilities.filters:
        return f"system calls cannot be filtered on this machine ({capabilities.architecture}); use a container"
    return None


def _no_bwrap(capabilities: Capabilities) -> str | None:
    if capabilities.platform != "linux":
        return "bubblewrap exists only on Linux; use a container"
    if capabilities.bwrap is None:
        return "bubblewrap is not installed; install the package bubblewrap"
    if capabilities.bwrap_problem is not None:
        return capabilities.bwrap_problem
    return (
        None
        if capabilities.filters
        else f"system calls cannot be filtered on this machine ({capabilities.architecture})"
    )


def _no_container(capabilities: Capabilities) -> str | None:
    if not capabilities.engines:
        return "neither docker nor podman is installed; install one of them"
    return None if any(each.problem is None for each in capabilities.engines) else capabilities.engines[0].problem


_OBSTACLES: Mapping[str, Callable[[Capabilities], str | None]] = MappingProxyType(
    {"landlock": _no_landlock, "bwrap": _no_bwrap, "container": _no_container}
)


def inspect_machine(path: str | None = None) -> Capabilities:
    """Detect what is installed, without running anything; ``path`` is the search path of programs."""
    from shutil import which

    engines = [
        ContainerEngine(name=name, path=found) for name in ("docker", "podman") if (found := which(name, path=path))
    ]
    architecture = os.uname().machine if hasattr(os, "uname") else ""
    linux = sys.platform == "linux"
    return Capabilities(
        platform=sys.platform,
        architecture=architecture,
        user=os.getuid() if hasattr(os, "getuid") else -1,
        landlock=_landlock() if linux else 0,
        filters=linux and architecture in ARCHITECTURES and _filters(),
        bwrap=which("bwrap", path=path) if linux else None,
        engines=tuple(engines),
    )


def detect_capabilities(path: str | None = None) -> Capabilities:
    """Detect what works on this machine; this runs bubblewrap and the engines, so call it in a thread."""
    from msgspec.structs import replace

    seen = check_bwrap(inspect_machine(path))
    engines = tuple(replace(each, problem=_engine_problem(each)) for each in seen.engines)
    return replace(seen, engines=engines)


def check_bwrap(capabilities: Capabilities) -> Capabilities:
    """Check whether bubblewrap works, if it is installed: some systems forbid the namespaces it needs."""
    from msgspec.structs import replace

    if capabilities.bwrap is None:
        return capabilities
    words = [capabilities.bwrap, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--", "/bin/true"]
    said = _fails(words)
    if said is None:
        return capabilities
    return replace(capabilities, bwrap_problem=f"bubblewrap does not work here ({said}); allow user namespaces")


def _engine_problem(engine: ContainerEngine) -> str | None:
    said = _fails([engine.path, "version", "--format", "{{.Server.Version}}" if engine.name == "docker" else "json"])
    return None if said is None else f"{engine.name} does not work ({said}); is it running, and may you use it?"


def _fails(words: Sequence[str]) -> str | None:
    """Run a harmless command; return its last line of stderr if it fails."""
    import subprocess

    try:
        ended = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no response within {_SECONDS:g} s"
    except OSError as error:
        return str(error)
    if ended.returncode == 0:
        return None
    lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else f"exit status {ended.returncode}"


# --- the kernel ------------------------------------------------------------------------------------------------------


def _landlock() -> int:
    """Ask the kernel for its version of Landlock; 0 if it has none."""
    version, _ = _ask(lambda libc: libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION))
    return max(0, version)


def _filters() -> bool:
    """Ask the kernel whether it supports seccomp filters, with a null filter: only then it fails with EFAULT."""
    _, number = _ask(lambda libc: libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, None, 0, 0))
    return number == errno.EFAULT


def _ask(call: Callable[..., int]) -> tuple[int, int]:
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        return int(call(libc)), ctypes.get_errno()
    except (AttributeError, ImportError, OSError):
        return 0, 0


_ISOLATION_OPTIONS = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")


def bubblewrap_options(access: FileAccess, *, home: str, cwd: str, network: bool) -> list[str]:
    """Return the options, without the server's environment and command."""
    words = [*_ISOLATION_OPTIONS, *(("--share-net",) if network else ())]
    for path in access.system:
        words += _system(path)
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    words += _binds(access)
    for place in access.covered:
        words += ["--tmpfs", place]
    for name, real in access.aliases:
        if not access.mounts(os.path.dirname(name)):
            words += ["--symlink", real, name]
    return [*words, "--bind", home, home, "--chdir", cwd]


def _system(path: str) -> Iterator[str]:
    """Bind a part of the system; a top-level symbolic link (``/lib``) is recreated as a link."""
    if os.path.islink(path) and path.count("/") == 1:
        yield from ("--symlink", os.readlink(path), path)
        return
    yield from ("--ro-bind-try", path, path)
    real = os.path.realpath(path)
    if real != path:
        # The target of a bound link, such as resolv.conf, may be looked up by its own name too.
        yield from ("--ro-bind-try", real, real)


def _binds(access: FileAccess) -> Iterator[str]:
    """Bind the granted paths; a path inside a bound one is there already, unless it is also writable."""
    shown: list[str] = []
    for path in sorted({*access.read, *access.write}, key=len):
        write = path in access.write
        if not any(is_within(path, each) for each in (access.write if write else shown) if each != path):
            yield from ("--bind" if write else "--ro-bind-try", path, path)
            shown.append(path)


# LANDLOCK_ACCESS_FS_* of linux/landlock.h.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE = 1 << 14  # LANDLOCK_ACCESS_FS_TRUNCATE.
_IOCTL_DEV = 1 << 15  # LANDLOCK_ACCESS_FS_IOCTL_DEV.
#: Creating and removing files, folders, sockets, pipes and links; creating devices (bits 6 and 11) is never granted.
_CHANGE = sum(1 << bit for bit in (4, 5, 7, 8, 9, 10, 12))
_REFER = 1 << 13  # LANDLOCK_ACCESS_FS_REFER.
_DEVICES = 1 << 6 | 1 << 11  # LANDLOCK_ACCESS_FS_MAKE_CHAR and LANDLOCK_ACCESS_FS_MAKE_BLOCK.

#: The rights that each version added.
_SINCE = (
    (1, _EXECUTE | _WRITE_FILE | _READ_FILE | _READ_DIR | _CHANGE | _DEVICES),
    (2, _REFER),
    (3, _TRUNCATE),
    (5, _IOCTL_DEV),
)
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE = _READ | _WRITE_FILE | _CHANGE | _REFER | _TRUNCATE
_DEVICE = _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
#: The rights that apply to a file; the others apply to folders only.
FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

_SCOPED_SINCE = 6  # The Landlock version that added scopes.
#: Abstract Unix sockets, and signals.
_ABSTRACT, _SIGNALS = 1, 2


def landlock_ruleset(version: int, access: FileAccess, *, sandboxed_sockets: bool) -> dict[str, Any]:
    """Return the handled rights, the scopes and the rules, for ``enter_sandbox``."""
    handled = 0
    for since, rights in _SINCE:
        if version >= since:
            handled |= rights
    scoped = 0 if version < _SCOPED_SINCE else _SIGNALS | _ABSTRACT if sandboxed_sockets else _SIGNALS
    rules = [
        *_rules(access.system, _READ & handled),
        *_rules(access.read, _READ & handled),
        *_rules(access.write, _WRITE & handled),
        *_rules(access.devices, _DEVICE & handled),
    ]
    return {
        "handled": handled,
        "scoped": scoped,
        "of_files": FILE_RIGHTS,
        "of_writing": _WRITE & handled,
        "rules": rules,
    }


def _rules(paths: Iterable[str], rights: int) -> list[list[Any]]:
    return [[path, rights] for path in paths]


#: The label of every container of the host; its value is the server's name.
LABEL = "trunkline.server"

#: Variables that affect the engine's own program.
_STEERS_ENGINE = re.compile(
    r"(?:LD|DYLD|DOCKER|CONTAINERS?|PODMAN|BUILDAH|XDG|SSH|DBUS)_.*|HOME|PATH|TMPDIR|USER|LOGNAME|SHELL", re.I
)
#: Variables that the engine gets from the host's environment.
_FOR_ENGINE = re.compile(r"(?:DOCKER|CONTAINERS?|XDG)_[A-Z_]+|DBUS_SESSION_BUS_ADDRESS|SSH_AUTH_SOCK")
#: A comma or a quote would end the value of a mount option.
_UNMOUNTABLE = re.compile('[,"\\n\\r]')


def choose_engine(container: ContainerSettings, capabilities: Capabilities) -> ContainerEngine | None:
    """Return the configured engine, or the first that works; None if there is none."""
    fitting = [each for each in capabilities.engines if container.engine in ("auto", each.name)]
    return next((each for each in fitting if each.problem is None), None)


def engine_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which an engine's program finds its daemon."""
    return {name: value for name, value in environ.items() if _FOR_ENGINE.fullmatch(name)}


def container_command(
    entry: ServerEntry,
    sandbox: SandboxSettings,
    access: FileAccess,
    *,
    engine: ContainerEngine,
    env: Mapping[str, str],
    user: int,
    group: int,
) -> list[str]:
    """Return the command that runs a server in a container, without the container's name.

    Raises:
        ConfigError: a variable or a path cannot be passed to the container.
    """
    container = sandbox.container
    assert container is not None
    assert entry.command is not None
    own = user if container.user is None else None
    return [
        *(engine.path, "run", "--rm", "--interactive", "--init", "--log-driver=none"),
        *("--cap-drop=ALL", "--security-opt=no-new-privileges", f"--label={LABEL}={entry.name}"),
        *(() if container.writable else ("--read-only",)),
        *("--tmpfs=/tmp:rw,nosuid,nodev,mode=1777", "--env=HOME=/tmp"),
        *(() if sandbox.network else ("--network=none",)),
        *_limits(sandbox),
        *_user(container, engine, own, group),
        *_mounts(access),
        *(f"--env={_passed(name)}" for name in sorted(env)),
        *_folder(entry, access),
        f"--entrypoint={entry.command[0]}",
        container.image,
        *entry.command[1:],
    ]


def _limits(sandbox: SandboxSettings) -> Iterator[str]:
    limits = sandbox.limits
    yield "--ulimit=core=0"
    if limits.memory is not None:
        # Memory and swap together; otherwise twice as much could be used.
        yield from (f"--memory={limits.memory}", f"--memory-swap={limits.memory}")
    if limits.processes is not None:
        yield f"--pids-limit={limits.processes}"
    if limits.files is not None:
        yield f"--ulimit=nofile={limits.files}:{limits.files}"
    if limits.cpu_seconds is not None:
        yield f"--ulimit=cpu={limits.cpu_seconds}:{limits.cpu_seconds}"


def _user(container: ContainerSettings, engine: ContainerEngine, user: int | None, group: int) -> Iterator[str]:
    """Run as the host's user, so that new files in the roots belong to that user."""
    if container.user is not None:
        yield f"--user={container.user}"
    elif user:
        if engine.name == "podman":
            yield "--userns=keep-id"
        yield f"--user={user}:{group}"


def _mounts(access: FileAccess) -> Iterator[str]:
    ways = dict.fromkeys(access.read, ",readonly") | dict.fromkeys(access.write, "")
    names = {path: path for path in ways} | dict(access.aliases)
    for name in sorted(names, key=len):
        yield f"--mount=type=bind,source={_mountable(names[name])},target={_mountable(name)}{ways[names[name]]}"
    for place in access.covered:
        yield f"--mount=type=tmpfs,target={_mountable(place)}"


def _mountable(path: str) -> str:
    if _UNMOUNTABLE.search(path):
        raise ConfigError(
            f"{path!r} cannot be mounted in a container: its name contains a comma, a quote or a line break"
        )
    return path


def _passed(name: str) -> str:
    if "=" in name or name.startswith("-") or _STEERS_ENGINE.fullmatch(name):
        raise ConfigError(
            f"the variable {name} would affect the container engine itself, so it cannot be passed to the container; "
            f"set it in the image"
        )
    return name


def _folder(entry: ServerEntry, access: FileAccess) -> Iterator[str]:
    if entry.cwd is not None and access.mounts(entry.cwd):
        yield f"--workdir={entry.cwd}"
