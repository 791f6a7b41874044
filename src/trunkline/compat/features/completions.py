"""Completion handlers of FastMCP: one function for all prompts and templates."""

from __future__ import annotations

import inspect
from typing import Any

import trunkline.types as t
from trunkline.compat.types import model_class, to_model, to_struct

__all__ = [
    "MAX_COMPLETION_VALUES",
    "CompletionHandler",
    "CompletionReference",
    "CompletionValues",
    "completing",
    "normalize_completion",
    "serve_completions",
]

#: The protocol's limit.
MAX_COMPLETION_VALUES = 100

# Names of types that code uses in annotations.
CompletionHandler = Any
CompletionReference = Any
CompletionValues = Any


def normalize_completion(result: Any) -> Any:
    """Return what a handler returned as a ``Completion`` of at most a hundred values.

    Raises:
        TypeError: it is a text, which would become a value for each letter.
    """
    kind = model_class("Completion")
    if isinstance(result, str):
        raise TypeError("the completion handler returned a str: return a list of strings, or a Completion")
    completion = result if isinstance(result, kind) else kind(values=list(result or ()))
    if len(completion.values) <= MAX_COMPLETION_VALUES:
        return completion
    total = len(completion.values) if completion.total is None else completion.total
    return kind(values=completion.values[:MAX_COMPLETION_VALUES], total=total, has_more=True)


def serve_completions(server: Any, function: Any) -> None:
    """Let a handler answer every completion, also of what the server does not have."""
    from trunkline.compat.middleware.messages import wrap_handler

    complete = completing(function)

    async def handle(exchange: Any, params: Any) -> t.CompleteResult:
        return t.CompleteResult(completion=await complete(params.ref, params.argument, params.context))

    server.handlers["completion/complete"] = wrap_handler(server, "completion/complete", handle)


def completing(function: Any) -> Any:
    """Return a completion of ours that calls a handler: in a worker thread unless it is async."""

    async def complete(ref: Any, argument: Any, context: Any) -> Any:
        given = (to_model(ref), to_model(argument), to_model(context))
        if inspect.iscoroutinefunction(function):
            found = await function(*given)
        else:
            import anyio.to_thread

            found = await anyio.to_thread.run_sync(function, *given)
            found = await found if inspect.isawaitable(found) else found
        return to_struct(normalize_completion(getattr(found, "completion", found)), t.Completion)

    return complete
