"""The inferred schema of a collection, from sampled documents: members, types and frequencies. Pure, with limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

__all__ = ["Field", "Schema", "describe"]

_MOST_FIELDS = 300
_MOST_DEPTH = 6
_MOST_ITEMS = 20
_NAME_CHARS = 100


class Field(Struct, frozen=True):
    """A member: its dotted path (``[]`` for list items), the types seen, and the number of documents with it."""

    path: str
    types: dict[str, int]
    documents: int


class Schema(Struct, frozen=True):
    """The inferred schema of a collection."""

    database: str
    collection: str
    sampled: int
    fields: list[Field]
    #: Whether members were left out.
    cut: bool


def describe(database: str, collection: str, documents: Iterable[Any]) -> Schema:
    """Infer the schema of documents."""
    types: dict[str, dict[str, int]] = {}
    seen_in: dict[str, int] = {}
    sampled, cut = 0, False
    for document in documents:
        sampled += 1
        here: set[str] = set()
        for path, kind in _members(document, "", 0):
            if path not in types and len(types) >= _MOST_FIELDS:
                cut = True
                continue
            kinds = types.setdefault(path, {})
            kinds[kind] = kinds.get(kind, 0) + 1
            here.add(path)
        for path in here:
            seen_in[path] = seen_in.get(path, 0) + 1
    fields = [Field(path, kinds, seen_in[path]) for path, kinds in types.items()]
    return Schema(database, collection, sampled, fields, cut)


def _members(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _MOST_DEPTH:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            below = f"{path}.{name[:_NAME_CHARS]}" if path else name[:_NAME_CHARS]
            yield below, _kind(inner)
            yield from _members(inner, below, depth + 1)
    elif isinstance(value, list):
        for inner in value[:_MOST_ITEMS]:
            yield f"{path}[]", _kind(inner)
            yield from _members(inner, f"{path}[]", depth + 1)


def _kind(value: Any) -> str:
    """Return the MongoDB name of a value's type."""
    names = {
        "NoneType": "null",
        "bool": "bool",
        "int": "int",
        "Int64": "long",
        "float": "double",
        "str": "string",
        "dict": "object",
        "list": "array",
        "datetime": "date",
        "DatetimeMS": "date",
        "ObjectId": "objectId",
        "bytes": "binData",
        "Binary": "binData",
        "Decimal128": "decimal",
        "Timestamp": "timestamp",
        "Regex": "regex",
    }
    kind = type(value).__name__
    return names.get(kind, kind)
