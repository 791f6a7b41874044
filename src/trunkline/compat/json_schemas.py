"""JSON Schemas as FastMCP sends them: without the titles pydantic adds, without definitions that are not used."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

__all__ = ["compress_schema", "dereference_refs", "is_object_schema", "resolve_root_ref"]

#: Members whose value maps names to schemas: a name in it is not a keyword.
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
#: Members whose value is data, not a schema.
_DATA = ("default", "const", "enum", "examples", "example")
_PREFIX = "#/$defs/"


def compress_schema(
    schema: dict[str, Any],
    prune_params: Iterable[str] | None = None,
    prune_additional_properties: bool = False,
    prune_titles: bool = False,
    dereference: bool = False,
) -> dict[str, Any]:
    """Return a copy of a schema without the named properties, titles and definitions that are not used."""
    made = copy.deepcopy(schema)
    for name in prune_params or ():
        _drop_property(made, name)
    if prune_titles or prune_additional_properties:
        _walk(made, titles=prune_titles, additional=prune_additional_properties)
    if dereference:
        made = dereference_refs(made)
    return _without_unused(made)


def _drop_property(schema: dict[str, Any], name: str) -> None:
    schema.get("properties", {}).pop(name, None)
    if name in schema.get("required", ()):
        schema["required"] = [each for each in schema["required"] if each != name]
        if not schema["required"]:
            del schema["required"]


def _walk(node: Any, *, titles: bool, additional: bool) -> None:
    """Remove keywords in place, in every schema below a node."""
    if isinstance(node, list):
        for item in node:
            _walk(item, titles=titles, additional=additional)
    if not isinstance(node, dict):
        return
    if titles and isinstance(node.get("title"), str):
        del node["title"]
    if additional and node.get("additionalProperties") is False:
        del node["additionalProperties"]
    for key, value in node.items():
        if key in _DATA:
            continue
        if key in _NAMED and isinstance(value, dict):
            for inner in value.values():
                _walk(inner, titles=titles, additional=additional)
        else:
            _walk(value, titles=titles, additional=additional)


def _references(node: Any, found: set[str]) -> None:
    if isinstance(node, list):
        for item in node:
            _references(item, found)
    elif isinstance(node, dict):
        reference = node.get("$ref")
        if isinstance(reference, str) and reference.startswith(_PREFIX):
            found.add(reference.removeprefix(_PREFIX).partition("/")[0])
        for key, value in node.items():
            if key != "$defs":
                _references(value, found)


def _without_unused(schema: dict[str, Any]) -> dict[str, Any]:
    definitions = schema.get("$defs")
    if not isinstance(definitions, dict):
        return schema
    used: set[str] = set()
    _references(schema, used)
    waiting = list(used)
    while waiting:
        more: set[str] = set()
        _references(definitions.get(waiting.pop(), {}), more)
        waiting += more - used
        used |= more
    kept = {name: value for name, value in definitions.items() if name in used}
    schema = {key: value for key, value in schema.items() if key != "$defs"}
    return {"$defs": kept, **schema} if kept else schema


def dereference_refs(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a copy with references replaced by what they refer to; a recursive schema keeps its references."""
    definitions = schema.get("$defs", {})
    if _is_recursive(definitions):
        return resolve_root_ref(schema)

    def inline(node: Any) -> Any:
        if isinstance(node, list):
            return [inline(item) for item in node]
        if not isinstance(node, dict):
            return node
        reference = node.get("$ref")
        if isinstance(reference, str) and reference.startswith(_PREFIX):
            target = definitions.get(reference.removeprefix(_PREFIX))
            if isinstance(target, dict):
                beside = {key: value for key, value in node.items() if key != "$ref"}
                return inline({**target, **beside})
        return {key: inline(value) for key, value in node.items()}

    return {key: inline(value) for key, value in _rooted(schema, definitions).items() if key != "$defs"}


def _rooted(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(_PREFIX):
        return schema
    target = definitions.get(reference.removeprefix(_PREFIX))
    if not isinstance(target, dict):
        return schema
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def _is_recursive(definitions: dict[str, Any]) -> bool:
    links: dict[str, set[str]] = {}
    for name, value in definitions.items():
        links[name] = set()
        _references(value, links[name])

    def reaches(start: str, name: str, seen: set[str]) -> bool:
        return any(
            each == start or (each not in seen and reaches(start, each, seen | {each})) for each in links.get(name, ())
        )

    return any(reaches(name, name, set()) for name in links)


def resolve_root_ref(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose root is an object and not a reference; the definitions stay."""
    return _rooted(schema, schema.get("$defs", {}))


def is_object_schema(schema: dict[str, Any], _inside: tuple[str, ...] = ()) -> bool:
    """Return whether a schema describes objects: itself, or by a reference inside it."""
    if schema.get("type") == "object" or "properties" in schema:
        return True
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/") or reference in _inside:
        return False
    found: Any = schema
    for step in reference[2:].split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        return False
    # What it refers to may refer on, to definitions of the whole.
    whole = {key: value for key, value in schema.items() if key in ("$defs", "definitions")}
    return is_object_schema({**whole, **found}, (*_inside, reference))
