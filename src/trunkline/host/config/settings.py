"""Parses the settings of a server (timeouts, era, start, filters); each kind of value has one function.

A value of the wrong kind or out of range is a problem of its entry that names what was expected. Seconds are seconds: a
number that can only be milliseconds is rejected, not converted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from trunkline.host.config.entry_reader import EntryReader
from trunkline.host.config.jsonc import JsonArray, JsonNode, JsonObject, JsonProperty, JsonScalar
from trunkline.host.config.model import NO_FILTERS, Filters, ServerSettings
from trunkline.host.config.spelling import nearest, quoted
from trunkline.protocol.revisions import REVISION_NAMES

__all__ = ["read_flag", "read_settings"]

_Read: TypeAlias = Callable[[str, JsonNode, EntryReader], Any]

_DAY = 86_400  # In seconds; a longer timeout is a mistake in the unit.
_HOUR = 3_600  # In seconds; a longer timeout gets a warning.
_LEAST_BYTES = 1024  # Less could not hold the messages of a handshake.
_MOST_BYTES = 1024 * 1024 * 1024  # A message is held in memory, more than once.
_ERAS = ("auto", "stateless", "handshake", *REVISION_NAMES)
_ASKS = ("sampling", "elicitation", "roots")
_HINTS = ("readOnly", "destructive", "idempotent", "openWorld")
_PARTS = ("allow", "deny", "annotations", "tags")


def read_settings(found: Mapping[str, JsonProperty], reader: EntryReader, *, project: bool) -> ServerSettings:
    """Parse the settings among an entry's members; an entry of a project cannot weaken its own safeguards."""
    given: dict[str, Any] = {}
    for name, read in _READERS.items():
        if name in found:
            member = found[name]
            value = read(member.name, member.value, reader)
            if value is not None:
                given[name] = value
    if project and given.get("trusted"):
        del given["trusted"]
        reader.report_warning(
            "trusted", found["trusted"].line, "it is ignored: a file of a project cannot trust itself"
        )
    if project and given.get("pins") == "off":
        del given["pins"]
        reader.report_warning(
            "pins", found["pins"].line, "it is ignored: a file of a project cannot switch its own pins off"
        )
    tools = _foreign_filters(found, reader)
    if tools is not None:
        given["tools"] = tools
    return ServerSettings(**given)


def read_flag(key: str, node: JsonNode, reader: EntryReader) -> bool | None:
    """Read true or false."""
    if not isinstance(node, JsonScalar) or not isinstance(node.value, bool):
        reader.report_expected(key, node, "true or false")
        return None
    reader.record_value(key, node.line, "true" if node.value else "false")
    return node.value


# --- numbers ---------------------------------------------------------------------------------------------------------


def _number(key: str, node: JsonNode, reader: EntryReader, *, what: str) -> int | float | None:
    if not isinstance(node, JsonScalar) or isinstance(node.value, bool) or not isinstance(node.value, int | float):
        reader.report_expected(key, node, what)
        return None
    return node.value


def _seconds(key: str, node: JsonNode, reader: EntryReader) -> float | None:
    value = _number(key, node, reader, what="a number of seconds")
    if value is None:
        return None
    if not 0 < value <= _DAY:
        fix = (
            f"if milliseconds are meant, write {value / 1000:g}" if value > _DAY else "leave it out for the usual limit"
        )
        reader.report_error(
            key, node.line, f"expected seconds above 0 and up to {_DAY} (a day), found {value:g}", fix=fix
        )
        return None
    if value > _HOUR:
        reader.report_warning(
            key, node.line, f"{value:g} is read as seconds", fix=f"if milliseconds are meant, write {value / 1000:g}"
        )
    reader.record_value(key, node.line, f"{value:g} s")
    return float(value)


def _seconds_or_none(key: str, node: JsonNode, reader: EntryReader) -> float | None:
    value = _number(key, node, reader, what="a number of seconds")
    if value is None:
        return None
    if not 0 <= value <= _DAY:
        reader.report_error(key, node.line, f"expected seconds from 0 (never) to {_DAY} (a day), found {value:g}")
        return None
    reader.record_value(key, node.line, f"{value:g} s")
    return float(value)


def _count(key: str, node: JsonNode, reader: EntryReader) -> int | None:
    value = _number(key, node, reader, what="a whole number")
    if value is None:
        return None
    if not isinstance(value, int) or not 1 <= value <= 10_000:
        reader.report_error(key, node.line, f"expected a whole number from 1 to 10000, found {value:g}")
        return None
    reader.record_value(key, node.line, str(value))
    return value


def _bytes(key: str, node: JsonNode, reader: EntryReader) -> int | None:
    value = _number(key, node, reader, what="a number of bytes")
    if value is None:
        return None
    if not isinstance(value, int) or not _LEAST_BYTES <= value <= _MOST_BYTES:
        reader.report_error(key, node.line, f"expected bytes from {_LEAST_BYTES} to {_MOST_BYTES}, found {value:g}")
        return None
    reader.record_value(key, node.line, str(value))
    return value


# --- words -----------------------------------------------------------------------------------------------------------


def _one_of(*choices: str) -> _Read:
    def read(key: str, node: JsonNode, reader: EntryReader) -> str | None:
        if not isinstance(node, JsonScalar) or not isinstance(node.value, str):
            reader.report_expected(key, node, f"one of {', '.join(choices)}")
            return None
        if node.value not in choices:
            near = nearest(node.value, choices)
            fix = f'did you mean "{near}"?' if near else None
            reader.report_error(key, node.line, f"{quoted(node.value)} is none of {', '.join(choices)}", fix=fix)
            return None
        reader.record_value(key, node.line, node.value)
        return node.value

    return read


def _idle(key: str, node: JsonNode, reader: EntryReader) -> float | None:
    # Other hosts write 0 for "never", which is the default here.
    return _seconds_or_none(key, node, reader) or None


def _roots(key: str, node: JsonNode, reader: EntryReader) -> tuple[str, ...]:
    return tuple(text if text.startswith("file://") else reader.context.path(text) for text in reader.texts(key, node))


def _asks(key: str, node: JsonNode, reader: EntryReader) -> tuple[str, ...]:
    """Read what a server may ask for; a single unknown word, and it may ask for nothing."""
    words = _words(key, node, reader)
    unknown = [word for word in words or () if word not in _ASKS]
    for word in unknown:
        reader.report_error(key, node.line, f"{quoted(word)} is none of {', '.join(_ASKS)}")
    return () if unknown or words is None else words


def _extensions(key: str, node: JsonNode, reader: EntryReader) -> dict[str, tuple[str, ...]] | None:
    """Parse the extensions that the gateway forwards: a list of identifiers, or their methods by identifier."""
    if isinstance(node, JsonArray):
        return dict.fromkeys(_words(key, node, reader) or (), ())
    if not isinstance(node, JsonObject):
        reader.report_expected(key, node, "a list of identifiers, or an object from identifiers to lists of methods")
        return None
    reader.check_repeated(key, node)
    return {id: _words(f"{key}.{id}", member.value, reader) or () for id, member in node.members.items()}


def _raw(key: str, node: JsonNode, reader: EntryReader) -> Any:
    return reader.tree(key, node)


# --- filters ---------------------------------------------------------------------------------------------------------


def _filters(key: str, node: JsonNode, reader: EntryReader) -> Filters | None:
    if isinstance(node, JsonArray):
        return _of(reader, key, node, allow=_words(key, node, reader))
    if not isinstance(node, JsonObject):
        reader.report_expected(
            key, node, "a list of names to allow, or an object with allow, deny, annotations and tags"
        )
        return None
    reader.check_repeated(key, node)
    parts: dict[str, tuple[str, ...] | None] = {}
    for name, member in node.members.items():
        if name not in _PARTS:
            near = nearest(name, _PARTS)
            fix = f'did you mean "{near}"?' if near else f"it may have {', '.join(_PARTS)}"
            # A filter that is ignored would show what it was meant to hide.
            reader.report_error(f"{key}.{quoted(name)}", member.line, "unknown part of a filter", fix=fix)
        else:
            parts[name] = _words(f"{key}.{name}", member.value, reader)
    _check_hints(key, node, parts.get("annotations") or (), reader=reader)
    return _of(reader, key, node, **parts)


def _of(reader: EntryReader, key: str, node: JsonNode, **parts: tuple[str, ...] | None) -> Filters:
    """Build a filter; an empty allow list shows nothing."""
    deny = parts.get("deny") or ()
    if "allow" in parts and parts["allow"] == ():
        reader.report_warning(key, node.line, "the list of what is allowed is empty: nothing is shown")
        deny = ("*",)
    return Filters(
        allow=parts.get("allow") or (),
        deny=deny,
        annotations=parts.get("annotations") or (),
        tags=parts.get("tags") or (),
    )


def _words(key: str, node: JsonNode, reader: EntryReader) -> tuple[str, ...] | None:
    """Read a list of names or globs; variables in them are not expanded."""
    if not isinstance(node, JsonArray):
        reader.report_expected(key, node, "a list of strings")
        return None
    words = [item.value for item in node.items if isinstance(item, JsonScalar) and isinstance(item.value, str)]
    for item in node.items:
        if not isinstance(item, JsonScalar) or not isinstance(item.value, str):
            reader.report_expected(key, item, "a string")
    reader.record_value(key, node.line, ", ".join(words) or "(nothing)")
    return tuple(words)


def _check_hints(key: str, node: JsonObject, hints: tuple[str, ...], *, reader: EntryReader) -> None:
    for hint in hints:
        if hint.removeprefix("!") not in _HINTS:
            line = node.members["annotations"].line
            reader.report_error(
                f"{key}.annotations", line, f"{quoted(hint)} is none of {', '.join(_HINTS)}, or one with ! before it"
            )


def _foreign_filters(found: Mapping[str, JsonProperty], reader: EntryReader) -> Filters | None:
    """Read the tool lists that other hosts use in place of ``tools``."""
    given = {
        part: found[name] for part, name in (("allow", "include_tools"), ("deny", "exclude_tools")) if name in found
    }
    if not given:
        return None
    first = next(iter(given.values()))
    if "tools" in found:
        reader.report_error(
            first.name, first.line, f'"tools" says the same thing (line {found["tools"].line})', fix="keep one of them"
        )
        return NO_FILTERS
    lists = {part: _words(member.name, member.value, reader) for part, member in given.items()}
    return _of(reader, first.name, first.value, **lists)


_READERS: Mapping[str, _Read] = MappingProxyType(
    {
        "era": _one_of(*_ERAS),
        "timeout": _seconds,
        "total_timeout": _seconds,
        "start_timeout": _seconds,
        "start": _one_of("eager", "lazy"),
        "wait": _seconds_or_none,
        "required": read_flag,
        "idle_stop": _idle,
        "crashes": _count,
        "crash_seconds": _seconds,
        "health_seconds": _seconds_or_none,
        "roots": _roots,
        "asks": _asks,
        "extensions": _extensions,
        "trusted": read_flag,
        "tools": _filters,
        "prompts": _filters,
        "resources": _filters,
        "share": _one_of("auto", "shared", "session"),
        "per_user": read_flag,
        "dedicated_idle": _seconds,
        "dedicated_most": _count,
        "concurrency": _count,
        "message_bytes": _bytes,
        "always_load": read_flag,
        "pins": _one_of("strict", "ask", "off"),
        "sandbox": _raw,
        "sampling": _raw,
    }
)
