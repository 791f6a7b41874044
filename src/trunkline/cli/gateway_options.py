"""The settings of a gateway: a TOML file with options and profiles, and the approval mode with its description."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, cast

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from trunkline.cli.serving_options import is_path
from trunkline.cli.ui.output import print_notice
from trunkline.errors import ConfigError
from trunkline.host.authorization.approval import (
    APPROVAL_MODE_HELP,
    ApprovalMode,
    GatewayExposure,
    default_approval_mode,
    stricter_mode,
)
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.config.model import Filters
from trunkline.host.config.spelling import nearest
from trunkline.host.gateway.app import Profile, ServeOptions, gateway_exposure
from trunkline.host.integrity.pins.catalog_review import ScanMode

__all__ = [
    "GatewayFile",
    "apply_approval",
    "approval_sentence",
    "approval_status_line",
    "approval_summary",
    "default_serve_approval",
    "denies_every_tool",
    "print_approval",
    "profile_approvals",
    "profile_status_lines",
    "read_gateway_file",
    "resolve_approval",
]

_SHORT: Mapping[ApprovalMode, str] = MappingProxyType(
    {
        "client": "the client asks its own user",
        "ask": "asks by elicitation",
        "deny": "only what rules allow",
    }
)
_CHANGE = "set it with --approval client, ask or deny"


def resolve_approval(settings: Mapping[str, Any], options: Mapping[str, Any]) -> ApprovalMode:
    """Return the mode set by option or gateway file, else the default for who can reach the gateway."""
    chosen: ApprovalMode | None = settings.get("approval")
    return default_approval_mode(_exposure(options)) if chosen is None else chosen


def _exposure(options: Mapping[str, Any]) -> GatewayExposure:
    return gateway_exposure(cast("ServeOptions", options))


def apply_approval(profiles: Mapping[str, Profile], flag: ApprovalMode | None) -> dict[str, Profile]:
    """Return the profiles with the mode of ``--approval`` applied: each gets the stricter of that and its own."""
    return {
        name: each if flag is None else replace(each, approval=stricter_mode(flag, each.approval))
        for name, each in profiles.items()
    }


def print_approval(options: Mapping[str, Any]) -> None:
    """Print the approval modes of a gateway to stderr; warn if mode ``client`` is used where others can call."""
    mode: ApprovalMode = options["approval"]
    profiles: Mapping[str, Profile] = options.get("profiles") or {}
    served = options.get("profile")
    if served is not None:
        mode = profiles[served].approval or mode
    print_notice(approval_sentence(mode))
    told = {mode}
    for name, profile in profiles.items() if served is None else ():
        if profile.approval not in (None, mode):
            print_notice(f"profile {name}: {approval_sentence(profile.approval)}")
            told.add(profile.approval)
    exposed = default_approval_mode(_exposure(options)) != "client"
    if exposed and "client" in told:
        print_notice(
            "warning: clients other than your own can call this gateway, and mode client does not ask; "
            "use --approval ask"
        )


def approval_sentence(mode: ApprovalMode) -> str:
    """Return one sentence on what a mode means and how to change it."""
    return f"approval mode {mode}: {APPROVAL_MODE_HELP[mode]} ({_CHANGE})"


def default_serve_approval(file: str | None = None) -> ApprovalMode:
    """Return the mode that ``trunkline serve`` uses by default: over stdio, or with a gateway file.

    Raises:
        ConfigError: the file cannot be read.
    """
    if file is None:
        return default_approval_mode(gateway_exposure({}))

    written = read_gateway_file(file).options
    chosen: ApprovalMode | None = written.get("approval")
    if chosen is not None:
        return chosen
    exposure = gateway_exposure({"http": written.get("http"), "allowed_hosts": written.get("allowed_host", ())})
    return default_approval_mode(replace(exposure, static_token=exposure.static_token and "issuer" not in written))


def profile_approvals(file: str | None, mode: ApprovalMode) -> dict[str, ApprovalMode]:
    """Return the mode of each profile in a gateway file; ``mode`` applies to profiles without one.

    Raises:
        ConfigError: the file cannot be read.
    """
    if file is None:
        return {}

    return {name: profile.approval or mode for name, profile in read_gateway_file(file).profiles.items()}


def approval_summary(mode: ApprovalMode) -> str:
    """Return one line on how ``trunkline serve`` would treat calls under the user's own policy."""
    if not denies_every_tool(mode, _own_policy()):
        return approval_sentence(mode)
    who = "a client without elicitation" if mode == "ask" else "every client"
    return f"{approval_sentence(mode)}; no rule allows a tool, so {who} is denied every tool call without a grant"


def approval_status_line(mode: ApprovalMode) -> str:
    """Return the line for ``trunkline status``, short enough for a terminal."""
    if denies_every_tool(mode, _own_policy()):
        why = " if the client cannot be asked" if mode == "ask" else ", since no rule allows a tool"
        return f"trunkline serve: approval mode {mode}, denies calls{why}"
    return f"trunkline serve: approval mode {mode}, {_SHORT[mode]}"


def profile_status_lines(modes: Mapping[str, ApprovalMode]) -> list[str]:
    """Return a line for each profile, short enough for a terminal."""
    return [f"profile {name}: approval mode {mode}, {_SHORT[mode]}" for name, mode in modes.items()]


def denies_every_tool(mode: ApprovalMode, policy: Policy) -> bool:
    """Return True if no rule allows a tool: a client without elicitation then gets only what was granted."""
    return mode != "client" and not any(rule.effect == "allow" and "tool" in rule.kinds for rule in policy.rules)


def _own_policy() -> Policy:
    from trunkline.errors import ConfigError
    from trunkline.host.authorization.policy.loader import load_policy
    from trunkline.host.state_files import config_folder

    path = config_folder() / "policy.toml"
    try:
        return load_policy(path) if path.exists() else Policy(())
    except ConfigError:
        # The commands that need the policy report what is wrong with it.
        return Policy(())


_Search = Literal["auto", "on", "off"]
_Rate = Annotated[float, Meta(gt=0)]
_Seconds = Annotated[float, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=1)]
_MOST_BYTES = 1024 * 1024  # Configuration files have a few KiB; a larger one is another file.
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
    approval: ApprovalMode | None = None
    slow_calls: Literal["hold", "poll"] | None = None
    task_after: _Seconds | None = None


class _File(Struct, frozen=True, kw_only=True):
    http: str | int | None = None
    path: str | None = None
    policy: str | None = None
    lock: str | None = None
    scanning: ScanMode | None = None
    approval: ApprovalMode | None = None
    rate: _Rate | None = None
    concurrent: _Count | None = None
    search: _Search | None = None
    slow_calls: Literal["hold", "poll"] | None = None
    task_after: _Seconds | None = None
    wait: _Seconds | None = None
    starts: _Count | None = None
    workers: Annotated[int, Meta(ge=1, le=512)] | None = None
    store: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    allowed_host: tuple[str, ...] | None = None
    issuer: str | None = None
    audience: str | None = None
    rate_limit: str | None = None
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
    table = _read_toml(path)
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
        options[name] = _relative_to(folder, options[name])
    if is_path(options["store"]):
        options["store"] = _relative_to(folder, options["store"])
    given = {name: value for name, value in options.items() if value is not None}
    return GatewayFile(given, {name: _profile(each, folder) for name, each in read.profile.items()})


def _read_toml(path: str) -> dict[str, Any]:
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
            if name == "tasks_file":
                _fail(path, where + name, 'write store = "FILE", which keeps everything that outlives a request')
            near = nearest(name, known)
            hint = f'did you mean "{near}"?' if near else f"known keys: {', '.join(known)}"
            _fail(path, f"{where}{name[:60]}", f"unknown key; {hint}")


def _fail(path: str, key: str, sentence: str) -> NoReturn:
    raise ConfigError(f"{path}: {key}: {sentence}")


def _relative_to(folder: str, path: str | None) -> str | None:
    return None if path is None else os.path.join(folder, os.path.expanduser(path))


def _profile(read: _Profile, folder: str) -> Profile:
    tools = read.tools
    return Profile(
        servers=read.servers,
        tools=Filters(allow=tools.allow, deny=tools.deny, annotations=tools.annotations, tags=tools.tags),
        policy=_relative_to(folder, read.policy),
        per_minute=read.rate,
        concurrent=read.concurrent,
        search=read.search,
        approval=read.approval,
        slow_calls=read.slow_calls,
        task_after=read.task_after,
    )
