"""Tidying JSON Schema: short, without generated titles, with definitions inlined unless they are recursive.

It knows schemas only; the schemas of msgspec and pydantic both pass through `tidy`. The contents of `default`, `enum`,
`const` and `examples` are data and stay unchanged.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec import inspect as mi

    from trunkline.server.annotations import TypeSurvey

__all__ = ["add_formats", "declared_order", "declared_orders", "tidy"]

Schema = dict[str, Any]
Orders = dict[frozenset[Any], list[Any]]

_ONE = frozenset({"items", "additionalProperties", "contains", "not", "propertyNames", "if", "then", "else"})
_MANY = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties"})
_PREFIX = "#/$defs/"
# An OpenAPI keyword that refers to definitions, which are inlined here.
_DROPPED = "discriminator"


def declared_orders(found: TypeSurvey) -> Orders:
    """Return the declared order of choices: msgspec sorts them, but users expect small, medium, large."""
    import enum

    lists = [list(values) for values in found.literals]
    lists += [[each.value for each in list[Any](kind)] for kind in found.classes if isinstance(kind, enum.EnumMeta)]
    return {frozenset(map(_key, values)): values for values in lists if all(map(_is_scalar, values))}


def declared_order(values: list[object], orders: Orders) -> list[Any]:
    """Return choices in their declared order, if it is known."""
    return orders.get(frozenset(map(_key, values)), values)


def add_formats(schema: Schema, definitions: dict[str, Schema], kind: mi.Type) -> None:
    """Add, in place, the format of dates and times at any depth; msgspec has none unless the time zone is decided."""
    records: dict[Any, Any] = {}
    _add_formats(schema, kind, records)
    pending = list(records.values())
    while pending:
        record = pending.pop()
        before = set(records)
        names = {field.encode_name for field in record.fields}
        for body in definitions.values():
            members = body.get("properties", {})
            if body.get("title") == getattr(record.cls, "__name__", None) and names <= members.keys():
                for field in record.fields:
                    _add_formats(members[field.encode_name], field.type, records)
        pending += [records[cls] for cls in records.keys() - before]


def _add_formats(schema: Schema, kind: mi.Type, records: dict[Any, Any]) -> None:
    from msgspec import inspect as mi

    if isinstance(kind, mi.Metadata):
        _add_formats(schema, kind.type, records)
    elif isinstance(kind, mi.UnionType):
        for part in kind.types:
            # At most one member of a union is text, an array or an object without a name.
            same_kind = [each for each in schema.get("anyOf", ()) if each.get("type") == _json_type(part)]
            _add_formats(same_kind[0] if same_kind else {}, part, records)
    elif isinstance(kind, mi.DateTimeType | mi.TimeType):
        schema.setdefault("format", "time" if isinstance(kind, mi.TimeType) else "date-time")
    elif hasattr(kind, "fields"):
        records.setdefault(kind.cls, kind)  # type: ignore[attr-defined]
    elif isinstance(kind, mi.TupleType):
        for item, part in zip(schema.get("prefixItems", ()), kind.item_types, strict=False):
            _add_formats(item, part, records)
    elif isinstance(kind, mi.CollectionType | mi.DictType):
        inner = kind.value_type if isinstance(kind, mi.DictType) else kind.item_type
        _add_formats(
            schema.get("additionalProperties" if isinstance(kind, mi.DictType) else "items", {}), inner, records
        )


def _json_type(kind: mi.Type) -> str:
    from msgspec import inspect as mi

    while isinstance(kind, mi.Metadata):
        kind = kind.type
    if isinstance(kind, mi.DictType):
        return "object"
    return "array" if isinstance(kind, mi.CollectionType | mi.TupleType) else "string"


def tidy(schema: Schema, definitions: dict[str, Schema], *, orders: Orders | None = None) -> Schema:
    """Inline definitions and drop redundant keywords; only recursive definitions stay under ``$defs``."""
    untitled = {name: _without_generated_title(name, body) for name, body in definitions.items()}
    recursive = {name for name in untitled if _reaches(name, untitled)}
    work = _Tidying(untitled, recursive, orders or {})
    result: Schema = work.clean(schema)
    referenced: dict[str, Schema] = {}
    while missing := sorted(work.used - referenced.keys()):
        referenced.update((name, work.clean(untitled[name])) for name in missing)
    if referenced:
        result["$defs"] = referenced
    return result


def _without_generated_title(name: str, body: Schema) -> Schema:
    title = re.sub(r"\W", "_", str(body.get("title", "")))
    if title and (name == title or name.endswith(f"__{title}")):
        return {key: value for key, value in body.items() if key != "title"}
    return body


def _reaches(name: str, definitions: dict[str, Schema]) -> bool:
    pending, seen = list(_references(definitions[name])), set[str]()
    while pending:
        reference = pending.pop()
        if reference == name:
            return True
        if reference not in seen:
            seen.add(reference)
            pending.extend(_references(definitions.get(reference, {})))
    return False


def _references(node: object) -> Iterable[str]:
    if isinstance(node, dict):
        reference = node.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(_PREFIX)
    elif not isinstance(node, list):
        return
    for part in node.values() if isinstance(node, dict) else node:
        yield from _references(part)


class _Tidying:
    """One pass over one schema."""

    __slots__ = ("definitions", "orders", "recursive", "used")

    def __init__(self, definitions: dict[str, Schema], recursive: set[str], orders: Orders) -> None:
        self.definitions = definitions
        self.recursive = recursive
        self.orders = orders
        self.used: set[str] = set()

    def clean(self, node: object) -> Any:
        """Return a tidied copy of a schema."""
        if not isinstance(node, dict):
            return node
        node = self._resolved(node)
        return self._shortened({key: self._member(key, value) for key, value in node.items() if key != _DROPPED})

    def _resolved(self, node: Schema) -> Schema:
        while "$ref" in node:
            name = node["$ref"].removeprefix(_PREFIX)
            if name in self.recursive:
                self.used.add(name)
                break
            node = {**self.definitions[name], **{key: value for key, value in node.items() if key != "$ref"}}
        return node

    def _member(self, key: str, value: Any) -> Any:
        if key in _NAMED:
            return {name: self.clean(schema) for name, schema in value.items()}
        if key in _MANY:
            return [self.clean(schema) for schema in value]
        return self.clean(value) if key in _ONE else value

    def _shortened(self, node: Schema) -> Schema:
        if node.get("default", ...) is None:
            del node["default"]
        if node.get("required") == []:
            del node["required"]
        if "enum" in node:
            node = self._choices(node)
        return _nullable(_flat(node))

    def _choices(self, node: Schema) -> Schema:
        given: list[Any] = node["enum"]
        values = declared_order(given, self.orders)
        kinds = {type(value) for value in values}
        kind = {str: "string", int: "integer"}.get(kinds.pop()) if len(kinds) == 1 else None
        short: Schema = {"const": values[0]} if len(values) == 1 else {"enum": values}
        rest = {key: value for key, value in node.items() if key != "enum"}
        return {**({"type": kind} if kind else {}), **rest, **short}


def _key(value: object) -> tuple[type, Any]:
    return type(value), value


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float))


def _flat(node: Schema) -> Schema:
    """Flatten a union inside a union, such as ``Annotated[A | B, ...] | None``."""
    parts: list[Schema] | None = node.get("anyOf")
    if parts is None or not any(_is_union(part, node) for part in parts):
        return node
    return {**node, "anyOf": [each for part in parts for each in (part["anyOf"] if _is_union(part, node) else [part])]}


def _is_union(part: Schema, around: Schema) -> bool:
    """Return whether a part is a union whose other keywords are the same as those around it."""
    return "anyOf" in part and all(key == "anyOf" or around.get(key) == value for key, value in part.items())


def _nullable(node: Schema) -> Schema:
    """Rewrite ``T | None`` as a list of two types, if T is a single type."""
    parts = node.get("anyOf")
    if parts is None or len(parts) != 2 or {"type": "null"} not in parts:
        return node
    inner = parts[0] if parts[1] == {"type": "null"} else parts[1]
    if not isinstance(inner.get("type"), str) or "const" in inner:
        return node
    merged = {**inner, **{key: value for key, value in node.items() if key != "anyOf"}}
    # Specification, server/tools, x-mcp-header: only on properties of a primitive type, which a list of types is not.
    if "x-mcp-header" not in merged:
        merged["type"] = [inner["type"], "null"]
        if "enum" in inner:
            merged["enum"] = [*inner["enum"], None]
    return merged
