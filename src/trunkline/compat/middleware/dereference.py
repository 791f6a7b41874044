"""FastMCP's middleware that sends schemas without references, since not all clients follow them."""

from __future__ import annotations

from typing import Any

from trunkline.compat.json_schemas import dereference_refs
from trunkline.compat.middleware.base import CallNext, Middleware, MiddlewareContext

__all__ = ["DereferenceRefsMiddleware", "dereferenced"]


#: A schema that would be larger than this without references is sent with them.
_LARGEST = 5_000


def _size(schema: Any, definitions: Any, known: dict[str, float], inside: tuple[str, ...] = ()) -> float:
    """Return how many nodes a schema would have without references; without end for one that refers to itself."""
    if isinstance(schema, list):
        return sum(_size(each, definitions, known, inside) for each in schema)
    if not isinstance(schema, dict):
        return 0
    total = 1 + sum(_size(each, definitions, known, inside) for key, each in schema.items() if key != "$defs")
    reference = schema.get("$ref")
    name = reference.rpartition("/")[2] if isinstance(reference, str) else None
    if name is None or name not in definitions:
        return total
    if name in inside:
        return float("inf")
    if name not in known:
        known[name] = _size(definitions[name], definitions, known, (*inside, name))
    return total + known[name]


def dereferenced(component: Any) -> Any:
    """Return a component whose schemas have no references; one without any is returned as it is."""
    changes = {
        name: dereference_refs(schema)
        for name in ("parameters", "output_schema")
        if isinstance(schema := getattr(component, name, None), dict)
        and "$defs" in schema
        and _size(schema, schema["$defs"], {}) <= _LARGEST
    }
    return component.model_copy(update=changes) if changes else component


class DereferenceRefsMiddleware(Middleware):
    """Lists tools and templates with schemas that stand alone."""

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """List tools without references."""
        return [dereferenced(each) for each in await call_next(context)]

    async def on_list_resource_templates(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """List templates without references."""
        return [dereferenced(each) for each in await call_next(context)]
