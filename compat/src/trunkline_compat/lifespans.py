"""FastMCP's lifespans as objects: functions that yield once, joined with ``|``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

__all__ = ["lifespan"]


class _Lifespan:
    """A lifespan that can be joined with another."""

    def __init__(self, *parts: Callable[[Any], Any]) -> None:
        self._parts = parts

    def __or__(self, other: Any) -> _Lifespan:
        """Return both, entered in this order."""
        return _Lifespan(*self._parts, *getattr(other, "_parts", (other,)))

    @asynccontextmanager
    async def __call__(self, server: Any) -> AsyncIterator[dict[str, Any]]:
        """Enter all parts, and yield their values together."""
        async with AsyncExitStack() as stack:
            values: dict[str, Any] = {}
            for part in self._parts:
                values |= await stack.enter_async_context(part(server)) or {}
            yield values


def lifespan(function: Callable[[Any], AsyncIterator[Any]]) -> _Lifespan:
    """Return a function that yields once as a lifespan."""
    return _Lifespan(asynccontextmanager(function))
