"""JSON Schemas as the frameworks send them: FastMCP's have no generated titles and no references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["inline_references", "is_recursive", "root_object", "without_titles"]

#: Keywords whose value maps names to schemas: such a name is not a keyword.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
#: Keywords whose value is data, not a schema.
_DATA = frozenset({"default", "const", "enum", "examples", "example", "required"})
_PREFIX = "#/$defs/"


def _map(node: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """Return a copy of a schema with every schema inside it changed, the inner ones first."""
    if isinstance(node, list):
        return [_map(item, change) for item in node]
    if not isinstance(node, dict):
        return node
    mapped: dict[str, Any] = {}
    for key, value in node.items():
        if key in _DATA:
            mapped[key] = value
        elif key in _NAMED and isinstance(value, dict):
            mapped[key] = {name: _map(inner, change) for name, inner in value.items()}
        else:
            mapped[key] = _map(value, change)
    return change(mapped)


def without_titles(
    schema: dict[str, Any], keep: Callable[[str], bool] = lambda _: False, *, keep_alone: bool = False
) -> dict[str, Any]:
    """Return a schema without titles, except those that ``keep`` accepts and that of a default of no type.

    With ``keep_alone``, a value of no type keeps its title too if it has no default.
    """

    def drop(node: dict[str, Any]) -> dict[str, Any]:
        title = node.get("title")
        is_untyped = set(node) == {"title", "default"} or (keep_alone and set(node) == {"title"})
        if not isinstance(title, str) or keep(title) or is_untyped:
            return node
        return {key: value for key, value in node.items() if key != "title"}

    return _map(schema, drop)  # type: ignore[no-any-return]


def _references(node: Any) -> Iterator[str]:
    """Yield the names of the definitions that a schema refers to."""
    if isinstance(node, list):
        for item in node:
            yield from _references(item)
    elif isinstance(node, dict):
        target = node.get("$ref")
        if isinstance(target, str) and target.startswith(_PREFIX):
            yield target.removeprefix(_PREFIX)
        for key, value in node.items():
            if key not in _DATA:
                yield from _references(value)


def is_recursive(schema: dict[str, Any]) -> bool:
    """Return whether a definition of a schema refers to itself, directly or by others."""
    links = {name: set(_references(value)) for name, value in schema.get("$defs", {}).items()}
    for name, direct in links.items():
        reached, waiting = set(direct), list(direct)
        while waiting:
            further = links.get(waiting.pop(), set()) - reached
            reached |= further
            waiting += further
        if name in reached:
            return True
    return False


def root_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose root is not a reference; pydantic refers to the definition of a recursive model."""
    target = schema.get("$ref")
    if not isinstance(target, str) or not target.startswith(_PREFIX):
        return schema
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**schema["$defs"][target.removeprefix(_PREFIX)], **beside}


def inline_references(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with definitions in the place of the references to them; a recursive schema keeps them."""
    if is_recursive(schema):
        return root_object(schema)
    definitions = schema.get("$defs", {})

    def resolve(node: dict[str, Any]) -> Any:
        target = node.get("$ref")
        if not isinstance(target, str) or not target.startswith(_PREFIX):
            return node
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return _map({**definitions[target.removeprefix(_PREFIX)], **beside}, resolve)

    resolved = _map({key: value for key, value in schema.items() if key != "$defs"}, resolve)
    return resolved  # type: ignore[no-any-return]
