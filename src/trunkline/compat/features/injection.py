"""FastMCP's dependencies with bindings, arguments of the call, and values that the whole server shares."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any

from trunkline.compat.context import current_context
from trunkline.server.dependencies import DependencyResolver, _opener
from trunkline.server.dependencies import Depends as _Depends

__all__ = [
    "CALL_ARGUMENTS",
    "BoundDepends",
    "CallArgument",
    "CycleError",
    "Shared",
    "SharedValues",
    "resolve_dependencies",
]

#: The arguments of the call that dependencies are evaluated for.
CALL_ARGUMENTS: ContextVar[Mapping[str, Any]] = ContextVar("trunkline.compat.call_arguments", default={})  # noqa: B039


class CycleError(ValueError):
    """Dependencies need each other."""


class CallArgument(_Depends):
    """Asks for an argument of the call: of the same name, or of that given."""

    __slots__ = ("name", "optional")

    def __init__(self, name: str | None = None, *, optional: bool = False) -> None:
        """Initialize with the argument's name."""
        self.name = name
        self.optional = optional
        super().__init__(self._find)

    def _find(self) -> Any:
        arguments = CALL_ARGUMENTS.get()
        if self.name in arguments or self.optional:
            return arguments.get(self.name or "")
        raise RuntimeError(f"the call has no argument {self.name!r}")

    def called(self, name: str) -> CallArgument:
        """Return the same for a parameter of this name."""
        return self if self.name is not None else CallArgument(name, optional=self.optional)


class BoundDepends(_Depends):
    """A dependency some of whose parameters are bound: to values, or to other dependencies."""

    __slots__ = ("dependency", "factory")

    def __init__(self, dependency: Callable[..., Any], **bindings: Any) -> None:
        """Initialize with the function and its bindings."""
        super().__init__(dependency)
        self.factory = self.dependency = dependency
        defaults = _call_arguments(dependency)
        if bindings or defaults:
            self.function = _bound(dependency, {**defaults, **bindings})

    def __call__(self) -> Any:
        """Call the function."""
        return self.factory()


def _call_arguments(function: Any) -> dict[str, Any]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    return {
        name: each.default
        for name, each in parameters.items()
        if isinstance(each.default, CallArgument) and each.default.name is None
    }


def _bound(function: Any, bindings: Mapping[str, Any]) -> Any:
    """Return a function without the parameters that are bound to values."""
    signature = inspect.signature(function)
    fixed = {name: value for name, value in bindings.items() if not isinstance(value, _Depends)}
    open_function = _opener(function)

    def call(**given: Any) -> Any:
        return open_function(**fixed, **given)

    parameters = [
        each.replace(
            kind=each.KEYWORD_ONLY,
            default=_named(bindings[each.name], each.name) if each.name in bindings else each.default,
        )
        for each in signature.parameters.values()
        if each.name not in fixed
    ]
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    hints = getattr(function, "__annotations__", {})
    call.__annotations__ = {each.name: hints[each.name] for each in parameters if each.name in hints}
    call.__qualname__ = getattr(function, "__qualname__", repr(function))
    if open_function is not function:
        # So that what it returns is entered and left.
        call.__wrapped__ = function  # type: ignore[attr-defined]
    return call


def _named(value: Any, name: str) -> Any:
    return value.called(name) if isinstance(value, CallArgument) else value


# --- values of the whole server --------------------------------------------------------------------------------------


class SharedValues:
    """Values that are made once, and closed when the server stops."""

    def __init__(self) -> None:
        """Start with none."""
        self._values: dict[Any, Any] = {}
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def get(self, factory: Any, given: Mapping[str, Any]) -> Any:
        """Return the value of a function, which is called once."""
        async with self._lock:
            if factory not in self._values:
                opened = _opener(factory)
                value = opened(**given)
                if inspect.isawaitable(value):
                    value = await value
                if hasattr(type(value), "__aenter__"):
                    value = await self._stack.enter_async_context(value)
                elif hasattr(type(value), "__enter__") and opened is not factory:
                    value = self._stack.enter_context(value)
                self._values[factory] = value
            return self._values[factory]

    async def aclose(self) -> None:
        """Close what was opened."""
        self._values.clear()
        await self._stack.aclose()
        self._stack = AsyncExitStack()


class Shared(_Depends):
    """Asks for a value that is made once for the whole server."""

    __slots__ = ("dependency", "factory")

    def __init__(self, factory: Callable[..., Any]) -> None:
        """Initialize with the function that makes it."""
        self.factory = self.dependency = factory

        @functools.wraps(factory)
        async def shared(**given: Any) -> Any:
            context = current_context()
            values = None if context is None else getattr(context.server, "shared_values", None)
            return await (SharedValues() if values is None else values()).get(factory, given)

        super().__init__(shared)


# --- from code -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def resolve_dependencies(fn: Any, arguments: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Evaluate what a function depends on; yield all its arguments.

    Raises:
        CycleError: dependencies need each other's values.
    """
    from trunkline.compat.context import FastContext
    from trunkline.compat.fast_functions import FastSignature

    _check_cycles(fn)
    signature = FastSignature.of(fn, context_type=FastContext)
    filled = {each.name for each in signature.dependencies}
    given = {name: value for name, value in arguments.items() if name not in filled}
    token = CALL_ARGUMENTS.set(given)
    try:
        async with DependencyResolver(signature, current_context()) as resolved:
            yield {**given, **resolved}
    finally:
        CALL_ARGUMENTS.reset(token)


def _check_cycles(fn: Any) -> None:
    parameters = inspect.signature(fn).parameters
    needs = {
        name: [each.name or key for key, each in _call_arguments(marker.dependency).items()]
        for name, marker in ((name, each.default) for name, each in parameters.items())
        if isinstance(marker, BoundDepends)
    }

    def walk(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise CycleError(" -> ".join((*path[path.index(name) :], name)))
        for each in needs.get(name, ()):
            walk(each, (*path, name))

    for name in needs:
        walk(name, ())
