"""FastMCP's middleware that sends schemas without references, since not all clients follow them."""

from __future__ import annotations

from typing import Any

from trunkline.compat.json_schemas import dereference_refs
from trunkline.compat.middleware.base import CallNext, Middleware, MiddlewareContext

__all__ = ["DereferenceRefsMiddleware", "dereferenced"]


def dereferenced(component: Any) -> Any:
    """Return a component whose schemas have no references; one without any is returned as it is."""
    changes = {
        name: dereference_refs(schema)
        for name in ("parameters", "output_schema")
        if isinstance(schema := getattr(component, name, None), dict) and "$defs" in schema
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
