"""The schemas of the memory server's tools, written out so that they have the form of the official server's."""

from __future__ import annotations

from typing import Any

__all__ = ["array_of", "done", "entities", "graph", "record", "relations", "text"]

Schema = dict[str, Any]


def text(description: str | None = None) -> Schema:
    """Describe a text."""
    return {"type": "string"} if description is None else {"type": "string", "description": description}


def array_of(items: Schema, description: str | None = None) -> Schema:
    """Describe a list."""
    made = {"type": "array", "items": items}
    return made if description is None else {**made, "description": description}


def record(**members: Schema) -> Schema:
    """Describe an object that has all of these members; an underscore behind a name is left out."""
    named = {name.removesuffix("_"): schema for name, schema in members.items()}
    return {"type": "object", "properties": named, "required": list(named)} if named else {"type": "object"}


def entities() -> Schema:
    """Describe a list of entities."""
    return array_of(
        record(
            name=text("The name of the entity"),
            entityType=text("What kind of thing it is"),
            observations=array_of(text(), "What is known of it, one fact to a text"),
        )
    )


def relations() -> Schema:
    """Describe a list of relations."""
    return array_of(
        record(
            from_=text("The name of the entity that it leads from"),
            to=text("The name of the entity that it leads to"),
            relationType=text("What the first is to the second, in active voice"),
        )
    )


def graph() -> Schema:
    """Describe a graph, or a part of one."""
    return record(entities=entities(), relations=relations())


def done() -> Schema:
    """Describe what a deletion answers."""
    return record(success={"type": "boolean"}, message=text())
