"""Running a server as a program: the event loop, the transport, and a clean end."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from trunkline.errors import ConfigError

if TYPE_CHECKING:
    from trunkline.server.server import Server

__all__ = ["run", "run_async", "run_loop"]

#: HTTP, and the names that others give it; the last one also serves the oldest transport where others do.
_HTTP = ("http", "streamable-http", "sse")


def run(server: Server, transport: str | None, **options: Any) -> None:
    """Run a server until its input ends or it is told to stop.

    What is wrong with the way it is to be run is one sentence for whoever started the program, and exit code 2.
    """
    try:
        run_loop(run_async(server, transport, **options))
    except ConfigError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2) from error


async def run_async(server: Server, transport: str | None, **options: Any) -> None:
    """Run a server in the running loop."""
    options.pop("show_banner", None)
    if transport in _HTTP:
        try:
            await _http(server, transport, options)
        finally:
            server.close()
        return
    if transport not in ("stdio", None):
        raise ConfigError(f"There is no transport {transport!r}: it is one of stdio, {', '.join(_HTTP)}")
    if options:
        raise TypeError(f"the stdio transport takes no {', '.join(sorted(options))}")
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

    link = StdioLink.claim(server.limits)
    serving = asyncio.ensure_future(server.serve(link))
    loop = asyncio.get_running_loop()
    heard: list[signal.Signals] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, serving.cancel)
        except (ValueError, RuntimeError):
            # Not the main thread: whoever runs the loop there also stops it.
            break
        heard.append(number)
    try:
        await serving
    except asyncio.CancelledError:
        # A signal ended the serving alone; whoever cancels this coroutine means more than that.
        running = asyncio.current_task()
        if not serving.cancelled() or (running is not None and running.cancelling()):
            raise
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
        server.close()


async def _http(server: Server, transport: str, options: dict[str, Any]) -> None:
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
