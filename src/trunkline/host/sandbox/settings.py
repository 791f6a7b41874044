"""The ``sandbox`` of an entry: its settings as frozen records, and the parser.

Anything that is not understood is rejected, because it was meant to keep something out. Member names may be camelCase
or snake_case. Pure, except for ``~``, which is the user's home.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.config.spelling import camel, nearest, quoted, snake

__all__ = ["NO_LIMITS", "ContainerSettings", "ResourceLimits", "SandboxKind", "SandboxSettings", "parse_sandbox"]

#: ``auto`` is bubblewrap where it works, else Landlock.
SandboxKind: TypeAlias = Literal["auto", "landlock", "bwrap", "container"]


class ResourceLimits(Struct, frozen=True, kw_only=True):
    """Resource limits of a server; None: no limit beyond the user's."""

    #: Bytes of memory per process; in a container for all processes together.
    memory: int | None = None
    #: Concurrent processes and threads.
    processes: int | None = None
    #: Open files per process.
    files: int | None = None
    #: Seconds of CPU time per process.
    cpu_seconds: int | None = None


NO_LIMITS = ResourceLimits()


class ContainerSettings(Struct, frozen=True, kw_only=True):
    """The container a server runs in."""

    image: str
    engine: Literal["auto", "docker", "podman"] = "auto"
    #: The image's files may be changed; the changes are discarded with the container.
    writable: bool = False
    #: ``uid`` or ``uid:gid`` inside the container; None: the host's user.
    user: str | None = None


class SandboxSettings(Struct, frozen=True, kw_only=True):
    """The restrictions of a server."""

    kind: SandboxKind = "auto"
    #: If the sandbox is not available, do not start the server; otherwise start it, and report that in its status.
    required: bool = True
    #: Folders and files it may read or write, in addition to the roots.
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    #: The roots are read-only; None: the default, which is yes in a container and no otherwise.
    read_only: bool | None = None
    network: bool = True
    #: It may use named Unix sockets, through which other programs of the user can be reached.
    sockets: bool = False
    #: It may watch files (inotify); under Landlock this includes folders outside the sandbox.
    watch: bool = True
    #: Variables it inherits in addition to its entry's own and a few harmless ones; a trailing * matches any ending.
    env: tuple[str, ...] = ()
    limits: ResourceLimits = NO_LIMITS
    container: ContainerSettings | None = None

    @property
    def roots_writable(self) -> bool:
        """Whether the server may write to its roots."""
        return self.kind != "container" if self.read_only is None else not self.read_only


_Read: TypeAlias = Callable[[str, Any], Any]

_KINDS: tuple[str, ...] = get_args(SandboxKind)
_UNITS: Mapping[str, int] = MappingProxyType({"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40})
_AMOUNT = re.compile(r"(\d{1,15}) ?([KMGT]?)(?:i?B)?", re.I)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")
# The first character cannot be a dash: such a name would be read as an option.
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,511}")
_USER = re.compile(r"\d{1,10}(?::\d{1,10})?")
_SMALLEST_MEMORY = 16 << 20  # Interpreters do not start with less.


def parse_sandbox(raw: Any) -> SandboxSettings | None:
    """Parse the ``sandbox`` of an entry: true, a kind, or an object; return None for false or nothing.

    Raises:
        ConfigError: it is not valid; the message names the member and the fix.
    """
    if raw is None or raw is False:
        return None
    if raw is True:
        return SandboxSettings()
    if isinstance(raw, str):
        return _checked({"kind": _kind("sandbox", raw)})
    if not isinstance(raw, Mapping):
        raise _expected("sandbox", "true, a kind of sandbox or an object", raw)
    return _checked(_members("sandbox", raw, _SANDBOX))


def _checked(given: dict[str, Any]) -> SandboxSettings:
    """Build the settings from members that are consistent with each other."""
    if "container" in given and given.setdefault("kind", "container") != "container":
        raise ConfigError(f'sandbox.kind: "{given["kind"]}" cannot be combined with container; remove one of them')
    sandbox = SandboxSettings(**given)
    if sandbox.kind == "container" and sandbox.container is None:
        raise ConfigError('sandbox.container: the image is missing; write {"container": "image"}')
    if sandbox.kind == "container" and not sandbox.required:
        raise ConfigError(
            "sandbox.required: a containerized server cannot be started without its container; remove this member"
        )
    return sandbox


def _members(key: str, raw: Any, known: Mapping[str, _Read]) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise _expected(key, "an object", raw)
    given: dict[str, Any] = {}
    for name, value in raw.items():
        spelt = snake(str(name))
        if spelt not in known:
            near = nearest(str(name), known)
            hint = f'did you mean "{camel(near)}"?' if near else f"known members: {', '.join(map(camel, known))}"
            raise ConfigError(f"{key}.{quoted(str(name))}: unknown member; {hint}")
        if spelt in given:
            raise ConfigError(f"{key}.{camel(spelt)}: given twice; keep one of them")
        if value is not None:
            given[spelt] = known[spelt](f"{key}.{camel(spelt)}", value)
    return given


def _expected(key: str, what: str, found: Any) -> ConfigError:
    """Return the error for a value of the wrong type; the value itself is not shown, since it may be secret."""
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return ConfigError(f"{key}: expected {what}, found {kinds.get(type(found), 'something else')}")


# --- values ----------------------------------------------------------------------------------------------------------


def _flag(key: str, raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise _expected(key, "true or false", raw)
    return raw


def _text(key: str, raw: Any) -> str:
    if not isinstance(raw, str) or not raw or "\0" in raw:
        raise _expected(key, "a string", raw)
    return raw


def _one_of(*choices: str) -> _Read:
    def read(key: str, raw: Any) -> str:
        text = _text(key, raw)
        if text not in choices:
            near = nearest(text, choices)
            hint = f'; did you mean "{near}"?' if near else ""
            raise ConfigError(f"{key}: {quoted(text)} is not one of {', '.join(choices)}{hint}")
        return text

    return read


def _kind(key: str, raw: Any) -> Any:
    return "bwrap" if raw == "bubblewrap" else _one_of(*_KINDS)(key, raw)


def _list(key: str, raw: Any, read: _Read) -> tuple[Any, ...]:
    if not isinstance(raw, list | tuple):
        raise _expected(key, "a list", raw)
    return tuple(read(f"{key}[{at}]", item) for at, item in enumerate(raw))


def _path(key: str, raw: Any) -> str:
    path = os.path.expanduser(_text(key, raw))
    if not os.path.isabs(path):
        raise ConfigError(f"{key}: expected an absolute path, or one that begins with ~ or ${{workspaceFolder}}")
    return os.path.normpath(path)


def _variable(key: str, raw: Any) -> str:
    if _VARIABLE.fullmatch(_text(key, raw)) is None:
        raise ConfigError(f"{key}: expected the name of a variable, optionally with a trailing * for any ending")
    return str(raw)


def _count(least: int) -> _Read:
    def read(key: str, raw: Any) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int):
            raise _expected(key, "an integer", raw)
        if not least <= raw < 1 << 31:
            raise ConfigError(f"{key}: expected an integer of at least {least}, found {raw}")
        return raw

    return read


def _memory(key: str, raw: Any) -> int:
    text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw
    found = _AMOUNT.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ConfigError(f'{key}: expected a number of bytes, or an amount such as "512 MB"')
    size = int(found[1]) * _UNITS[found[2].upper()]
    if not _SMALLEST_MEMORY <= size < 1 << 62:
        raise ConfigError(f"{key}: expected at least {_SMALLEST_MEMORY >> 20} MB, found {size} bytes")
    return size


def _image(key: str, raw: Any) -> str:
    if _IMAGE.fullmatch(_text(key, raw)) is None:
        raise ConfigError(f"{key}: {quoted(raw)} is not a valid image name")
    return str(raw)


def _user(key: str, raw: Any) -> str:
    text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else _text(key, raw)
    if _USER.fullmatch(text) is None:
        raise ConfigError(f'{key}: expected a user id, or user and group ids as in "1000:1000"')
    return text


def _container(key: str, raw: Any) -> ContainerSettings:
    given = {"image": _image(key, raw)} if isinstance(raw, str) else _members(key, raw, _CONTAINER)
    if "image" not in given:
        raise ConfigError(f'{key}.image: the image is missing; write {{"container": "image"}}')
    return ContainerSettings(**given)


_CONTAINER: Mapping[str, _Read] = MappingProxyType(
    {"image": _image, "engine": _one_of("auto", "docker", "podman"), "writable": _flag, "user": _user}
)
_QUOTAS: Mapping[str, _Read] = MappingProxyType(
    {"memory": _memory, "processes": _count(1), "files": _count(16), "cpu_seconds": _count(1)}
)
_SANDBOX: Mapping[str, _Read] = MappingProxyType(
    {
        "kind": _kind,
        "required": _flag,
        "read": lambda key, raw: _list(key, raw, _path),
        "write": lambda key, raw: _list(key, raw, _path),
        "read_only": _flag,
        "network": _flag,
        "sockets": _flag,
        "watch": _flag,
        "env": lambda key, raw: _list(key, raw, _variable),
        "limits": lambda key, raw: ResourceLimits(**_members(key, raw, _QUOTAS)),
        "container": _container,
    }
)
