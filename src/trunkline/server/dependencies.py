"""Values a function is given rather than sent: ``Annotated[T, Depends(make)]``, hidden from its schema.

It knows functions and their annotations, no requests; the context is whatever object the caller passes. What a
dependency needs is read once, at registration. In a call each dependency is evaluated once, however many ask for it,
in the event loop. What a dependency opened is closed after the call, in reverse order: generator functions, functions
made by `contextlib`'s decorators, and classes that are context managers. An object that a plain function merely
returns is left alone, since somebody else may own it.
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
    """Marks a parameter whose value a function makes: in ``Annotated``, or as the parameter's default."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., object]) -> None:
        """Take the function, class or context manager function that makes the value."""
        if not callable(function):
            raise TypeError(
                f"Depends needs a function, not a {type(function).__name__}: write Depends(make), not its result"
            )
        self.function: Callable[..., object] = function

    def __repr__(self) -> str:
        """Name the function."""
        return f"Depends({getattr(self.function, '__qualname__', self.function)})"


class Dependency:
    """One parameter filled by a function, and what that function needs itself."""

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
        """Keep what was read of the function; ``open`` is what is called."""
        self.name: str = name
        self.function: Callable[..., object] = function
        self.open: Callable[..., Any] = open
        self.context_name: str | None = context_name
        self.dependencies: tuple[Dependency, ...] = dependencies


class HasDependencies(Protocol):
    """What has dependencies: a signature."""

    @property
    def dependencies(self) -> tuple[Dependency, ...]:
        """What is to be evaluated for a call."""
        ...


class DependencyResolver:
    """The dependencies of one call: ``async with Resolution(signature, context) as kwargs``.

    An error of the call is thrown into each open dependency, which may clean up but not hide it.
    """

    __slots__ = ("_context", "_dependencies", "_stack", "_values")

    def __init__(self, signature: HasDependencies, context: object) -> None:
        """Take whose dependencies to resolve, and the context for those that ask for it."""
        self._dependencies = signature.dependencies
        self._context = context
        self._stack = AsyncExitStack()
        self._values: dict[Any, Any] = {}

    async def __aenter__(self) -> dict[str, Any]:
        """Evaluate every dependency, the needed ones first."""
        try:
            return {each.name: await self._value(each) for each in self._dependencies}
        except BaseException as failure:
            await self._stack.__aexit__(type(failure), failure, failure.__traceback__)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close what was opened, last first."""
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
    """Whether an annotation asks for the context: the type, an optional, an annotated or a subscripted one."""
    inner, _ = strip_annotated(annotation)
    if type(inner) is type or (isinstance(inner, type) and get_origin(inner) is None):
        return issubclass(inner, context_type)
    origin = get_origin(inner)
    if isinstance(origin, type) and issubclass(origin, context_type):
        return True
    return any(is_context(part, context_type) for part in get_args(inner) if isinstance(part, type) or get_origin(part))


def find_depends(annotation: object, default: object) -> Depends | None:
    """Find the mark of a dependency in a parameter's default or metadata."""
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
    """Read what a dependency's function needs.

    Raises:
        TypeError: it needs something that nothing fills, or itself.
    """
    import inspect

    label = getattr(function, "__qualname__", repr(function))
    if function in outer:
        raise TypeError(f"dependency {label} needs itself; break the circle")
    hints = _hints(function, label)
    context_name: str | None = None
    inner: list[Dependency] = []
    for parameter in _parameters(function).values():
        annotation = hints.get(parameter.name, Any)
        mark = find_depends(annotation, parameter.default)
        if mark is not None:
            chain = (*outer, function)
            inner.append(plan_dependency(parameter.name, mark.function, context_type=context_type, outer=chain))
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
        # Some built-in types tell nothing of their parameters; they are called with none.
        return {}


def _hints(function: Callable[..., object], label: str) -> dict[str, Any]:
    target: Any = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    try:
        return resolve_hints(target)
    except NameError as failure:
        raise TypeError(f"dependency {label}: {failure}; import it outside of TYPE_CHECKING") from failure
    except (TypeError, AttributeError):
        # Not something with annotations: a partial, a built-in.
        return {}


def _opener(function: Callable[..., object]) -> Callable[..., Any]:
    """Give what to call: generator functions become context managers, ready ones are wrapped to be told apart."""
    import inspect

    if inspect.isasyncgenfunction(function):
        return asynccontextmanager(function)
    if inspect.isgeneratorfunction(function):
        return contextmanager(function)
    made_by = inspect.unwrap(function)
    if made_by is not function and (inspect.isasyncgenfunction(made_by) or inspect.isgeneratorfunction(made_by)):
        return lambda **given: function(**given)
    return function
