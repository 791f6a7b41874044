"""Running a server as a program: its lifespan, the event loop, the transport and a clean shutdown.

A lifespan is entered before the first request and exited after the last connection has ended. It runs in its own task,
because a context manager must be exited by the task that entered it, and connections come and go in any order.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from trunkline.errors import ConfigError
from trunkline.server.dispatch import ServerConnection

if TYPE_CHECKING:
    from trunkline.connection import Connection
    from trunkline.server.server import Server
    from trunkline.transports.link import Link

__all__ = ["Lifespan", "run", "run_async", "run_loop"]

log = logging.getLogger("trunkline")

T = TypeVar("T")

#: HTTP under its three names; with the last, the oldest transport is served at its usual paths too.
_HTTP = ("http", "streamable-http", "sse")


class Lifespan:
    """Enters the user's lifespan for its first user and exits it after its last."""

    __slots__ = ("_enter", "_stop", "_task", "_users", "ready", "value")

    def __init__(self, enter: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        """Create the lifespan; ``enter`` returns the context manager."""
        self._enter = enter
        self._users = 0
        self._task: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None
        #: Resolved once the lifespan is entered, or with the exception that prevented it.
        self.ready: asyncio.Future[None] | None = None
        self.value: Any = None

    @property
    def entered(self) -> bool:
        """Whether the lifespan has been entered and not exited."""
        return self.ready is not None and self.ready.done() and self._task is not None

    def acquire(self) -> None:
        """Add a user; the first one starts entering the lifespan. Called in the event loop."""
        self._users += 1
        if self._task is None:
            loop = asyncio.get_running_loop()
            self.ready = loop.create_future()
            self._stop = asyncio.Event()
            self._task = loop.create_task(self._run(self.ready, self._stop))

    async def release(self) -> None:
        """Remove a user; the last one waits until the lifespan is exited, or cancels it if it is not entered yet."""
        self._users -= 1
        if self._users or self._task is None or self._stop is None:
            return
        task, self._task = self._task, None
        self._stop.set()
        if self.ready is not None and not self.ready.done():
            # It may wait for something that never comes, such as a database that does not answer.
            task.cancel()
            await asyncio.wait([task])
            return
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
            # Retrieved here, so that asyncio does not report it as never retrieved if nothing awaits ``ready``.
            ready.exception()
        finally:
            self.value = None


def run(server: Server, transport: str | None, **options: object) -> None:
    """Run a server until its input ends or the process is signalled to stop.

    A configuration error is printed as one sentence, and the process exits with code 2.
    """
    if os.environ.get("TRUNKLINE_LOG_FORMAT") == "json":
        from trunkline.telemetry.json_logs import install_json_logs

        install_json_logs()
    try:
        if transport in _HTTP and (options.get("workers") or server.http_options.get("workers") or 1) != 1:
            from trunkline.server.workers import run_workers

            server.check_apps()
            run_workers(server, transport, _translated(options))
        else:
            run_loop(run_async(server, transport, **options))
    except ConfigError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2) from error


def _translated(options: Mapping[str, object]) -> Mapping[str, object]:
    """Return options with those of other frameworks translated."""
    if "show_banner" not in options:
        return options
    from trunkline.keywords import translate

    return translate("run", options, ())


async def run_async(server: Server, transport: str | None, **options: object) -> None:
    """Run a server in the running event loop."""
    server.check_apps()
    metrics = options.pop("metrics", None)
    with _blocking_calls_reported(server.limits.blocking_seconds):
        if metrics is None:
            await _run_transport(server, transport, options)
            return
        from trunkline.server.telemetry import metrics_listener

        async with metrics_listener([server], metrics):  # type: ignore[arg-type]  # checked when it is parsed
            await _run_transport(server, transport, options)


@contextmanager
def _blocking_calls_reported(seconds: float) -> Iterator[None]:
    """Warn of functions that block the running event loop for this long; 0 does not.

    The thread imports what it needs when the server already serves.
    """
    loop, loop_thread, stop = asyncio.get_running_loop(), threading.get_ident(), threading.Event()

    def watch() -> None:
        if not stop.wait(seconds / 2):
            from trunkline.server.loop_monitor import watch_loop

            watch_loop(loop, loop_thread, seconds, stop)

    if seconds > 0:
        threading.Thread(target=watch, name="trunkline loop monitor", daemon=True).start()
    try:
        yield
    finally:
        stop.set()


async def _run_transport(server: Server, transport: str | None, given: Mapping[str, object]) -> None:
    given = dict(_translated(given))
    if transport in _HTTP:
        try:
            await _http(server, transport, given)
        finally:
            await server.aclose()
        return
    if transport not in ("stdio", None):
        raise ConfigError(f"the transport {transport!r} is unknown; use one of stdio, {', '.join(_HTTP)}")
    if (store := given.pop("store", None)) is not None:
        server.state.use(store)  # type: ignore[arg-type]  # checked when it is opened
    if given:
        raise TypeError(f"the stdio transport has no option {', '.join(sorted(given))}{_nearest(given)}")
    if sys.platform == "win32":
        raise ConfigError(
            "stdio servers do not run on Windows, where an event loop cannot wait for pipes; use Linux or macOS"
        )
    from trunkline.transports.stdio import StdioLink

    if server.auth is not None:
        # The specification: over stdio authorization does not apply. Whoever starts the process may do what it may do.
        log.warning(
            "%s has auth=, which applies over HTTP; over stdio the user of this process is the caller", server.name
        )
    if server.has_shared_store:
        await server.state.start()
    link = StdioLink.claim(server.limits)
    if server.metrics is not None:
        link.count_bytes(server.metrics.received, server.metrics.sent)
    await _serve_stdio(server, link)


def _nearest(options: Iterable[str]) -> str:
    """Return a suggestion for the first option that may be misspelt."""
    from trunkline.server.http import HttpOptions
    from trunkline.server.validation_errors import did_you_mean

    known = ("transport", *HttpOptions.__annotations__)
    return next((did_you_mean(name, known) for name in options if name not in known), "")


async def _serve_stdio(server: Server, link: Link) -> None:
    """Serve until the input ends or a signal arrives; on a signal, running calls get ``drain_seconds`` to finish."""
    connection = server.accept(link)
    stop, stop_now = asyncio.Event(), asyncio.Event()
    try:
        with _signals(lambda: (stop_now if stop.is_set() else stop).set()):
            await _first_of(connection.closed, stop)
            # A client that closed the input before it sent the signal does not wait for responses.
            if stop.is_set() and not connection.input_ended:
                await _drain(connection, stop_now)
    finally:
        try:
            await connection.aclose()
            await connection.ended()
        finally:
            await server.aclose()


@contextmanager
def _signals(callback: Callable[[], None]) -> Iterator[None]:
    """Call a function on SIGTERM and SIGINT, if this is the main thread."""
    loop = asyncio.get_running_loop()
    handled: list[signal.Signals] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, callback)
        except (ValueError, RuntimeError):
            # Not the main thread: the program that runs the event loop there also stops it.
            break
        handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


async def _first_of(future: asyncio.Future[T], event: asyncio.Event, *, seconds: float | None = None) -> bool:
    """Wait until a future is done or an event is set, without cancelling the future; return whether it is done."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((future, waiting), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return future.done()


async def _drain(connection: Connection, stop_now: asyncio.Event) -> None:
    """Reject new requests; wait until requests and tasks are done, the time is up, or a second signal arrives."""
    assert isinstance(connection.service, ServerConnection)
    # Another server may have taken over the connection.
    server = connection.service.server
    connection.service.stopping = server.draining = True
    # Subscriptions would never finish; they are ended with a result.
    server.hub.end("the server is shutting down")
    seconds = server.limits.drain_seconds
    finishing = asyncio.ensure_future(_finish(connection, server, seconds))
    if not await _first_of(finishing, stop_now, seconds=seconds):
        finishing.cancel()
        reason = "a second signal arrived" if stop_now.is_set() else f"they did not finish in {seconds:g} s"
        if connection.exchanges:
            log.warning("%d requests are cancelled: %s", len(connection.exchanges), reason)


async def _finish(connection: Connection, server: Server, seconds: float) -> None:
    """Wait until the running tasks and then the requests are done."""
    if server.tasks is not None:
        await server.tasks.drain(seconds)
    while tasks := [exchange.task for exchange in connection.exchanges.values() if exchange.task is not None]:
        await asyncio.wait(tasks)


async def _http(server: Server, transport: str, options: Mapping[str, object]) -> None:
    from trunkline.server.http import run_http

    await run_http(server, transport, options)


def run_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on uvloop if it is installed, otherwise on asyncio's event loop."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work)
