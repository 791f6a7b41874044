"""Running a server as a program: the event loop, the transport, signals and a clean shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from trunkline.errors import ConfigError
from trunkline.server.dispatch import ServerConnection
from trunkline.server.runtime import has_shared_store, runtime_for

if TYPE_CHECKING:
    from trunkline.connection import Connection
    from trunkline.server.runtime import ServerRuntime
    from trunkline.server.server import Server
    from trunkline.transports.link import Link

__all__ = ["run", "run_async", "run_loop"]

log = logging.getLogger("trunkline")

T = TypeVar("T")

#: HTTP under its three names; with the last, the oldest transport is served at its usual paths too.
_HTTP = ("http", "streamable-http", "sse")


def run(server: Server, transport: str | None, **options: object) -> None:
    """Run a server until its input ends or the process is signalled to stop.

    A configuration error is printed as one sentence, and the process exits with code 2.
    """
    if os.environ.get("TRUNKLINE_LOG_FORMAT") == "json":
        from trunkline.telemetry.json_logs import install_json_logs

        install_json_logs()
    try:
        if transport in _HTTP and (options.get("workers") or server.settings.http.get("workers") or 1) != 1:
            from trunkline.server.workers import run_workers

            server._check_apps()
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
    server._check_apps()
    metrics, runtime = options.pop("metrics", None), runtime_for(server)
    with _blocking_calls_reported(server.limits.blocking_seconds):
        if metrics is None:
            await _run_transport(runtime, transport, options)
            return
        from trunkline.server.telemetry import metrics_listener

        async with metrics_listener([runtime], metrics):  # type: ignore[arg-type]  # checked when it is parsed
            await _run_transport(runtime, transport, options)


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


async def _run_transport(runtime: ServerRuntime, transport: str | None, given: Mapping[str, object]) -> None:
    given = dict(_translated(given))
    server = runtime.definition
    if transport in _HTTP:
        try:
            await _http(runtime, transport, given)
        finally:
            await runtime.aclose()
        return
    if transport not in ("stdio", None):
        raise ConfigError(f"the transport {transport!r} is unknown; use one of stdio, {', '.join(_HTTP)}")
    if (store := given.pop("store", None)) is not None:
        runtime.use_store(store)  # type: ignore[arg-type]  # checked when it is opened
    if given:
        raise TypeError(f"the stdio transport has no option {', '.join(sorted(given))}{_nearest(given)}")
    if sys.platform == "win32":
        raise ConfigError(
            "stdio servers do not run on Windows, where an event loop cannot wait for pipes; use Linux or macOS"
        )
    from trunkline.transports.stdio import StdioLink

    if server.settings.auth is not None:
        # The specification: over stdio authorization does not apply. Whoever starts the process may do what it may do.
        log.warning(
            "%s has auth=, which applies over HTTP; over stdio the user of this process is the caller", server.name
        )
    if has_shared_store(server):
        await runtime.state.start()
    link = StdioLink.claim(server.limits)
    if runtime.metrics is not None:
        link.count_bytes(runtime.metrics.received, runtime.metrics.sent)
    await _serve_stdio(runtime, link)


def _nearest(options: Iterable[str]) -> str:
    """Return a suggestion for the first option that may be misspelt."""
    from trunkline.server.http import HttpOptions
    from trunkline.server.validation_errors import did_you_mean

    known = ("transport", *HttpOptions.__annotations__)
    return next((did_you_mean(name, known) for name in options if name not in known), "")


async def _serve_stdio(runtime: ServerRuntime, link: Link) -> None:
    """Serve until the input ends or a signal arrives; on a signal, running calls get ``drain_seconds`` to finish."""
    connection = runtime.accept(link)
    stop, stop_now = asyncio.Event(), asyncio.Event()
    try:
        with _signals(lambda: (stop_now if stop.is_set() else stop).set()):
            await _first_of(connection.closed, stop)
            # A client that closed the input before it sent the signal does not wait for responses.
            if stop.is_set() and not connection.input_ended:
                await _drain(runtime, connection, stop_now)
    finally:
        try:
            await connection.aclose()
            await connection.ended()
        finally:
            await runtime.aclose()


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


async def _drain(runtime: ServerRuntime, connection: Connection, stop_now: asyncio.Event) -> None:
    """Reject new requests; wait until requests and tasks are done, the time is up, or a second signal arrives."""
    assert isinstance(connection.service, ServerConnection)
    connection.service.stopping = True
    runtime.begin_drain()
    seconds = runtime.limits.drain_seconds
    finishing = asyncio.ensure_future(_finish(runtime, connection, seconds))
    if not await _first_of(finishing, stop_now, seconds=seconds):
        finishing.cancel()
        reason = "a second signal arrived" if stop_now.is_set() else f"they did not finish in {seconds:g} s"
        if connection.exchanges:
            log.warning("%d requests are cancelled: %s", len(connection.exchanges), reason)


async def _finish(runtime: ServerRuntime, connection: Connection, seconds: float) -> None:
    """Wait until the running tasks and then the requests are done."""
    await runtime.drain(seconds)
    while tasks := [exchange.task for exchange in connection.exchanges.values() if exchange.task is not None]:
        await asyncio.wait(tasks)


async def _http(runtime: ServerRuntime, transport: str, options: Mapping[str, object]) -> None:
    from trunkline.server.http import run_http

    await run_http(runtime, transport, options)


def run_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on uvloop if it is installed, otherwise on asyncio's event loop."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work)
