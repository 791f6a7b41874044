"""Dependencies: parameters that the server fills, ``Annotated[T, Depends(make)]``, hidden from the input schema.

It knows functions and their annotations, but no requests; the context may be any object. The parameters of a dependency
are read once, at registration. In a call each dependency is evaluated once, in the event loop, however many functions
need it. What a dependency opened is closed after the call, in reverse order: generator functions, functions made by
`contextlib`'s decorators, and classes that are context managers. An object that a plain function returns is not closed,
since it may be owned elsewhere.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, get_args, get_origin

from trunkline.server.annotations import resolve_hints, strip_annotated

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = [
    "Dependency",
    "DependencyResolver",
    "Depends",
    "HasDependencies",
    "find_depends",
    "is_context",
    "plan_dependency",
]


class Depends:
    """Marks a parameter whose value a function provides: in ``Annotated``, or as the parameter's default."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., object]) -> None:
        """Create the marker for a function, a class or a context manager function."""
        if not callable(function):
            raise TypeError(
                f"Depends needs a function, not a {type(function).__name__}: write Depends(make), not Depends(make())"
            )
        self.function: Callable[..., object] = function

    def __repr__(self) -> str:
        """Return the marker with the function's name."""
        return f"Depends({getattr(self.function, '__qualname__', self.function)})"


class Dependency:
    """One parameter that a function fills, and that function's own dependencies."""

    __slots__ = ("context_name", "dependencies", "function", "name", "open")

    def __init__(
        self,
        name: str,
        function: Callable[..., object],
        *,
        open: Callable[..., object],
        context_name: str | None,
        dependencies: tuple[Dependency, ...],
    ) -> None:
        """Create the dependency; ``open`` is what is called for a value."""
        self.name: str = name
        self.function: Callable[..., object] = function
        self.open: Callable[..., Any] = open
        self.context_name: str | None = context_name
        self.dependencies: tuple[Dependency, ...] = dependencies


class HasDependencies(Protocol):
    """A signature with dependencies."""

    @property
    def dependencies(self) -> tuple[Dependency, ...]:
        """The dependencies to evaluate for a call."""


class DependencyResolver:
    """Evaluates the dependencies of one call: ``async with DependencyResolver(signature, context) as kwargs``.

    An exception of the call is thrown into each open dependency, which may clean up but not suppress it.
    """

    __slots__ = ("_context", "_dependencies", "_stack", "_values")

    def __init__(self, signature: HasDependencies, context: object) -> None:
        """Create a resolver for a signature; ``context`` is passed to the dependencies that take it."""
        self._dependencies = signature.dependencies
        self._context = context
        self._stack = AsyncExitStack()
        self._values: dict[Any, Any] = {}

    async def __aenter__(self) -> dict[str, Any]:
        """Evaluate every dependency, after those that it needs."""
        try:
            return {each.name: await self._value(each) for each in self._dependencies}
        except BaseException as error:
            await self._stack.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close what was opened, in reverse order."""
        await self._stack.__aexit__(kind, error, traceback)

    async def _value(self, dependency: Dependency) -> Any:
        if dependency.function in self._values:
            return self._values[dependency.function]
        given = {each.name: await self._value(each) for each in dependency.dependencies}
        if dependency.context_name is not None:
            given[dependency.context_name] = self._context
        value = dependency.open(**given)
        if hasattr(type(value), "__await__"):
            value = await value
        elif dependency.open is not dependency.function or isinstance(dependency.function, type):
            value = await self._enter(value)
        self._values[dependency.function] = value
        return value

    async def _enter(self, value: Any) -> Any:
        if hasattr(type(value), "__aenter__"):
            return await self._stack.enter_async_context(value)
        if hasattr(type(value), "__enter__"):
            return self._stack.enter_context(value)
        return value


def is_context(annotation: object, context_type: tuple[type, ...]) -> bool:
    """Return whether an annotation is a context type, also if it is optional, annotated or subscripted."""
    inner, _ = strip_annotated(annotation)
    if type(inner) is type or (isinstance(inner, type) and get_origin(inner) is None):
        return issubclass(inner, context_type)
    origin = get_origin(inner)
    if isinstance(origin, type) and issubclass(origin, context_type):
        return True
    return any(is_context(part, context_type) for part in get_args(inner) if isinstance(part, type) or get_origin(part))


def find_depends(annotation: object, default: object) -> Depends | None:
    """Return the marker of a dependency in a parameter's default or metadata; None if there is none."""
    if isinstance(default, Depends):
        return default
    return next((item for item in strip_annotated(annotation)[1] if isinstance(item, Depends)), None)


def plan_dependency(
    name: str,
    function: Callable[..., object],
    *,
    context_type: tuple[type, ...],
    outer: tuple[Callable[..., object], ...] = (),
) -> Dependency:
    """Read the parameters of a dependency's function.

    Raises:
        TypeError: a parameter cannot be filled, or the dependency depends on itself.
    """
    import inspect

    label = getattr(function, "__qualname__", repr(function))
    if function in outer:
        raise TypeError(f"dependency {label} depends on itself; remove the cycle")
    hints = _hints(function, label)
    context_name: str | None = None
    inner: list[Dependency] = []
    for parameter in _parameters(function).values():
        annotation = hints.get(parameter.name, Any)
        marker = find_depends(annotation, parameter.default)
        if marker is not None:
            chain = (*outer, function)
            inner.append(plan_dependency(parameter.name, marker.function, context_type=context_type, outer=chain))
        elif is_context(annotation, context_type):
            context_name = parameter.name
        elif parameter.default is inspect.Parameter.empty and parameter.kind not in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            raise TypeError(
                f"dependency {label}: nothing fills its parameter {parameter.name!r}; "
                "annotate it with Context or Depends(...), or give it a default"
            )
    return Dependency(name, function, open=_opener(function), context_name=context_name, dependencies=tuple(inner))


def _parameters(function: Callable[..., object]) -> Any:
    import inspect

    try:
        return inspect.signature(function).parameters
    except ValueError:
        # Some built-in types do not expose their parameters; they are called without arguments.
        return {}


def _hints(function: Callable[..., object], label: str) -> dict[str, Any]:
    target: Any = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    try:
        return resolve_hints(target)
    except NameError as error:
        raise TypeError(f"dependency {label}: {error}; import it outside of TYPE_CHECKING") from error
    except (TypeError, AttributeError):
        # A callable without annotations: a partial, a built-in.
        return {}


def _opener(function: Callable[..., object]) -> Callable[..., Any]:
    """Return what to call for a value: generator functions become context managers.

    A function that already returns a context manager is wrapped, so that its result is entered like those.
    """
    import inspect

    if inspect.isasyncgenfunction(function):
        return asynccontextmanager(function)
    if inspect.isgeneratorfunction(function):
        return contextmanager(function)
    wrapped = inspect.unwrap(function)
    if wrapped is not function and (inspect.isasyncgenfunction(wrapped) or inspect.isgeneratorfunction(wrapped)):
        return lambda **given: function(**given)
    return function
