"""FastMCP's decorators that belong to no server: they mark a function, which is registered later."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType, SimpleNamespace
from typing import Any

__all__ = ["PromptMeta", "ResourceMeta", "ToolMeta", "mark_function", "options_of_mark", "prompt", "resource", "tool"]


class _Mark(SimpleNamespace):
    """What was said about a function; what was not said is None."""

    type = ""

    def __getattr__(self, name: str) -> Any:
        """Return None for what was not said."""
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class ToolMeta(_Mark):
    """What was said about a tool."""

    type = "tool"


class PromptMeta(_Mark):
    """What was said about a prompt."""

    type = "prompt"


class ResourceMeta(_Mark):
    """What was said about a resource or a template."""

    type = "resource"


_MARKS = MappingProxyType({"tool": ToolMeta, "prompt": PromptMeta, "resource": ResourceMeta})


def mark_function(kind: str, function: Any, options: dict[str, Any]) -> Any:
    """Mark a function and return it.

    Raises:
        TypeError: it is a class method, which belongs to no object yet.
    """
    if isinstance(function, classmethod):
        raise TypeError(f"a {kind} is the method of an object or a class, not a classmethod: decorate the bound method")
    target: Any = function.__func__ if isinstance(function, staticmethod) else function
    target.__fastmcp__ = _MARKS[kind](**{"name": None, **options})
    return function


def options_of_mark(function: Any) -> dict[str, Any]:
    """Return what a mark says, as keywords of a registration."""
    mark = getattr(function, "__fastmcp__", None)
    return {} if mark is None else {key: value for key, value in vars(mark).items() if value is not None}


def _marking(kind: str, given: Any, options: dict[str, Any]) -> Any:
    if isinstance(given, str):
        if options.get("name") is not None:
            raise TypeError(
                "Cannot specify the name both as first argument and as keyword argument: "
                f"{given!r} and {options['name']!r}"
            )
        given, options = None, {**options, "name": given}

    def mark(function: Callable[..., Any]) -> Any:
        return mark_function(kind, function, options)

    return mark if given is None else mark(given)


def tool(name_or_fn: Any = None, **options: Any) -> Any:
    """Mark a function as a tool."""
    return _marking("tool", name_or_fn, options)


def prompt(name_or_fn: Any = None, **options: Any) -> Any:
    """Mark a function as a prompt."""
    return _marking("prompt", name_or_fn, options)


def resource(uri: Any, **options: Any) -> Any:
    """Mark a function as a resource.

    Raises:
        TypeError: there is no URI.
    """
    if not isinstance(uri, str) and callable(uri):
        raise TypeError("The @resource decorator requires a URI: @resource('uri')")
    return _marking("resource", None, {**options, "uri": str(uri)})
