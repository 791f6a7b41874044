"""Running a server as a program: its lifespan, the event loop, the transport and a clean shutdown.

A lifespan is entered once before the first request and left after the last connection has ended. It runs in its own
task, because a context manager must be left by the task that entered it, and connections come and go in any order.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from trunkline.errors import ConfigError
from trunkline.server.dispatch import ServerConnection

__all__ = ["Lifespan", "run", "run_async", "run_loop"]


class Lifespan:
    """Holds what the user's lifespan gave while somebody needs it."""

    __slots__ = ("_enter", "_stop", "_task", "_users", "ready", "value")

    def __init__(self, enter: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        """Take what makes the context manager."""
        self._enter = enter
        self._users = 0
        self._task: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None
        #: Set once entered; its exception is why it could not be.
        self.ready: asyncio.Future[None] | None = None
        self.value: Any = None

    @property
    def entered(self) -> bool:
        """Whether it has been entered and not left."""
        return self.ready is not None and self.ready.done() and self._task is not None

    def acquire(self) -> None:
        """Need the lifespan from now on; called in the loop."""
        self._users += 1
        if self._task is None:
            loop = asyncio.get_running_loop()
            self.ready = loop.create_future()
            self._stop = asyncio.Event()
            self._task = loop.create_task(self._run(self.ready, self._stop))

    async def release(self) -> None:
        """Need it no more; the last one waits until it is left."""
        self._users -= 1
        if self._users or self._task is None or self._stop is None:
            return
        task, self._task = self._task, None
        self._stop.set()
        await task

    async def _run(self, ready: asyncio.Future[None], stop: asyncio.Event) -> None:
        try:
            async with self._enter() as value:
                self.value = value
                ready.set_result(None)
                await stop.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)
            # Whoever waits hears of it; if nobody does, it must not be reported as forgotten.
            ready.exception()
        finally:
            self.value = None


if TYPE_CHECKING:
    from trunkline.connection import Connection
    from trunkline.server.server import Server
    from trunkline.transports.link import Link


log = logging.getLogger("trunkline")

T = TypeVar("T")

#: HTTP, and the names that others give it; the last one also serves the oldest transport where others do.
_HTTP = ("http", "streamable-http", "sse")


def run(server: Server, transport: str | None, **options: object) -> None:
    """Run a server until its input ends or it is told to stop.

    What is wrong with the way it is to be run is one sentence for whoever started the program, and exit code 2.
    """
    try:
        run_loop(run_async(server, transport, **options))
    except ConfigError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2) from error


async def run_async(server: Server, transport: str | None, **options: object) -> None:
    """Run a server in the running loop."""
    given: Mapping[str, object] = options
    if "show_banner" in given:
        from trunkline.compat import translate

        given = translate("run", given, ())
    if transport in _HTTP:
        try:
            await _http(server, transport, given)
        finally:
            server.close()
        return
    if transport not in ("stdio", None):
        raise ConfigError(f"There is no transport {transport!r}: it is one of stdio, {', '.join(_HTTP)}")
    if given:
        raise TypeError(f"the stdio transport takes no {', '.join(sorted(given))}{_nearest(given)}")
    if server.auth is not None:
        raise ConfigError(
            "auth= is for HTTP: over stdio whoever starts the server passes credentials in its environment. Leave "
            'auth= out, or serve with run("http")'
        )
    if sys.platform == "win32":
        raise ConfigError(
            "stdio servers need pipes that an event loop can wait for, which Windows lacks; use Linux or macOS"
        )
    from trunkline.transports.stdio import StdioLink

    await _serve_stdio(server, StdioLink.claim(server.limits))


def _nearest(options: Iterable[str]) -> str:
    """Return the end of a sentence about options of which one may be misspelt."""
    from trunkline.server.http import HttpOptions
    from trunkline.server.validation_errors import did_you_mean

    known = ("transport", *HttpOptions.__annotations__)
    return next((did_you_mean(name, known) for name in options if name not in known), "")


async def _serve_stdio(server: Server, link: Link) -> None:
    """Serve until the input ends or a signal comes; on a signal, calls in flight get ``drain_seconds`` to finish."""
    connection = server.accept(link)
    stop, hurry = asyncio.Event(), asyncio.Event()
    try:
        with _signals(lambda: (hurry if stop.is_set() else stop).set()):
            await _first_of(connection.closed, stop)
            # A client that ended the input before it sent the signal waits for no answer.
            if stop.is_set() and not connection.input_ended:
                await _drain(server, connection, hurry)
    finally:
        try:
            await connection.aclose()
            await connection.ended()
        finally:
            server.close()


@contextmanager
def _signals(heard: Callable[[], None]) -> Iterator[None]:
    """Call a function on SIGTERM and SIGINT, where this is the main thread."""
    loop = asyncio.get_running_loop()
    taken: list[signal.Signals] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, heard)
        except (ValueError, RuntimeError):
            # Not the main thread: whoever runs the loop there also stops it.
            break
        taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)


async def _first_of(future: asyncio.Future[T], event: asyncio.Event, *, seconds: float | None = None) -> bool:
    """Wait until a future is done or an event is set, without cancelling the future; return True if it is done."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((future, waiting), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return future.done()


async def _drain(server: Server, connection: Connection, hurry: asyncio.Event) -> None:
    """Refuse new requests; wait until those in flight are answered, time is up, or a second signal comes."""
    assert isinstance(connection.service, ServerConnection)
    connection.service.stopping = True
    # Listeners would wait for ever; they end with a result.
    server.hub.end("the server is shutting down")
    tasks = [exchange.task for exchange in connection.exchanges.values() if exchange.task is not None]
    if not tasks:
        return
    seconds = server.limits.drain_seconds
    if not await _first_of(asyncio.gather(*map(_over, tasks)), hurry, seconds=seconds):
        why = "a second signal came" if hurry.is_set() else f"they did not finish in {seconds:g} s"
        left = sum(not task.done() for task in tasks)
        log.warning("%d requests are cancelled: %s", left, why)


async def _over(task: asyncio.Task[None]) -> None:
    """Wait until a task has ended, however it did."""
    await asyncio.wait((task,))


async def _http(server: Server, transport: str, options: Mapping[str, object]) -> None:
    from trunkline.server.http import run_http

    await run_http(server, transport, options)


def run_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on uvloop where it is installed, else on asyncio's loop."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work)
