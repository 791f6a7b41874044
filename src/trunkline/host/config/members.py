"""The members an entry may have, ours and those of other hosts with the same meaning; rows, no branches.

A member is looked up by its name in either spelling (``idleStop``, ``idle_stop``). Members that other hosts support and
this one does not have a message that says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trunkline.host.config.collecting import Collector
from trunkline.host.config.positions import Leaf, Member, Members
from trunkline.host.config.spelling import camel, hidden_space, nearest, quoted, snake

__all__ = ["gather"]

#: Members on how to reach a server: the canonical name of each spelling.
_REACHING: Mapping[str, str] = MappingProxyType(
    {
        "type": "type",
        "transport": "type",
        "transport_type": "type",
        "command": "command",
        "args": "args",
        "env": "env",
        "env_file": "env_file",
        "cwd": "cwd",
        "url": "url",
        "http_url": "http_url",
        "server_url": "server_url",
        "headers": "headers",
        "http_headers": "headers",
        "auth": "auth",
        "oauth": "oauth",
        "disabled": "disabled",
        "enabled": "enabled",
    }
)
#: Settings, with the names that other hosts use for them.
_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "era": "era",
        "timeout": "timeout",
        "tool_timeout_sec": "timeout",
        "total_timeout": "total_timeout",
        "start_timeout": "start_timeout",
        "startup_timeout": "start_timeout",
        "startup_timeout_sec": "start_timeout",
        "start": "start",
        "wait": "wait",
        "required": "required",
        "idle_stop": "idle_stop",
        "dedicated_idle": "dedicated_idle",
        "dedicated_most": "dedicated_most",
        "crashes": "crashes",
        "crash_seconds": "crash_seconds",
        "health_seconds": "health_seconds",
        "roots": "roots",
        "asks": "asks",
        "trusted": "trusted",
        "tools": "tools",
        "prompts": "prompts",
        "resources": "resources",
        "include_tools": "include_tools",
        "enabled_tools": "include_tools",
        "allowed_tools": "include_tools",
        "exclude_tools": "exclude_tools",
        "disabled_tools": "exclude_tools",
        "share": "share",
        "per_user": "per_user",
        "concurrency": "concurrency",
        "message_bytes": "message_bytes",
        "always_load": "always_load",
        "pins": "pins",
        "sandbox": "sandbox",
        "sampling": "sampling",
    }
)
_POLICY = "it is ignored: what needs no approval is set in the policy"
#: Members of other hosts that are not supported, each with its message.
_IGNORED: Mapping[str, str] = MappingProxyType(
    {
        "always_allow": _POLICY,
        "auto_approve": _POLICY,
        "trust": _POLICY,
        "headers_helper": "it is ignored: no command is run to make headers; use a variable in headers",
        "auth_provider_type": "it is ignored: write an oauth object",
    }
)
#: Members that do not affect how a server is run.
_REMARKS = frozenset(
    {"$schema", "description", "dev", "gallery", "icon", "metadata", "name", "note", "title", "version"}
)
_OWN = "trunkline"


def gather(entry: Members, into: Collector) -> dict[str, Member]:
    """Collect the members of an entry by canonical name; report unknown, repeated and misspelt ones."""
    into.check_repeated(None, entry)
    found: dict[str, Member] = {}
    for member in entry.members.values():
        if member.name == _OWN:
            _gather_own(member, into, found=found)
        else:
            _take(member, into, found=found, known={**_REACHING, **_SETTINGS})
    return found


def _gather_own(own: Member, into: Collector, *, found: dict[str, Member]) -> None:
    inner = into.members(_OWN, own.value)
    for member in () if inner is None else inner.members.values():
        _take(member, into, found=found, known=_SETTINGS)


def _take(member: Member, into: Collector, *, found: dict[str, Member], known: Mapping[str, str]) -> None:
    name, spelt = member.name, snake(member.name)
    if spelt in known:
        if isinstance(member.value, Leaf) and member.value.value is None:
            # Some applications write null for what was not filled in.
            return
        canonical = known[spelt]
        if canonical in found:
            twin = found[canonical]
            into.fail(name, member.line, f"{twin.name} says the same thing (line {twin.line})", fix="keep one of them")
            return
        found[canonical] = member
    elif spelt in _IGNORED:
        into.warn(name, member.line, _IGNORED[spelt])
    elif spelt not in _REMARKS and not name.startswith(("_", "//")):
        _unknown(member, into, known=known)


def _unknown(member: Member, into: Collector, *, known: Mapping[str, str]) -> None:
    name = member.name
    space = hidden_space(name)
    if space is not None:
        meant = nearest(name, known)
        fix = f'write "{camel(meant)}"' if meant else "take it out"
        into.fail(quoted(name), member.line, f"the name has {space}", fix=fix)
        return
    meant = nearest(name, known)
    hint = f'did you mean "{camel(meant)}"?' if meant else None
    into.warn(quoted(name), member.line, "unknown member, ignored", fix=hint)
