"""Callables as the frameworks see them: the name of a partial, and a function without ``**kwargs``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["name_of", "named_parameters"]


def name_of(function: Any) -> str:
    """Return the name of a callable: that of a partial is its function's."""
    while isinstance(function, functools.partial):
        own = vars(function).get("__name__")
        if own:
            return str(own)
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__


def named_parameters(function: Callable[..., Any], more: Iterable[str] = ()) -> Callable[..., Any]:
    """Return a function that takes only named arguments: what ``**kwargs`` would take are the names given beside."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function
    kept = [each for each in signature.parameters.values() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    if len(kept) == len(signature.parameters) or not any(
        each.kind is each.VAR_KEYWORD for each in signature.parameters.values()
    ):
        return function
    known = {each.name for each in kept}
    named = inspect.Parameter.KEYWORD_ONLY
    kept += [inspect.Parameter(name, named, annotation=Any) for name in more if name not in known]
    if inspect.iscoroutinefunction(function):

        async def call(**given: Any) -> Any:
            return await function(**given)
    else:

        def call(**given: Any) -> Any:  # type: ignore[misc]
            return function(**given)

    call.__name__, call.__doc__ = getattr(function, "__name__", "call"), function.__doc__
    hints = getattr(function, "__annotations__", {})
    call.__annotations__ = {name: hints[name] for name in hints if name in known or name == "return"}
    call.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return call
