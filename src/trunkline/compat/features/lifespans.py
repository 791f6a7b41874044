"""Lifespans that are combined with ``|``, as FastMCP has them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

__all__ = ["ComposedLifespan", "ContextManagerLifespan", "Lifespan", "combine_lifespans", "lifespan"]

_Enter = Callable[[Any], AbstractAsyncContextManager[Any]]


class Lifespan:
    """A lifespan made of an async generator function; ``first | second`` enters both, and merges what they yield."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        """Initialize with the generator function."""
        self._enter: _Enter = asynccontextmanager(fn)

    @asynccontextmanager
    async def __call__(self, server: Any) -> AsyncIterator[dict[str, Any]]:
        """Enter the lifespan for a server."""
        async with self._enter(server) as value:
            yield value if value is not None else {}

    def __or__(self, other: Any) -> ComposedLifespan:
        """Return a lifespan that enters this one and then another.

        Raises:
            TypeError: the other is no lifespan.
        """
        if not isinstance(other, Lifespan):
            raise TypeError(
                f"a lifespan cannot be combined with a {type(other).__name__}: use the @lifespan decorator, or "
                "ContextManagerLifespan(function) for a function made by @asynccontextmanager"
            )
        return ComposedLifespan(self, other)


class ContextManagerLifespan(Lifespan):
    """A lifespan made of a function that returns an async context manager."""

    def __init__(self, fn: _Enter) -> None:
        """Initialize with the function."""
        self._enter = fn


class ComposedLifespan(Lifespan):
    """Two lifespans, entered in order and exited in reverse."""

    def __init__(self, left: Lifespan, right: Lifespan) -> None:
        """Initialize with both."""
        self._enter = combine_lifespans(left, right)


def lifespan(fn: Callable[[Any], Any]) -> Lifespan:
    """Make a lifespan of an async generator function."""
    return Lifespan(fn)


def combine_lifespans(*lifespans: _Enter) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """Return a lifespan that enters several in order; what later ones yield wins."""

    @asynccontextmanager
    async def combined(app: Any) -> AsyncIterator[dict[str, Any]]:
        async with AsyncExitStack() as stack:
            merged: dict[str, Any] = {}
            for each in lifespans:
                merged.update(await stack.enter_async_context(each(app)) or {})
            yield merged

    return combined
