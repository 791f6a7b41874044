"""Middleware: functions around every request, outermost first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from trunkline.server.context import Context
from trunkline.types import RequestParams

__all__ = ["CallNext", "Middleware", "ServerRequest", "wrap"]


class ServerRequest(Struct, frozen=True):
    """A request on its way through middleware: the method, its typed params, and the context of its handler."""

    method: str
    params: Any
    context: Context

    @property
    def round(self) -> int:
        """How often the caller has been asked before in this call: middleware runs in each round."""
        return self.context.round

    def with_params(self, params: RequestParams) -> ServerRequest:
        """Give the same request with other params."""
        return replace(self, params=params)


CallNext = Callable[[ServerRequest], Awaitable[Any]]
Middleware = Callable[[ServerRequest, CallNext], Awaitable[Any]]


def wrap(middleware: Sequence[Middleware], last: CallNext) -> CallNext:
    """Nest functions around a last one, the first given outermost."""
    for each in reversed(middleware):
        last = _around(each, last)
    return last


def _around(outer: Middleware, inner: CallNext) -> CallNext:
    async def call(request: ServerRequest) -> Any:
        return await outer(request, inner)

    return call
