"""The input schema of a tool in one piece: with references inlined, and without alternatives at its root.

Providers want an object with properties at the root of a schema. What only alternatives express is described in a
sentence; the arguments are validated against the server's own schema anyway, before they are sent. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

__all__ = ["Flat", "Unfit", "flatten", "write_out"]

# Subschemas that a schema may have after its references are inlined.
_MOST_WRITTEN = 3000
_DEEPEST = 40
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
_MOST_NAMES = 12
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")

Schema = dict[str, Any]


class Unfit(ValueError):
    """A tool cannot be offered to this model; the message says why."""


class Flat:
    """A schema whose root is a plain object, and sentences on what it cannot express."""

    __slots__ = ("schema", "sentences")

    def __init__(self, schema: Schema, sentences: tuple[str, ...]) -> None:
        """Store both."""
        self.schema = schema
        self.sentences = sentences


# --- references ------------------------------------------------------------------------------------------------------


def write_out(schema: Schema) -> Schema:
    """Inline every reference; where one is recursive, anything is allowed from there.

    Raises:
        UnsupportedTool: the result would be too large.
    """
    for times in (2, 1):
        try:
            found = _Writing(schema, times).write(schema, (), 0)
            break
        except Unfit:
            if times == 1:
                raise
    return {key: value for key, value in found.items() if key not in ("$defs", "definitions")}


class _Writing:
    """Inlines the references of one schema."""

    def __init__(self, root: Schema, times: int) -> None:
        """Resolve references in ``root``; each may be nested in itself ``times`` times."""
        self._root = root
        self._times = times
        self._left = _MOST_WRITTEN

    def write(self, schema: Schema, inside: tuple[str, ...], depth: int) -> Schema:
        """Return a schema with its references inlined; ``inside`` are the references that led here."""
        self._left -= 1
        if self._left < 0:
            raise Unfit("its schema is too large with all references inlined")
        reference = schema.get("$ref")
        if isinstance(reference, str):
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            target = self._target(reference)
            if target is None or inside.count(reference) >= self._times or depth > _DEEPEST:
                return self._members({**beside, "description": _nested(beside)}, inside, depth)
            return {**self.write(target, (*inside, reference), depth + 1), **self._members(beside, inside, depth)}
        return self._members(schema, inside, depth)

    def _members(self, schema: Schema, inside: tuple[str, ...], depth: int) -> Schema:
        if depth > _DEEPEST:
            return {key: value for key, value in schema.items() if not isinstance(value, dict | list)}
        return {key: self._member(key, value, inside, depth) for key, value in schema.items() if key != "$defs"}

    def _member(self, key: str, value: Any, inside: tuple[str, ...], depth: int) -> Any:
        if key in ("enum", "const", "default", "examples", "required", "$defs", "definitions"):
            return value
        if key in _NAMED and isinstance(value, dict):
            return {name: self._below(each, inside, depth) for name, each in value.items()}
        if isinstance(value, list):
            return [self._below(each, inside, depth) for each in value]
        return self._below(value, inside, depth)

    def _below(self, value: Any, inside: tuple[str, ...], depth: int) -> Any:
        return self.write(value, inside, depth + 1) if isinstance(value, dict) else value

    def _target(self, reference: str) -> Schema | None:
        """Resolve a pointer into the schema; any other reference is not followed."""
        if reference != "#" and not reference.startswith("#/"):
            return None
        node: Any = self._root
        for step in unquote(reference[1:]).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and step in node:
                node = node[step]
            elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
                node = node[int(step)]
            else:
                return None
        return node if isinstance(node, dict) else None


def _nested(schema: Schema) -> str:
    said = schema.get("description")
    note = "(nested in the same way)"
    return f"{said} {note}" if isinstance(said, str) else note


# --- the root --------------------------------------------------------------------------------------------------------


def flatten(schema: Schema) -> Flat:
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
    return Flat(flat, tuple(dict.fromkeys(sentences)))


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
        raise Unfit(f"no object matches the {word} of its schema")
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


def _either(forms: Iterable[Flat], common: set[str], word: str) -> str:
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
