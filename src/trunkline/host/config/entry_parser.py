"""Parses one entry of a configuration into a ``ServerEntry``, whichever application it was written for.

Whatever is wrong becomes the entry's ``problem`` and does not affect other entries; an entry with a problem contains
nothing that could be started. Reads no file but the ``envFile`` the entry names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from trunkline.host.config.entry_reader import EntryContext, EntryReader
from trunkline.host.config.jsonc import JsonNode, JsonObject, JsonProperty, JsonScalar
from trunkline.host.config.model import ConfigProblem, Provenance, ServerEntry, Source
from trunkline.host.config.settings import read_flag, read_settings
from trunkline.host.config.spelling import camel, hidden_space, nearest, quoted, snake
from trunkline.host.config.transport import TransportConfig, parse_http, parse_stdio

__all__ = ["ParsedEntry", "collect_members", "is_disabled", "parse_entry"]

#: Members on how to reach a server: the canonical name of each spelling.
_TRANSPORT_MEMBERS: Mapping[str, str] = MappingProxyType(
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
        "extensions": "extensions",
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


def collect_members(entry: JsonObject, reader: EntryReader) -> dict[str, JsonProperty]:
    """Collect the members of an entry by canonical name; report unknown, repeated and misspelt ones."""
    reader.check_repeated(None, entry)
    found: dict[str, JsonProperty] = {}
    for member in entry.members.values():
        if member.name == _OWN:
            _collect_own(member, reader, found=found)
        else:
            _add_member(member, reader, found=found, known={**_TRANSPORT_MEMBERS, **_SETTINGS})
    return found


def _collect_own(own: JsonProperty, reader: EntryReader, *, found: dict[str, JsonProperty]) -> None:
    inner = reader.members(_OWN, own.value)
    for member in () if inner is None else inner.members.values():
        _add_member(member, reader, found=found, known=_SETTINGS)


def _add_member(
    member: JsonProperty, reader: EntryReader, *, found: dict[str, JsonProperty], known: Mapping[str, str]
) -> None:
    name, spelt = member.name, snake(member.name)
    if spelt in known:
        if isinstance(member.value, JsonScalar) and member.value.value is None:
            # Some applications write null for what was not filled in.
            return
        canonical = known[spelt]
        if canonical in found:
            twin = found[canonical]
            reader.report_error(
                name, member.line, f"{twin.name} says the same thing (line {twin.line})", fix="keep one of them"
            )
            return
        found[canonical] = member
    elif spelt in _IGNORED:
        reader.report_warning(name, member.line, _IGNORED[spelt])
    elif spelt not in _REMARKS and not name.startswith(("_", "//")):
        _unknown(member, reader, known=known)


def _unknown(member: JsonProperty, reader: EntryReader, *, known: Mapping[str, str]) -> None:
    name = member.name
    space = hidden_space(name)
    if space is not None:
        meant = nearest(name, known)
        fix = f'write "{camel(meant)}"' if meant else "take it out"
        reader.report_error(quoted(name), member.line, f"the name has {space}", fix=fix)
        return
    meant = nearest(name, known)
    hint = f'did you mean "{camel(meant)}"?' if meant else None
    reader.report_warning(quoted(name), member.line, "unknown member, ignored", fix=hint)


#: The transport types that other applications write, and what they mean here.
_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "stdio": "stdio",
        "local": "stdio",
        "http": "http",
        "streamable-http": "http",
        "streamable_http": "http",
        "streamablehttp": "http",
        "remote": "http",
        "sse": "sse",
    }
)


class ParsedEntry(Struct, frozen=True, kw_only=True):
    """A parsed entry with the provenance of its values and warnings."""

    entry: ServerEntry
    provenance: Provenance
    warnings: tuple[ConfigProblem, ...] = ()


def parse_entry(
    name: str, node: JsonNode, *, source: Source, context: EntryContext, problem: ConfigProblem | None = None
) -> ParsedEntry:
    """Parse an entry; a problem that is already known, such as one with its name, is reported first."""
    reader = EntryReader(name, context)
    if problem is not None:
        reader.problems.append(problem)
    transport, disabled, settings = TransportConfig(), False, read_settings({}, reader, project=False)
    if isinstance(node, JsonObject):
        found = collect_members(node, reader)
        disabled = _disabled(found, reader)
        transport = _transport(found, node, reader)
        settings = read_settings(found, reader, project=source.scope == "project")
    else:
        reader.report_expected("", node, "an object with a command or a url")
    if reader.problems:
        # What was only half understood must not be started by mistake.
        transport = TransportConfig()
    entry = ServerEntry(
        name=name,
        source=source,
        disabled=disabled,
        settings=settings,
        secrets=frozenset(reader.secrets),
        sealed=() if reader.problems else tuple(reader.sealed),
        problem="; ".join(map(str, reader.problems)) or None,
        **transport._asdict(),
    )
    return ParsedEntry(entry=entry, provenance=reader.provenance(), warnings=tuple(reader.warnings))


def is_disabled(node: JsonNode) -> bool:
    """Return True if an entry is disabled, without parsing the rest of it."""
    if not isinstance(node, JsonObject):
        return False
    flags = [(name, node.members[name].value) for name in ("disabled", "enabled") if name in node.members]
    return any(isinstance(value, JsonScalar) and value.value is (name == "disabled") for name, value in flags)


def _disabled(found: Mapping[str, JsonProperty], reader: EntryReader) -> bool:
    if "disabled" in found and "enabled" in found:
        line = found["enabled"].line
        reader.report_error(
            "enabled", line, f"disabled says the same thing (line {found['disabled'].line})", fix="keep one of them"
        )
    off = read_flag("disabled", found["disabled"].value, reader) if "disabled" in found else False
    on = read_flag("enabled", found["enabled"].value, reader) if "enabled" in found else True
    return bool(off) or on is False


# --- how it is reached -----------------------------------------------------------------------------------------------


def _transport(found: Mapping[str, JsonProperty], entry: JsonObject, reader: EntryReader) -> TransportConfig:
    urls = [name for name in ("url", "http_url", "server_url") if name in found]
    kind = _type(found, reader)
    if "command" in found and urls:
        both = f"both command (line {found['command'].line}) and {found[urls[0]].name} (line {found[urls[0]].line})"
        reader.report_error(None, entry.line, f"it has {both}", fix="keep one of them")
        return TransportConfig()
    if urls:
        return parse_http(found, urls, reader=reader, kind=kind)
    if "command" in found:
        return parse_stdio(found, reader, kind=kind)
    _report_no_transport(entry, reader)
    return TransportConfig()


def _report_no_transport(entry: JsonObject, reader: EntryReader) -> None:
    likely = next((near for name in entry.members if (near := nearest(name, ("command", "url")))), None)
    fix = f'did you mean "{likely}"?' if likely else "give it one of them"
    reader.report_error(None, entry.line, 'it has neither a "command" to start nor a "url" to connect to', fix=fix)


def _type(found: Mapping[str, JsonProperty], reader: EntryReader) -> str | None:
    if "type" not in found:
        return None
    key, node = found["type"].name, found["type"].value
    if not isinstance(node, JsonScalar) or not isinstance(node.value, str):
        reader.report_expected(key, node, "stdio, http or sse")
        return None
    reader.record_value(key, node.line, node.value)
    kind = _TYPES.get(node.value.lower())
    if kind is None:
        reader.report_error(
            key, node.line, f"{quoted(node.value)} is not a known transport", fix="write stdio, http or sse"
        )
    return kind
