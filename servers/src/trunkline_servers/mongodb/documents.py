"""Documents in and out: extended JSON both ways, the allowed operators, and the inferred schema of a collection.

Pure functions. Input from a caller is first parsed as extended JSON and then checked, so that nothing can hide in its
encoding. Allowed pipeline stages are listed; operators that write or run code are rejected everywhere. A schema is
inferred from sampled documents within limits: members, types and frequencies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.errors import ToolError

__all__ = [
    "CollectionSchema",
    "SchemaField",
    "check_document",
    "check_pipeline",
    "check_query",
    "check_sort",
    "check_update",
    "collection_name",
    "database_name",
    "infer_schema",
    "matches_everything",
    "parse_extended_json",
    "to_extended_json",
]

#: Operators that write elsewhere, or run JavaScript on the database host.
_REFUSED = frozenset({"$out", "$merge", "$where", "$function", "$accumulator", "$eval", "$mapReduce", "$code"})
_STAGES = frozenset(
    {
        *("$addFields", "$bucket", "$bucketAuto", "$count", "$densify", "$documents", "$facet", "$fill", "$geoNear"),
        *("$graphLookup", "$group", "$limit", "$lookup", "$match", "$project", "$redact", "$replaceRoot"),
        *("$replaceWith", "$sample", "$search", "$searchMeta", "$set", "$setWindowFields", "$skip", "$sort"),
        *("$sortByCount", "$unionWith", "$unset", "$unwind", "$vectorSearch"),
    }
)
_UPDATES = frozenset(
    {
        *("$addToSet", "$bit", "$currentDate", "$inc", "$max", "$min", "$mul", "$pop", "$pull", "$pullAll"),
        *("$push", "$rename", "$set", "$setOnInsert", "$unset"),
    }
)
_MOST_STAGES = 50
_MOST_DEPTH = 80
_DATABASE_CHARS = 63
_COLLECTION_CHARS = 200
#: Characters that MongoDB does not allow in database names.
_NOT_DATABASE = frozenset('/\\. "$*<>:|?')
#: Prefix of internal operators, some of which run JavaScript; their names are not stable.
_INTERNAL = "$_internal"
_REFERENCE = frozenset({"$ref", "$id", "$db"})


def database_name(name: str) -> str:
    """Return the name if it is a valid database name.

    Raises:
        ToolError: it is not.
    """
    odd = not name.isprintable() or not _NOT_DATABASE.isdisjoint(name)
    if not name or odd or len(name.encode()) > _DATABASE_CHARS:
        raise ToolError(f"{name[:100]!r} is not a database name: look with list_databases")
    return name


def collection_name(name: str) -> str:
    """Return the name if it is a valid name of a collection that is not a system collection.

    Raises:
        ToolError: it is not.
    """
    odd = "$" in name or "\0" in name or name.startswith((".", "system.")) or ".." in name or name.endswith(".")
    if not name or odd or len(name) > _COLLECTION_CHARS:
        raise ToolError(f"{name[:100]!r} is not a collection name: look with list_collections")
    return name


# --- extended JSON ---------------------------------------------------------------------------------------------------


def parse_extended_json(value: Any) -> Any:
    """Parse plain values as extended JSON, canonical or relaxed.

    Raises:
        ToolError: it is invalid, or contains code.
    """
    from bson import encode
    from bson.errors import BSONError
    from bson.json_util import RELAXED_JSON_OPTIONS, loads

    try:
        read = loads(json.dumps(value), json_options=RELAXED_JSON_OPTIONS)
        encode({"v": read})  # checks that it can be encoded: numbers, depth, member names
    except (BSONError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ToolError(f"This is not extended JSON that MongoDB accepts: {str(error)[:200]}") from error
    for part in _parts(read):
        if type(part).__name__ == "Code":
            raise ToolError("JavaScript is not sent to the database")
    return read


def to_extended_json(document: Any) -> Any:
    """Convert a document to plain values of relaxed extended JSON."""
    from bson.json_util import RELAXED_JSON_OPTIONS, dumps

    return msgspec.json.decode(dumps(document, json_options=RELAXED_JSON_OPTIONS))


# --- checks ----------------------------------------------------------------------------------------------------------


def check_query(value: Any) -> None:
    """Check that a filter, projection, sort or pipeline neither runs code nor writes.

    Raises:
        ToolError: it does, or it is a single value, such as an ObjectId, instead of an object.
    """
    if not isinstance(value, dict | list):
        raise ToolError('This must be an object of members, such as {"name": "x"}')
    for part in _parts(value):
        for name in part if isinstance(part, dict) else ():
            if name in _REFUSED or name.startswith(_INTERNAL):
                raise ToolError(f"{name} is not allowed anywhere: it writes, or runs code in the database")


def matches_everything(query: Any) -> bool:
    """Return True if a filter has no condition.

    That is an empty one, one with only ``$comment``, an ``$and`` of such filters, or an ``$or`` with one of them. Other
    filters that happen to match everything are not detected.
    """
    if not isinstance(query, dict):
        return False
    for name, value in query.items():
        each = (
            [matches_everything(part) for part in value]
            if name in ("$and", "$or") and isinstance(value, list)
            else [False]
        )
        if name != "$comment" and not (all(each) if name == "$and" else any(each)):
            return False
    return True


def check_sort(order: Mapping[str, Any]) -> None:
    """Check that a sort order is 1, -1 or a ``$meta`` score for each member.

    Raises:
        ToolError: it is something else.
    """
    for name, direction in order.items():
        score = direction.get("$meta") if isinstance(direction, dict) and len(direction) == 1 else None
        if not isinstance(score, str) and (
            not isinstance(direction, int) or direction not in (1, -1) or direction is True
        ):
            raise ToolError(f"The order of {name[:100]!r} must be 1 (up) or -1 (down)")


def check_pipeline(pipeline: Sequence[Any]) -> None:
    """Check that a pipeline only has stages that read.

    Raises:
        ToolError: it is invalid, or has a stage that is not allowed.
    """
    if len(pipeline) > _MOST_STAGES:
        raise ToolError(f"A pipeline of {len(pipeline)} stages is too long: give at most {_MOST_STAGES}")
    check_query(pipeline)
    for stage in pipeline:
        if not isinstance(stage, dict) or len(stage) != 1:
            raise ToolError('A stage of a pipeline is an object with one member, such as {"$match": {}}')
        ((name, body),) = stage.items()
        if name not in _STAGES:
            raise ToolError(f"The stage {str(name)[:100]} is not allowed; allowed stages: {', '.join(sorted(_STAGES))}")
        for inner in _inner_pipelines(name, body):
            check_pipeline(inner)


def _inner_pipelines(name: str, body: Any) -> Iterator[Sequence[Any]]:
    if name == "$unionWith" and isinstance(body, str):
        collection_name(body)
    if name == "$facet":
        inner = list(body.values()) if isinstance(body, dict) else [None]
    elif name in ("$lookup", "$unionWith", "$graphLookup") and not isinstance(body, str):
        if not isinstance(body, dict):
            raise ToolError(f"{name} must be an object, with the name of a collection")
        _check_same_database(name, body)
        inner = [body["pipeline"]] if "pipeline" in body else []
    else:
        return
    for pipeline in inner:
        if not isinstance(pipeline, list):
            raise ToolError(f"{name} must hold pipelines: lists of stages")
        yield pipeline


def _check_same_database(name: str, body: Mapping[str, Any]) -> None:
    source = body.get("from", body.get("coll"))
    if "db" in body or not isinstance(source, str | None):
        raise ToolError(f"{name} may only read collections of the same database: give the collection's name")
    if isinstance(source, str):
        collection_name(source)


def check_update(update: Any) -> None:
    """Check that an update consists of allowed operators.

    Raises:
        ToolError: it would replace documents, or uses another operator.
    """
    if not isinstance(update, dict) or not update or not _UPDATES.issuperset(update):
        raise ToolError(f"An update is an object of these operators: {', '.join(sorted(_UPDATES))}")
    check_query(update)


def check_document(document: Any) -> None:
    """Check that a document to store is plain data.

    Raises:
        ToolError: it is not an object, or a member is named like an operator.
    """
    if not isinstance(document, dict):
        raise ToolError("A document is an object")
    for part in _parts(document):
        for name in part if isinstance(part, dict) else ():
            if name.startswith("$"):
                raise ToolError(f"{name[:100]!r} cannot be the name of a member that is stored")


def _parts(value: Any) -> Iterator[Any]:
    """Yield a value and everything in it."""
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        part, depth = waiting.pop()
        if depth > _MOST_DEPTH:
            raise ToolError(f"This is nested deeper than {_MOST_DEPTH} levels")
        yield part
        waiting += [(each, depth + 1) for each in _inside(part)]


def _inside(part: Any) -> Iterable[Any]:
    """Return the direct parts of a value; a DBRef may have more than its three members."""
    if isinstance(part, dict):
        return part.values()
    if isinstance(part, list | tuple):
        return part
    if type(part).__name__ == "DBRef":
        members = part.as_doc()
        return [members["$id"], {name: value for name, value in members.items() if name not in _REFERENCE}]
    return ()


_MOST_FIELDS = 300
_MOST_SCHEMA_DEPTH = 6
_MOST_ITEMS = 20
_NAME_CHARS = 100


class SchemaField(Struct, frozen=True):
    """A member: its dotted path (``[]`` for list items), the types seen, and the number of documents with it."""

    path: str
    types: dict[str, int]
    documents: int


class CollectionSchema(Struct, frozen=True):
    """The inferred schema of a collection."""

    database: str
    collection: str
    sampled: int
    fields: list[SchemaField]
    #: Whether members were left out.
    cut: bool


def infer_schema(database: str, collection: str, documents: Iterable[Any]) -> CollectionSchema:
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
    fields = [SchemaField(path, kinds, seen_in[path]) for path, kinds in types.items()]
    return CollectionSchema(database, collection, sampled, fields, cut)


def _members(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _MOST_SCHEMA_DEPTH:
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
