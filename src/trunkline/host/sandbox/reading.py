"""Reads the ``sandbox`` of an entry; whatever is not understood is refused, because it was meant to keep something out.

Names may be spelt in either way (``readOnly``, ``read_only``). Pure, but for ``~``, which is the user's home.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, get_args

from trunkline.errors import ConfigError
from trunkline.host.config.spelling import camel, nearest, quoted, snake
from trunkline.host.sandbox.wishes import Container, Kind, Quotas, Sandbox

__all__ = ["read_sandbox"]

_Read: TypeAlias = Callable[[str, Any], Any]

_KINDS: tuple[str, ...] = get_args(Kind)
_UNITS: Mapping[str, int] = MappingProxyType({"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40})
_AMOUNT = re.compile(r"(\d{1,15}) ?([KMGT]?)(?:i?B)?", re.I)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")
# The first sign can be no dash: such a name would be taken for an option.
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,511}")
_USER = re.compile(r"\d{1,10}(?::\d{1,10})?")
_SMALLEST_MEMORY = 16 << 20


def read_sandbox(raw: Any) -> Sandbox | None:
    """Read what an entry says under ``sandbox``: true, a kind, or an object; None where it says false or nothing.

    Raises:
        ConfigError: it is not understood; the message names the member and the fix.
    """
    if raw is None or raw is False:
        return None
    if raw is True:
        return Sandbox()
    if isinstance(raw, str):
        return _checked({"kind": _kind("sandbox", raw)})
    if not isinstance(raw, Mapping):
        raise _expected("sandbox", "true, a kind of sandbox or an object", raw)
    return _checked(_members("sandbox", raw, _SANDBOX))


def _checked(given: dict[str, Any]) -> Sandbox:
    """Put a sandbox together whose members agree with each other."""
    if "container" in given and given.setdefault("kind", "container") != "container":
        raise ConfigError(f'sandbox.kind: "{given["kind"]}" has no container; leave out one of them')
    sandbox = Sandbox(**given)
    if sandbox.kind == "container" and sandbox.container is None:
        raise ConfigError('sandbox.container: which image? write {"container": "image"}')
    if sandbox.kind == "container" and not sandbox.required:
        raise ConfigError("sandbox.required: what runs in a container cannot be started without one; leave it out")
    return sandbox


def _members(key: str, raw: Any, known: Mapping[str, _Read]) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise _expected(key, "an object", raw)
    given: dict[str, Any] = {}
    for name, value in raw.items():
        spelt = snake(str(name))
        if spelt not in known:
            near = nearest(str(name), known)
            hint = f'did you mean "{camel(near)}"?' if near else f"it may have {', '.join(map(camel, known))}"
            raise ConfigError(f"{key}.{quoted(str(name))}: this member is not known; {hint}")
        if spelt in given:
            raise ConfigError(f"{key}.{camel(spelt)}: it is given twice; keep one of them")
        if value is not None:
            given[spelt] = known[spelt](f"{key}.{camel(spelt)}", value)
    return given


def _expected(key: str, what: str, found: Any) -> ConfigError:
    """Say what was expected; of what was found only the kind, since it may be secret."""
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return ConfigError(f"{key}: expected {what}, found {kinds.get(type(found), 'something else')}")


# --- values ----------------------------------------------------------------------------------------------------------


def _flag(key: str, raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise _expected(key, "true or false", raw)
    return raw


def _text(key: str, raw: Any) -> str:
    if not isinstance(raw, str) or not raw or "\0" in raw:
        raise _expected(key, "a text", raw)
    return raw


def _one_of(*choices: str) -> _Read:
    def read(key: str, raw: Any) -> str:
        text = _text(key, raw)
        if text not in choices:
            near = nearest(text, choices)
            hint = f'; did you mean "{near}"?' if near else ""
            raise ConfigError(f"{key}: {quoted(text)} is none of {', '.join(choices)}{hint}")
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
        raise ConfigError(f"{key}: expected a whole path; write one, or begin it with ~ or ${{workspaceFolder}}")
    return os.path.normpath(path)


def _variable(key: str, raw: Any) -> str:
    if _VARIABLE.fullmatch(_text(key, raw)) is None:
        raise ConfigError(f"{key}: expected the name of a variable, with a * at its end for any ending")
    return str(raw)


def _count(least: int) -> _Read:
    def read(key: str, raw: Any) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int):
            raise _expected(key, "a whole number", raw)
        if not least <= raw < 1 << 31:
            raise ConfigError(f"{key}: expected a whole number from {least}, found {raw}")
        return raw

    return read


def _memory(key: str, raw: Any) -> int:
    text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw
    found = _AMOUNT.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ConfigError(f'{key}: expected bytes, or an amount such as "512 MB"')
    size = int(found[1]) * _UNITS[found[2].upper()]
    if not _SMALLEST_MEMORY <= size < 1 << 62:
        raise ConfigError(f"{key}: expected at least {_SMALLEST_MEMORY >> 20} MB, found {size} bytes")
    return size


def _image(key: str, raw: Any) -> str:
    if _IMAGE.fullmatch(_text(key, raw)) is None:
        raise ConfigError(f"{key}: {quoted(raw)} is no name of an image")
    return str(raw)


def _user(key: str, raw: Any) -> str:
    text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else _text(key, raw)
    if _USER.fullmatch(text) is None:
        raise ConfigError(f'{key}: expected the number of a user, or of user and group as in "1000:1000"')
    return text


def _container(key: str, raw: Any) -> Container:
    given = {"image": _image(key, raw)} if isinstance(raw, str) else _members(key, raw, _CONTAINER)
    if "image" not in given:
        raise ConfigError(f'{key}.image: which image? write {{"container": "image"}}')
    return Container(**given)


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
        "limits": lambda key, raw: Quotas(**_members(key, raw, _QUOTAS)),
        "container": _container,
    }
)
