"""Tools as a provider accepts them: the name, the description, and the input schema converted to what it supports.

A provider that gets one schema it does not support rejects the whole request, and with it every tool of every server.
So a schema is flattened, unsupported keywords are dropped or described in words, and a tool that cannot be converted is
left out alone, with a reason. The model thus sees less than the server says; its arguments are validated against the
server's own schema. Names are mapped back by a table. Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

import trunkline.types as t
from trunkline.host.catalog.names import ANTHROPIC, GEMINI, OPENAI, Naming
from trunkline.host.chat.flattening import Unfit, flatten, write_out
from trunkline.host.models.interface import ToolSpec

__all__ = ["DIALECTS", "Dialect", "Unfit", "dialect_of", "project"]

_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
# Keywords that hold subschemas: by name, in a list, or as the value itself.
_NAMED = ("properties", "patternProperties", "dependentSchemas")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_DIRECT = (
    *("items", "additionalProperties", "contains", "not", "if", "then", "else"),
    *("propertyNames", "unevaluatedItems", "unevaluatedProperties"),
)
# Keywords that identify a schema or are for programs only.
_NEVER = frozenset(
    {
        *("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"),
        *("$comment", "$vocabulary", "$defs", "definitions", "$ref", "discriminator", "readOnly", "writeOnly"),
        *("contentSchema", "contentEncoding", "contentMediaType", "dependencies", "additionalItems", "xml"),
    }
)
# If dropped, these are added to the description, so that a model can still follow them.
_SAYABLE = MappingProxyType(
    {
        "pattern": "matches",
        "format": "format",
        "const": "always",
        "default": "by default",
        "minimum": "at least",
        "maximum": "at most",
        "exclusiveMinimum": "above",
        "exclusiveMaximum": "below",
        "multipleOf": "a multiple of",
        "minLength": "characters, at least",
        "maxLength": "characters, at most",
        "minItems": "items, at least",
        "maxItems": "items, at most",
    }
)
_PLAIN = frozenset(
    {
        *("type", "title", "description", "properties", "required", "items", "enum", "anyOf", "default"),
        *("additionalProperties", "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "format"),
    }
)
_GEMINI = frozenset(
    {
        *("type", "title", "description", "properties", "required", "items", "enum", "anyOf", "nullable"),
        *("minimum", "maximum", "minItems", "maxItems"),
    }
)
_LARGE_COUNT = 1000
_MOST_BYTES = 64 * 1024
_TALKATIVE_BYTES = 16 * 1024
_LONGEST_SAID = 120


class Dialect(Struct, frozen=True, kw_only=True):
    """What a provider accepts."""

    naming: Naming
    #: How many tools may be offered.
    most_tools: int
    longest_description: int
    #: The keywords it knows; None: all.
    keywords: frozenset[str] | None = None
    #: The pattern that names of properties must match; None: anything.
    property_name: str | None = None
    #: ``type`` must be a single string, enums must be strings, and null is expressed by ``nullable``.
    one_type: bool = False


#: By the name in a model's traits.
DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "plain": Dialect(naming=OPENAI, most_tools=128, longest_description=4096, keywords=_PLAIN),
        "openai": Dialect(naming=OPENAI, most_tools=128, longest_description=1024),
        "anthropic": Dialect(
            naming=ANTHROPIC, most_tools=1024, longest_description=8192, property_name="[A-Za-z0-9_.-]{1,64}"
        ),
        "gemini": Dialect(naming=GEMINI, most_tools=512, longest_description=4096, keywords=_GEMINI, one_type=True),
    }
)


def dialect_of(name: str) -> Dialect:
    """Return the dialect of this name; the most restrictive one if it is not known."""
    return DIALECTS.get(name) or DIALECTS["plain"]


def project(tool: t.Tool, name: str, dialect: Dialect) -> ToolSpec:
    """Convert a tool for a provider, under its wire name.

    Raises:
        UnsupportedTool: it cannot be converted; the message says why.
    """
    flat = flatten(write_out(tool.input_schema))
    _check_names(flat.schema["properties"], dialect)
    schema = _cleaned(flat.schema, dialect)
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    size = len(msgspec.json.encode(schema))
    if size > _TALKATIVE_BYTES:
        schema = _without_talk(schema, depth=0)
        size = len(msgspec.json.encode(schema))
    if size > _MOST_BYTES:
        raise Unfit(f"its schema has {size // 1024} KB; the limit is {_MOST_BYTES // 1024}")
    return ToolSpec(name, _description(tool, flat.sentences, dialect.longest_description), schema)


def _check_names(properties: Mapping[str, Any], dialect: Dialect) -> None:
    wrong = [name for name in properties if not re.fullmatch(dialect.property_name or "(?s:.*)", name)]
    if wrong:
        raise Unfit(f"the provider does not accept an argument named {wrong[0][:80]!r}")


def _description(tool: t.Tool, sentences: tuple[str, ...], longest: int) -> str:
    said = tool.description or tool.title or tool.name
    more = " ".join(sentences)[: longest // 2]
    room = longest - len(more) - bool(more)
    return "\n".join(part for part in (_clipped(said, room), more) if part)


def _clipped(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


# --- one schema ------------------------------------------------------------------------------------------------------


def _cleaned(schema: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return a schema with the supported keywords, and the others described in words."""
    schema = _modern({key: value for key, value in schema.items() if key not in _NEVER and key[:2] != "x-"})
    if dialect.keywords is not None:
        schema = _simpler(schema)
    if dialect.one_type:
        schema = _one_type(schema)
    kept = {key: value for key, value in schema.items() if dialect.keywords is None or key in dialect.keywords}
    dropped = {key: value for key, value in schema.items() if key not in kept}
    clean = {key: _below(key, value, dialect) for key, value in kept.items()}
    if clean.get("type") == "array" and "items" not in clean and "prefixItems" not in clean:
        clean["items"] = {"type": "string"} if dialect.one_type else {}
    if dialect.one_type and "required" in clean:
        clean["required"] = [name for name in clean["required"] if name in clean.get("properties", {})]
    said = _said(dropped)
    if said:
        known = clean.get("description")
        clean["description"] = f"{known} ({said})" if isinstance(known, str) and known else said
    return clean


def _below(key: str, value: Any, dialect: Dialect) -> Any:
    if key in _NAMED and isinstance(value, dict):
        return {name: _any(each, dialect) for name, each in value.items() if each is not False}
    if key in _LISTED and isinstance(value, list):
        return [_any(each, dialect) for each in value]
    if key in _DIRECT:
        # Some providers support only a boolean here.
        return value if key == "additionalProperties" and isinstance(value, bool) else _any(value, dialect)
    return value


def _any(value: Any, dialect: Dialect) -> dict[str, Any]:
    return _cleaned(value, dialect) if isinstance(value, dict) else {}


def _modern(schema: dict[str, Any]) -> dict[str, Any]:
    """Convert keywords of older drafts to the newest, and drop invalid ones."""
    new = dict(schema)
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(new.get(exclusive), bool) and new.pop(exclusive) and inclusive in new:
            new[exclusive] = new.pop(inclusive)
    if isinstance(new.get("items"), list):
        new["prefixItems"] = new.pop("items")
    if not isinstance(new.get("required", []), list):
        del new["required"]
    if new.get("enum") == []:
        del new["enum"]
    if new.pop("nullable", False) is True and isinstance(new.get("type"), str):
        new["type"] = [new["type"], "null"]
    kinds = new.get("type")
    known = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind in _TYPES]
    new.pop("type", None)
    return {"type": known[0] if len(known) == 1 else known, **new} if known else new


def _simpler(schema: dict[str, Any]) -> dict[str, Any]:
    """Express a schema with fewer keywords where possible."""
    new = dict(schema)
    for part in new.pop("allOf", None) or ():
        if isinstance(part, dict):
            new = {**part, **new, "properties": {**part.get("properties", {}), **new.get("properties", {})}}
            if not new["properties"]:
                del new["properties"]
    if "oneOf" in new:
        new["anyOf"] = [*new.get("anyOf", ()), *new.pop("oneOf")]
    if "const" in new and "enum" not in new:
        new["enum"] = [new.pop("const")]
    if "prefixItems" in new:
        firsts = [each for each in new.pop("prefixItems") if isinstance(each, dict)]
        new.setdefault("items", {"anyOf": firsts} if len(firsts) > 1 else firsts[0] if firsts else {})
    for word in ("minItems", "maxItems", "minLength", "maxLength"):
        # Some providers compile these to a grammar, with a rule for each item.
        if isinstance(new.get(word), int) and new[word] > _LARGE_COUNT:
            del new[word]
    return new


def _one_type(schema: dict[str, Any]) -> dict[str, Any]:
    """Convert to a single type, with ``nullable`` for null."""
    new = dict(schema)
    forms = [each for each in new.get("anyOf", ()) if isinstance(each, dict)]
    others = [each for each in forms if each.get("type") != "null"]
    kinds = new.get("type")
    nullable = len(others) < len(forms) or (isinstance(kinds, list) and "null" in kinds)
    if isinstance(kinds, list):
        named = [kind for kind in kinds if kind != "null"]
        del new["type"]
        if len(named) == 1:
            new["type"] = named[0]
        elif named:
            others = others or [{"type": kind} for kind in named]
    new.pop("anyOf", None)
    if len(others) == 1:
        new = {**others[0], **new}
    elif others:
        # Nothing else is accepted beside alternatives.
        return {"anyOf": others}
    values = new.get("enum")
    if isinstance(values, list) and not all(isinstance(value, str) for value in values):
        del new["enum"]
        new["const"] = values
    return {**new, "nullable": True} if nullable else new


def _said(dropped: Mapping[str, Any]) -> str:
    """Describe dropped keywords, as far as a model can follow them."""
    said = []
    for key, value in dropped.items():
        if key in _SAYABLE:
            shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            said.append(f"{_SAYABLE[key]} {_clipped(shown, _LONGEST_SAID)}")
    return "; ".join(said)


def _without_talk(value: Any, *, depth: int) -> Any:
    """Remove descriptions below the level of the tool's arguments."""
    if isinstance(value, list):
        return [_without_talk(each, depth=depth + 1) for each in value]
    if not isinstance(value, dict):
        return value
    quiet = depth > 2
    return {
        key: _without_talk(each, depth=depth + 1)
        for key, each in value.items()
        if not (quiet and key in ("description", "title", "examples") and isinstance(each, str | list))
    }
