"""The schemas of the memory server's tools, written out to match those of the official server."""

from __future__ import annotations

from typing import Any

__all__ = ["array_of", "done", "entities", "graph", "record", "relations", "text"]

JsonSchema = dict[str, Any]


def text(description: str | None = None) -> JsonSchema:
    """Return the schema of a text."""
    return {"type": "string"} if description is None else {"type": "string", "description": description}


def array_of(items: JsonSchema, description: str | None = None) -> JsonSchema:
    """Return the schema of a list."""
    made = {"type": "array", "items": items}
    return made if description is None else {**made, "description": description}


def record(**members: JsonSchema) -> JsonSchema:
    """Return the schema of an object that requires these members; a trailing underscore is removed from names."""
    named = {name.removesuffix("_"): schema for name, schema in members.items()}
    return {"type": "object", "properties": named, "required": list(named)} if named else {"type": "object"}


def entities() -> JsonSchema:
    """Return the schema of a list of entities."""
    return array_of(
        record(
            name=text("The name of the entity"),
            entityType=text("What kind of thing it is"),
            observations=array_of(text(), "What is known of it, one fact to a text"),
        )
    )


def relations() -> JsonSchema:
    """Return the schema of a list of relations."""
    return array_of(
        record(
            from_=text("The name of the entity that it leads from"),
            to=text("The name of the entity that it leads to"),
            relationType=text("What the first is to the second, in active voice"),
        )
    )


def graph() -> JsonSchema:
    """Return the schema of a graph or a part of one."""
    return record(entities=entities(), relations=relations())


def done() -> JsonSchema:
    """Return the schema of the result of a deletion."""
    return record(success={"type": "boolean"}, message=text())
