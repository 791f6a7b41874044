"""Reads a gateway file: TOML with the options of ``trunkline serve`` and its profiles.

An unknown key is an error that suggests the nearest one, since an option without effect would be mistaken for one that
works. Paths are relative to the file. A token may not be in it, since such files are shared.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

import msgspec
from msgspec import Meta, Struct

from trunkline.errors import ConfigError
from trunkline.host.config.spelling import nearest
from trunkline.host.entries import Filters
from trunkline.host.gateway.serving import Profile
from trunkline.host.judgement.approval import Approval
from trunkline.host.pins.reviewing import Scanning

__all__ = ["GatewayFile", "read_gateway_file"]

_Search = Literal["auto", "on", "off"]
_Rate = Annotated[float, Meta(gt=0)]
_Count = Annotated[int, Meta(ge=1)]
_MOST_BYTES = 1024 * 1024
# The name of a profile is a segment of the URL path.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class _Tools(Struct, frozen=True, kw_only=True):
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


class _Profile(Struct, frozen=True, kw_only=True):
    servers: tuple[str, ...] | None = None
    tools: _Tools = _Tools()
    policy: str | None = None
    rate: _Rate | None = None
    concurrent: _Count | None = None
    search: _Search | None = None
    approval: Approval | None = None


class _File(Struct, frozen=True, kw_only=True):
    http: str | int | None = None
    path: str | None = None
    policy: str | None = None
    lock: str | None = None
    scanning: Scanning | None = None
    approval: Approval | None = None
    rate: _Rate | None = None
    concurrent: _Count | None = None
    search: _Search | None = None
    wait: Annotated[float, Meta(ge=0)] | None = None
    starts: _Count | None = None
    certfile: str | None = None
    keyfile: str | None = None
    allowed_host: tuple[str, ...] | None = None
    issuer: str | None = None
    audience: str | None = None
    profile: dict[str, _Profile] = {}


class GatewayFile(NamedTuple):
    """The contents of a gateway file: options by their command-line names, and profiles."""

    options: Mapping[str, Any] = MappingProxyType({})
    profiles: Mapping[str, Profile] = MappingProxyType({})


def read_gateway_file(path: str) -> GatewayFile:
    """Read and validate a gateway file.

    Raises:
        ConfigError: it cannot be read, or its contents are invalid.
    """
    table = _load(path)
    _check_known(path, table, _File, "")
    profiles = table.get("profile", {})
    for name, inner in (profiles if isinstance(profiles, dict) else {}).items():
        if not _NAME.fullmatch(name):
            _fail(
                path,
                f"profile.{name!r}",
                "the name of a profile may have only letters, digits, dots, dashes and underscores",
            )
        if isinstance(inner, dict):
            _check_known(path, inner, _Profile, f"profile.{name}.")
            if isinstance(inner.get("tools"), dict):
                _check_known(path, inner["tools"], _Tools, f"profile.{name}.tools.")
    try:
        read = msgspec.convert(table, _File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error
    folder = os.path.dirname(os.path.abspath(path))
    options = {name: getattr(read, name) for name in _File.__struct_fields__ if name != "profile"}
    for name in ("policy", "lock", "certfile", "keyfile"):
        options[name] = _beside(folder, options[name])
    given = {name: value for name, value in options.items() if value is not None}
    return GatewayFile(given, {name: _profile(each, folder) for name, each in read.profile.items()})


def _load(path: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if len(text) > _MOST_BYTES:
        raise ConfigError(f"{path}: the file is larger than {_MOST_BYTES // 1024} KiB; is it the right file?")
    try:
        return tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: the file is not TOML: {error}") from error


def _check_known(path: str, table: Mapping[str, Any], kind: type[Struct], where: str) -> None:
    known = kind.__struct_fields__
    for name in table:
        if name not in known:
            if name == "token":
                _fail(
                    path, where + name, "a token may not be stored in the file; use --token or TRUNKLINE_GATEWAY_TOKEN"
                )
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else f"known keys: {', '.join(known)}"
            _fail(path, f"{where}{name[:60]}", f"unknown key; {hint}")


def _fail(path: str, key: str, sentence: str) -> NoReturn:
    raise ConfigError(f"{path}: {key}: {sentence}")


def _beside(folder: str, path: str | None) -> str | None:
    return None if path is None else os.path.join(folder, os.path.expanduser(path))


def _profile(read: _Profile, folder: str) -> Profile:
    tools = read.tools
    return Profile(
        servers=read.servers,
        tools=Filters(allow=tools.allow, deny=tools.deny, annotations=tools.annotations, tags=tools.tags),
        policy=_beside(folder, read.policy),
        per_minute=read.rate,
        concurrent=read.concurrent,
        search=read.search,
        approval=read.approval,
    )
