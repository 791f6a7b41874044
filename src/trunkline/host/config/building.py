"""Parses one entry of a configuration into a ``ServerEntry``, whichever application it was written for.

Whatever is wrong becomes the entry's ``problem`` and does not affect other entries. An entry with a problem contains
nothing that could be started. Starts nothing, and reads no file but the ``envFile`` the entry names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from trunkline.host.config.by_command import by_command
from trunkline.host.config.by_url import by_url
from trunkline.host.config.collecting import Collector, Ground
from trunkline.host.config.members import gather
from trunkline.host.config.positions import Leaf, Member, Members, Node
from trunkline.host.config.reaching import Reach
from trunkline.host.config.records import Problem, Provenance
from trunkline.host.config.settings import read_flag, read_settings
from trunkline.host.config.spelling import nearest, quoted
from trunkline.host.entries import ServerEntry, Source

__all__ = ["Built", "build", "is_disabled"]

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


class Built(Struct, frozen=True, kw_only=True):
    """A parsed entry with the provenance of its values and warnings."""

    entry: ServerEntry
    provenance: Provenance
    warnings: tuple[Problem, ...] = ()


def build(name: str, node: Node, *, source: Source, ground: Ground, problem: Problem | None = None) -> Built:
    """Parse an entry; a problem that is already known, such as one with its name, is reported first."""
    into = Collector(name, ground)
    if problem is not None:
        into.problems.append(problem)
    reach, disabled, settings = Reach(), False, read_settings({}, into, project=False)
    if isinstance(node, Members):
        found = gather(node, into)
        disabled = _disabled(found, into)
        reach = _reach(found, node, into)
        settings = read_settings(found, into, project=source.scope == "project")
    else:
        into.expected("", node, "an object with a command or a url")
    if into.problems:
        # What was only half understood must not be started by mistake.
        reach = Reach()
    entry = ServerEntry(
        name=name,
        source=source,
        disabled=disabled,
        settings=settings,
        secrets=frozenset(into.secrets),
        sealed=() if into.problems else tuple(into.sealed),
        problem="; ".join(map(str, into.problems)) or None,
        **reach._asdict(),
    )
    return Built(entry=entry, provenance=into.provenance(), warnings=tuple(into.warnings))


def is_disabled(node: Node) -> bool:
    """Return True if an entry is disabled, without parsing the rest of it."""
    if not isinstance(node, Members):
        return False
    flags = [(name, node.members[name].value) for name in ("disabled", "enabled") if name in node.members]
    return any(isinstance(value, Leaf) and value.value is (name == "disabled") for name, value in flags)


def _disabled(found: Mapping[str, Member], into: Collector) -> bool:
    if "disabled" in found and "enabled" in found:
        line = found["enabled"].line
        into.fail(
            "enabled", line, f"disabled says the same thing (line {found['disabled'].line})", fix="keep one of them"
        )
    off = read_flag("disabled", found["disabled"].value, into) if "disabled" in found else False
    on = read_flag("enabled", found["enabled"].value, into) if "enabled" in found else True
    return bool(off) or on is False


# --- how it is reached -----------------------------------------------------------------------------------------------


def _reach(found: Mapping[str, Member], entry: Members, into: Collector) -> Reach:
    urls = [name for name in ("url", "http_url", "server_url") if name in found]
    kind = _type(found, into)
    if "command" in found and urls:
        both = f"both command (line {found['command'].line}) and {found[urls[0]].name} (line {found[urls[0]].line})"
        into.fail(None, entry.line, f"it has {both}", fix="keep one of them")
        return Reach()
    if urls:
        return by_url(found, urls, into=into, kind=kind)
    if "command" in found:
        return by_command(found, into, kind=kind)
    _say_nothing_to_reach(entry, into)
    return Reach()


def _say_nothing_to_reach(entry: Members, into: Collector) -> None:
    likely = next((near for name in entry.members if (near := nearest(name, ("command", "url")))), None)
    fix = f'did you mean "{likely}"?' if likely else "give it one of them"
    into.fail(None, entry.line, 'it has neither a "command" to start nor a "url" to connect to', fix=fix)


def _type(found: Mapping[str, Member], into: Collector) -> str | None:
    if "type" not in found:
        return None
    key, node = found["type"].name, found["type"].value
    if not isinstance(node, Leaf) or not isinstance(node.value, str):
        into.expected(key, node, "stdio, http or sse")
        return None
    into.note(key, node.line, node.value)
    kind = _TYPES.get(node.value.lower())
    if kind is None:
        into.fail(key, node.line, f"{quoted(node.value)} is not a known transport", fix="write stdio, http or sse")
    return kind
