"""Tools as a provider accepts them.

The name, the description, and the input schema converted to what the provider understands. A provider that gets one
schema it does not support rejects the whole request, and with it every tool of every server. So references are
inlined, alternatives at the root are merged into one object, unsupported keywords are dropped or described in words,
and a tool that cannot be converted is left out alone, with a reason. The model thus sees less than the server says;
its arguments are validated against the server's own schema. Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

import trunkline.types as t
from trunkline.host.models.interface import ToolSpec
from trunkline.host.upstreams.catalog.names import ANTHROPIC, GEMINI, OPENAI, NamingScheme
from trunkline.protocol.json_schema import SchemaError, inline_references

__all__ = [
    "SCHEMA_DIALECTS",
    "FlatSchema",
    "SchemaDialect",
    "UnsupportedTool",
    "flatten",
    "schema_dialect",
    "to_tool_spec",
]

_ALTERNATIVES = ("anyOf", "oneOf")
# Keywords on which arguments go together; at the root a sentence replaces them.
_CONDITIONS = (
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedProperties",
)
_CONDITION = "Not every combination of arguments is accepted: an error says what to change."
_MOST_NAMES = 12  # Names in one sentence; the properties themselves list all.

Schema = dict[str, Any]


class UnsupportedTool(ValueError):
    """A tool cannot be offered to this model; the message says why."""


class FlatSchema:
    """A schema whose root is a plain object, and sentences on what it cannot express."""

    __slots__ = ("schema", "sentences")

    def __init__(self, schema: Schema, sentences: tuple[str, ...]) -> None:
        """Store both."""
        self.schema = schema
        self.sentences = sentences


# --- the root --------------------------------------------------------------------------------------------------------


def flatten(schema: Schema) -> FlatSchema:
    """Convert the root of a schema to a plain object.

    Raises:
        UnsupportedTool: no object matches it.
    """
    sentences: list[str] = []
    flat = _merged_all(schema, sentences)
    for word in _ALTERNATIVES:
        forms = flat.pop(word, None)
        if isinstance(forms, list) and forms:
            flat = _merged_any(flat, [form for form in forms if isinstance(form, dict)], word, sentences)
    if any(flat.pop(word, None) is not None for word in _CONDITIONS):
        sentences.append(_CONDITION)
    for word in ("enum", "const"):
        flat.pop(word, None)
    properties = _properties(flat)
    required = [name for name in dict.fromkeys(_required(flat)) if isinstance(name, str)]
    # A required name without a schema may have any value.
    flat["properties"] = {**properties, **{name: {} for name in required if name not in properties}}
    flat["type"] = "object"
    flat.pop("required", None)
    if required:
        flat["required"] = required
    return FlatSchema(flat, tuple(dict.fromkeys(sentences)))


def _merged_all(schema: Schema, sentences: list[str]) -> Schema:
    """Merge the parts of ``allOf``."""
    flat = dict(schema)
    parts = flat.pop("allOf", None)
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            inner = flatten(part)
            sentences += inner.sentences
            flat["properties"] = {**inner.schema["properties"], **_properties(flat)}
            flat["required"] = [*_required(flat), *_required(inner.schema)]
            # In each part it refers to that part's properties only.
            flat.pop("additionalProperties", None)
    return flat


def _merged_any(flat: Schema, forms: Sequence[Schema], word: str, sentences: list[str]) -> Schema:
    """Merge alternatives: all their properties, and as required those that all of them require."""
    fitting = [flatten(form) for form in forms if form.get("type", "object") == "object" or "object" in form["type"]]
    if not fitting:
        raise UnsupportedTool(f"no object matches the {word} of its schema")
    properties: dict[str, list[Any]] = {}
    for form in fitting:
        sentences += form.sentences
        for name, each in form.schema["properties"].items():
            if each not in properties.setdefault(name, []):
                properties[name].append(each)
    own = _properties(flat)
    merged = {name: either[0] if len(either) == 1 else {"anyOf": either} for name, either in properties.items()}
    common = set.intersection(*({*_required(form.schema)} for form in fitting))
    flat = {**flat, "properties": {**merged, **own}, "required": [*_required(flat), *sorted(common)]}
    flat.pop("additionalProperties", None)
    if len(fitting) > 1:
        sentences.append(_either(fitting, set(_required(flat)), word))
    return flat


def _either(forms: Iterable[FlatSchema], common: set[str], word: str) -> str:
    """Return a sentence on which arguments go together."""
    groups = []
    for form in forms:
        wanted = [name for name in _required(form.schema) if name not in common]
        names = wanted or [name for name in form.schema["properties"] if name not in common]
        shown = ", ".join(names[:_MOST_NAMES]) + (" …" if len(names) > _MOST_NAMES else "")
        groups.append(f"({shown})" if shown else "(nothing more)")
    how = "exactly one" if word == "oneOf" else "at least one"
    return f"Give {how} of these groups of arguments: {' or '.join(dict.fromkeys(groups))}."


def _properties(schema: Mapping[str, Any]) -> Schema:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _required(schema: Mapping[str, Any]) -> list[str]:
    found = schema.get("required")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


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
_KEYWORD_PHRASES = MappingProxyType(
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
_LARGE_COUNT = 1000  # A grammar with more rules than this is rejected or slow.
_MOST_BYTES = 64 * 1024  # About 18,000 tokens for one tool, in every request.
_TALKATIVE_BYTES = 16 * 1024  # About 4500 tokens; larger schemas lose the descriptions of nested members.
_LONGEST_SAID = 120  # A pattern or a value that is longer is not followed by a model anyway.


class SchemaDialect(Struct, frozen=True, kw_only=True):
    """What a provider accepts."""

    naming: NamingScheme
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
SCHEMA_DIALECTS: Mapping[str, SchemaDialect] = MappingProxyType(
    {
        "plain": SchemaDialect(naming=OPENAI, most_tools=128, longest_description=4096, keywords=_PLAIN),
        "openai": SchemaDialect(naming=OPENAI, most_tools=128, longest_description=1024),
        "anthropic": SchemaDialect(
            naming=ANTHROPIC, most_tools=1024, longest_description=8192, property_name="[A-Za-z0-9_.-]{1,64}"
        ),
        "gemini": SchemaDialect(
            naming=GEMINI, most_tools=512, longest_description=4096, keywords=_GEMINI, one_type=True
        ),
    }
)


def schema_dialect(name: str) -> SchemaDialect:
    """Return the dialect of this name; the most restrictive one if it is not known."""
    return SCHEMA_DIALECTS.get(name) or SCHEMA_DIALECTS["plain"]


def to_tool_spec(tool: t.Tool, name: str, dialect: SchemaDialect) -> ToolSpec:
    """Convert a tool for a provider, under its wire name.

    Raises:
        UnsupportedTool: it cannot be converted; the message says why.
    """
    try:
        flat = flatten(inline_references(tool.input_schema))
    except SchemaError as error:
        raise UnsupportedTool("its schema is too large with all references inlined") from error
    _check_names(flat.schema["properties"], dialect)
    schema = _cleaned(flat.schema, dialect)
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    size = len(msgspec.json.encode(schema))
    if size > _TALKATIVE_BYTES:
        schema = _without_descriptions(schema, depth=0)
        size = len(msgspec.json.encode(schema))
    if size > _MOST_BYTES:
        raise UnsupportedTool(f"its schema has {size // 1024} KB; the limit is {_MOST_BYTES // 1024}")
    return ToolSpec(name, _description(tool, flat.sentences, dialect.longest_description), schema)


def _check_names(properties: Mapping[str, Any], dialect: SchemaDialect) -> None:
    wrong = [name for name in properties if not re.fullmatch(dialect.property_name or "(?s:.*)", name)]
    if wrong:
        raise UnsupportedTool(f"the provider does not accept an argument named {wrong[0][:80]!r}")


def _description(tool: t.Tool, sentences: tuple[str, ...], longest: int) -> str:
    said = tool.description or tool.title or tool.name
    more = " ".join(sentences)[: longest // 2]
    room = longest - len(more) - bool(more)
    return "\n".join(part for part in (_clipped(said, room), more) if part)


def _clipped(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


# --- one schema ------------------------------------------------------------------------------------------------------


def _cleaned(schema: dict[str, Any], dialect: SchemaDialect) -> dict[str, Any]:
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
    said = _dropped_text(dropped)
    if said:
        known = clean.get("description")
        clean["description"] = f"{known} ({said})" if isinstance(known, str) and known else said
    return clean


def _below(key: str, value: Any, dialect: SchemaDialect) -> Any:
    if key in _NAMED and isinstance(value, dict):
        return {name: _any(each, dialect) for name, each in value.items() if each is not False}
    if key in _LISTED and isinstance(value, list):
        return [_any(each, dialect) for each in value]
    if key in _DIRECT:
        # Some providers support only a boolean here.
        return value if key == "additionalProperties" and isinstance(value, bool) else _any(value, dialect)
    return value


def _any(value: Any, dialect: SchemaDialect) -> dict[str, Any]:
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


def _dropped_text(dropped: Mapping[str, Any]) -> str:
    """Describe dropped keywords, as far as a model can follow them."""
    said = []
    for key, value in dropped.items():
        if key in _KEYWORD_PHRASES:
            shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            said.append(f"{_KEYWORD_PHRASES[key]} {_clipped(shown, _LONGEST_SAID)}")
    return "; ".join(said)


def _without_descriptions(value: Any, *, depth: int) -> Any:
    """Remove descriptions below the level of the tool's arguments."""
    if isinstance(value, list):
        return [_without_descriptions(each, depth=depth + 1) for each in value]
    if not isinstance(value, dict):
        return value
    quiet = depth > 2
    return {
        key: _without_descriptions(each, depth=depth + 1)
        for key, each in value.items()
        if not (quiet and key in ("description", "title", "examples") and isinstance(each, str | list))
    }
