"""FastMCP's decorators that belong to no server: they mark a function, which is registered later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

__all__ = ["ToolMeta", "prompt", "resource", "tool"]


class ToolMeta(SimpleNamespace):
    """What was said about a function."""

    type = "tool"


def _mark(kind: str, given: Any, options: dict[str, Any]) -> Any:
    def mark(function: Any) -> Any:
        function.__fastmcp__ = ToolMeta(type=kind, **options)
        return function

    if isinstance(given, str):
        options = {**options, "name": given}
        return mark
    return mark if given is None else mark(given)


def tool(name_or_fn: Any = None, **options: Any) -> Any:
    """Mark a function as a tool."""
    return _mark("tool", name_or_fn, options)


def prompt(name_or_fn: Any = None, **options: Any) -> Any:
    """Mark a function as a prompt."""
    return _mark("prompt", name_or_fn, options)


def resource(uri: str, **options: Any) -> Any:
    """Mark a function as a resource."""
    return _mark("resource", None, {**options, "uri": uri})
