"""The context of a sync function in a worker thread: the methods of ``Context`` as blocking calls.

A call runs as a coroutine in the event loop of the server, and the thread waits for it, unless the request ends first.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from types import UnionType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, overload

from trunkline.connection import Exchange
from trunkline.server.context import BaseContext, Context

if TYPE_CHECKING:
    from trunkline.server.handles import BlockingHandle
    from trunkline.server.server import Server

__all__ = ["BlockingContext", "HandlerAborted"]

T = TypeVar("T")
P = ParamSpec("P")


class BlockingContext(BaseContext):
    """The request being served, for a sync function in a worker thread: the same methods, as blocking calls."""

    __slots__ = ("_loop",)

    def __init__(self, server: Server, exchange: Exchange) -> None:
        """Create the context in the event loop that serves the request."""
        super().__init__(server, exchange)
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the blocking form of a method of ``Context``."""
        method = getattr(Context, name, None)
        if name.startswith("_") or method is None:
            raise AttributeError(f"a context has no attribute {name!r}")

        def blocking(*args: object, **kwargs: object) -> Any:
            return self._wait(method(Context(self._server, self._exchange), *args, **kwargs))

        return blocking

    def once(self, key: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call a function at most once in all rounds of this call; it runs in this thread, not in the event loop."""
        value = None if self._wait(self._did(key)) else function(*args, **kwargs)
        return self._wait(Context(self._server, self._exchange).once(key, lambda: value))

    @overload
    def handle(
        self, value: type[T], *, ttl: float = 3600.0, stored: bool = False, key: str | None = None
    ) -> BlockingHandle[T]: ...
    @overload
    def handle(
        self,
        value: T,
        *,
        type: type[T] | UnionType | None = None,
        ttl: float = 3600.0,
        stored: bool = False,
        key: str | None = None,
    ) -> BlockingHandle[T]: ...
    def handle(
        self,
        value: Any,
        *,
        type: Any = None,
        ttl: float = 3600.0,
        stored: bool = False,
        key: str | None = None,
    ) -> BlockingHandle[Any]:
        """Store a value for later calls and return its handle; see ``Context.handle``."""
        from trunkline.server.handle_service import create_handle
        from trunkline.server.handles import BlockingHandle

        given: dict[str, Any] = {"kind": type, "ttl": ttl, "stored": stored, "key": key}
        return BlockingHandle(self._wait(create_handle(self._server, self._exchange, value, **given)), self)

    async def _did(self, key: str) -> bool:
        return self._channel().did(key)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the server's event loop and wait for it, unless the request ends first."""
        if self.cancelled:
            work.close()
            _abort()
        outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._loop.call_soon_threadsafe(self._start, work, outcome)
        try:
            return outcome.result()
        except concurrent.futures.CancelledError:
            _abort()

    def _start(self, work: Coroutine[Any, Any, T], outcome: concurrent.futures.Future[T]) -> None:
        task = self._loop.create_task(work)
        serving = self._exchange.task
        assert serving is not None

        def request_over(_: object) -> None:
            task.cancel()

        def finished(done: asyncio.Task[T]) -> None:
            serving.remove_done_callback(request_over)
            if done.cancelled():
                outcome.cancel()
            elif (error := done.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(done.result())

        task.add_done_callback(finished)
        serving.add_done_callback(request_over)


class HandlerAborted(BaseException):
    """Raised in a sync function whose request has ended, or is interrupted to send requests to the caller."""


def _abort() -> NoReturn:
    raise HandlerAborted("the request has ended; the caller no longer gets the result of this function")
