"""What this machine can sandbox a server with: the kernel's Landlock and seccomp, bubblewrap, and container engines.

The kernel is asked by two calls that change nothing, and programs are run only to see whether they work.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from trunkline.host.sandbox.filters import ARCHITECTURES

__all__ = ["Capabilities", "Engine", "capabilities", "look"]

_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION = 1
_PR_SET_SECCOMP = 22
_SECCOMP_FILTER = 2
_SECONDS = 5.0

#: The first Landlock version that prevents truncating files; earlier ones are not enough for a sandbox.
LEAST_LANDLOCK = 3
#: The first version that blocks signals to processes outside.
SIGNALS_LANDLOCK = 6


class Engine(Struct, frozen=True, kw_only=True):
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
    engines: tuple[Engine, ...] = ()

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
        if LEAST_LANDLOCK <= self.landlock < SIGNALS_LANDLOCK:
            found.append(SIGNALS_OPEN)
        if self.platform == "linux" and self.user == 0:
            found.append(NO_COUNT_FOR_ROOT)
        return tuple(found)


SIGNALS_OPEN = "Landlock here does not stop a server from sending signals to your other programs (Linux 6.12 does)"
NO_COUNT_FOR_ROOT = "the number of processes cannot be limited for root; run as another user, or use a container"


def _no_landlock(able: Capabilities) -> str | None:
    if able.platform != "linux":
        return "Landlock exists only on Linux; use a container"
    if able.landlock == 0:
        return "the kernel has no Landlock, or it is switched off (lsm=); use Linux 6.2 or later, or a container"
    if able.landlock < LEAST_LANDLOCK:
        return "the kernel's Landlock does not prevent truncating files; use Linux 6.2 or later, or a container"
    if not able.filters:
        return f"system calls cannot be filtered on this machine ({able.architecture}); use a container"
    return None


def _no_bwrap(able: Capabilities) -> str | None:
    if able.platform != "linux":
        return "bubblewrap exists only on Linux; use a container"
    if able.bwrap is None:
        return "bubblewrap is not installed; install the package bubblewrap"
    if able.bwrap_problem is not None:
        return able.bwrap_problem
    return None if able.filters else f"system calls cannot be filtered on this machine ({able.architecture})"


def _no_container(able: Capabilities) -> str | None:
    if not able.engines:
        return "neither docker nor podman is installed; install one of them"
    return None if any(each.problem is None for each in able.engines) else able.engines[0].problem


_OBSTACLES: Mapping[str, Callable[[Capabilities], str | None]] = MappingProxyType(
    {"landlock": _no_landlock, "bwrap": _no_bwrap, "container": _no_container}
)


def look(path: str | None = None) -> Capabilities:
    """Detect what is installed, without running anything; ``path`` is the search path of programs."""
    from shutil import which

    engines = [Engine(name=name, path=found) for name in ("docker", "podman") if (found := which(name, path=path))]
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


def capabilities(path: str | None = None) -> Capabilities:
    """Detect what works on this machine; this runs bubblewrap and the engines, so call it in a thread."""
    from msgspec.structs import replace

    seen = check_bwrap(look(path))
    engines = tuple(replace(each, problem=_engine_problem(each)) for each in seen.engines)
    return replace(seen, engines=engines)


def check_bwrap(able: Capabilities) -> Capabilities:
    """Check whether bubblewrap works, if it is installed: some systems forbid the namespaces it needs."""
    from msgspec.structs import replace

    if able.bwrap is None:
        return able
    words = [able.bwrap, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--", "/bin/true"]
    said = _fails(words)
    if said is None:
        return able
    return replace(able, bwrap_problem=f"bubblewrap does not work here ({said}); allow user namespaces")


def _engine_problem(engine: Engine) -> str | None:
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
