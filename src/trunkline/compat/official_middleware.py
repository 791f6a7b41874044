"""The official SDK's middleware: functions ``async (ctx, call_next)`` in a list that a server keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from trunkline.compat.lowlevel import method_params
from trunkline.compat.types import to_model, to_plain, to_struct
from trunkline.protocol.methods import METHODS

__all__ = ["MiddlewareList"]


class MiddlewareList(list[Any]):
    """Functions of the SDK's kind; a server of ours that iterates gets functions of our kind."""

    def __init__(self, own: Callable[..., Any], given: Any = ()) -> None:
        """Start with a function of ours, which stays the outermost."""
        super().__init__(given)
        self._own = own

    def __iter__(self) -> Iterator[Any]:
        """Yield functions of our kind."""
        yield self._own
        for function in super().__iter__():
            yield _adapted(function)

    def __bool__(self) -> bool:
        """Return True: ours is always there."""
        return True


def _adapted(function: Callable[..., Any]) -> Callable[..., Any]:
    async def run(request: Any, call_next: Any) -> Any:
        context = request.context.request_context
        context.method = request.method
        context.params = to_plain(method_params(request.params, request.method))
        answers: dict[int, Any] = {}

        async def inner(_: Any) -> Any:
            result = await call_next(request)
            shown = msgspec.json.decode(result) if isinstance(result, Raw) else to_model(result)
            answers[id(shown)] = (shown, result)
            return shown

        shown = await function(context, inner)
        known = answers.get(id(shown))
        if known is not None and known[0] is shown:
            return known[1]
        kind = next((row.result for row in METHODS if row.name == request.method), None)
        return shown if kind is None or isinstance(shown, Struct) else to_struct(shown, kind)

    return run
