"""Running a user's function: async or sync, plain or a generator, with a context and dependencies.

Async functions run in the event loop; sync ones in a worker thread, unless ``thread=False`` was given. A generator
yields a long text in pieces: each piece is sent at once as progress, and the joined text is the result.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable, Collection
from contextlib import aclosing
from types import CoroutineType, MethodType
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from trunkline.connection import Exchange
from trunkline.errors import HandlerError, MissingCapability, RequestFailed
from trunkline.server.blocking_context import BlockingContext
from trunkline.server.context import Context
from trunkline.server.results import Audio, File, Image, ToolResult
from trunkline.server.signatures import Signature

if TYPE_CHECKING:
    from trunkline.server.handles import HandleParameter
    from trunkline.server.server import Server

__all__ = ["TRACEBACKS", "HandlerFunction", "find_caller_error", "users_traceback"]

#: The environment variable that puts tracebacks into results and errors, for the author of a server.
TRACEBACKS = "TRUNKLINE_TRACEBACKS"
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")


class HandlerFunction:
    """A user's function with its signature, ready to run for an exchange."""

    __slots__ = ("_direct", "_in_loop", "_threaded", "context_name", "function", "owner", "signature")

    def __init__(
        self,
        function: Callable[..., object],
        *,
        owner: Server,
        what: str,
        thread: bool = True,
        exclude: Collection[str] = (),
        unchecked: bool = False,
    ) -> None:
        """Read the signature; ``what`` names the function in errors, ``unchecked`` skips the check of arguments."""
        self.function: Callable[..., Any] = function
        self.owner: Server = owner
        self.signature: UncheckedSignature | Signature = (
            UncheckedSignature(function) if unchecked else _read_signature(function, what, exclude)
        )
        self.context_name: str | None = self.signature.context_name
        self._in_loop = not thread
        signature = self.signature
        filled = bool(signature.dependencies or signature.handles)
        self._direct = signature.is_async and not filled and not signature.is_async_generator
        # A sync function that takes nothing but its arguments.
        self._threaded = (
            thread
            and not (signature.is_async or signature.is_async_generator or signature.is_generator)
            and not filled
            and self.context_name is None
        )

    @property
    def is_plain(self) -> bool:
        """Whether it is an async function that takes nothing but its arguments."""
        return self._direct and self.context_name is None

    async def run(self, exchange: Exchange, kwargs: dict[str, Any]) -> Any:
        """Run the function with these arguments and return its value."""
        if self._direct:
            if self.context_name is not None:
                kwargs[self.context_name] = Context(self.owner, exchange)
            return await self.function(**kwargs)
        if self._threaded:
            runtime = exchange.connection.service.runtime  # type: ignore[attr-defined]  # its service is a server's
            value = await (runtime.pool or runtime.start_pool()).submit(self.function, kwargs)
            return await value if type(value) is CoroutineType else value
        context = self._context(exchange)
        if self.signature.handles:
            from trunkline.server.handle_service import bind_handles

            blocking = BlockingContext(self.owner, exchange) if self._is_blocking else None
            kwargs = await bind_handles(self.signature.handles, exchange, kwargs, blocking)
        if self.context_name is not None:
            kwargs[self.context_name] = context
        if not self.signature.dependencies:
            return await self._run(exchange, context, kwargs)
        from trunkline.server.dependencies import DependencyResolver

        async with DependencyResolver(self.signature, Context(self.owner, exchange)) as resolved:
            return await self._run(exchange, context, {**kwargs, **resolved})

    def _context(self, exchange: Exchange) -> Context | BlockingContext:
        return BlockingContext(self.owner, exchange) if self._is_blocking else Context(self.owner, exchange)

    @property
    def _is_blocking(self) -> bool:
        """Whether the function runs in a worker thread."""
        return not self.signature.is_async and not self.signature.is_async_generator and not self._in_loop

    async def _run(self, exchange: Exchange, context: Context | BlockingContext, kwargs: dict[str, Any]) -> Any:
        signature = self.signature
        if signature.is_async:
            return await self.function(**kwargs)
        if signature.is_async_generator:
            assert isinstance(context, Context)
            return await self._join_async(context, kwargs)
        function = self.function
        if signature.is_generator:
            function = self._join
            kwargs = {"context": context, "kwargs": kwargs}
        if self._in_loop:
            value = function(**kwargs)
        else:
            runtime = exchange.connection.service.runtime  # type: ignore[attr-defined]  # its service is a server's
            value = await runtime.submit(function, kwargs, contextvars.copy_context())
        # A sync function may return the coroutine of an async one (a partial, a lambda).
        return await value if asyncio.iscoroutine(value) else value

    async def _join_async(self, context: Context, kwargs: dict[str, Any]) -> str:
        pieces: list[str] = []
        async with aclosing(self.function(**kwargs)) as generator:
            async for piece in generator:
                pieces.append(_text(piece))
                await context.report_progress(len(pieces), message=pieces[-1])
        return "".join(pieces)

    def _join(self, context: Context | BlockingContext, kwargs: dict[str, Any]) -> str:
        pieces: list[str] = []
        for piece in self.function(**kwargs):
            pieces.append(_text(piece))
            if isinstance(context, BlockingContext):
                context.report_progress(len(pieces), message=pieces[-1])
        return "".join(pieces)


class UncheckedSignature:
    """The signature of a function with a given input schema: it is called with any arguments that match the schema."""

    __slots__ = (
        "context_name",
        "description",
        "handles",
        "is_async",
        "is_async_generator",
        "is_generator",
        "names",
        "required",
    )

    dependencies: tuple[()] = ()
    parameters: tuple[()] = ()

    def __init__(self, function: Callable[..., object]) -> None:
        """Determine the kind of the function, and its context parameter."""
        import inspect

        from trunkline.server.annotations import handles_module, resolve_hints
        from trunkline.server.dependencies import is_context

        hints = resolve_hints(function)
        contexts = [
            name for name, hint in hints.items() if name != "return" and is_context(hint, (Context, BlockingContext))
        ]
        self.context_name: str | None = contexts[0] if contexts else None
        parameters = [each for each in inspect.signature(function).parameters.values() if each.name not in contexts]
        open_ended = any(each.kind is each.VAR_KEYWORD for each in parameters)
        #: The names of its parameters; None if it accepts any.
        self.names: frozenset[str] | None = None if open_ended else frozenset(each.name for each in parameters)
        self.required: frozenset[str] = frozenset(
            each.name for each in parameters if each.default is each.empty and not open_ended
        )
        module = handles_module()
        given = [(name, hint, None) for name, hint in hints.items() if name != "return"]
        #: The parameters that are handles: text in the given schema.
        self.handles: tuple[HandleParameter, ...] = () if module is None else module.take_parameters(given, "tool")
        self.description: str | None = inspect.getdoc(function)
        self.is_async: bool = inspect.iscoroutinefunction(function)
        self.is_async_generator: bool = inspect.isasyncgenfunction(function)
        self.is_generator: bool = inspect.isgeneratorfunction(function)

    def bind(self, raw: bytes | Raw | None) -> dict[str, Any]:
        """Never called: the given schema validates the arguments."""
        raise TypeError("a function with a given input schema is not bound by its signature")

    def input_schema(self) -> dict[str, Any]:
        """Never called: the input schema was given."""
        raise TypeError("the input schema was given")

    def output_schema(self) -> None:
        """Return None: the output schema is given too, or there is none."""


def find_caller_error(group: ExceptionGroup[Exception]) -> HandlerError | MissingCapability | RequestFailed | None:
    """Return the first error of an exception group that is meant for the caller; None if there is none."""
    for error in group.exceptions:
        found = find_caller_error(error) if isinstance(error, ExceptionGroup) else error
        if isinstance(found, HandlerError | MissingCapability | RequestFailed):
            return found
    return None


def users_traceback(error: BaseException) -> str:
    """Format an exception of a user's function, from the first frame outside this package on."""
    import traceback

    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames or error.__traceback__)).rstrip()


def _read_signature(function: Callable[..., object], what: str, exclude: Collection[str]) -> Signature:
    try:
        _reject_unbound_method(function, what)
        return Signature.of(
            function,
            context_type=(Context, BlockingContext),
            exclude=exclude,
            name_for_errors=what,
            content_types=(Image, Audio, File, ToolResult),
        )
    except TypeError as error:
        code = getattr(function, "__code__", None)
        if code is not None:
            error.add_note(f"defined in {code.co_filename}, line {code.co_firstlineno}")
        raise


def _reject_unbound_method(function: Callable[..., object], what: str) -> None:
    """Raise for a function that was decorated in the body of a class, where there is no object to call it with."""
    code = getattr(function, "__code__", None)
    outer = getattr(function, "__qualname__", "").rpartition(".")[0]
    if code is None or isinstance(function, MethodType) or not outer or outer.endswith("<locals>"):
        return
    if code.co_varnames[:1] == ("self",):
        raise TypeError(
            f"{what} is a method of a class, and self would be an argument: register the method of an object, "
            f"as in server.add_tool(thing.{code.co_name})"
        )


def _text(piece: object) -> str:
    if not isinstance(piece, str):
        raise TypeError(f"a generator must yield strings, not {type(piece).__name__}")
    return piece
