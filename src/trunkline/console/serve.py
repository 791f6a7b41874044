"""Listeners of the console, on the loopback addresses of this machine only.

A listener does not handle signals, which belong to the owner of the process: it may run beside a gateway or a terminal.
It stops when its context exits.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from trunkline.console.console import Console, ConsoleOptions
from trunkline.console.inbox import Inbox
from trunkline.console.web import STATIC, ConsoleApp
from trunkline.host.host import Host
from trunkline.protocol.limits import Limits

if TYPE_CHECKING:
    from trunkline.transports.http.server.uvicorn_server import DrainableApp

__all__ = ["ConsoleAddress", "RunningConsole", "listening", "open_console", "serving"]

_HOST = "127.0.0.1"
_STOP_SECONDS = 2.0  # Timeout for requests in flight, which are short; pages reconnect by themselves.
#: Enough for several browsers with a few connections each.
_LIMITS = Limits(drain_seconds=_STOP_SECONDS, connections=256)


class ConsoleAddress(Struct, frozen=True):
    """The address of a console, and its token."""

    #: Without a path: ``http://127.0.0.1:PORT``.
    origin: str
    token: str

    @property
    def url(self) -> str:
        """The address to paste into a browser; the token is in the fragment, which browsers do not send.

        Commands open a login file instead: other users can read the arguments of a browser.
        """
        return f"{self.origin}/#token={self.token}"


class RunningConsole(Struct, frozen=True, eq=False):
    """A console that is being served."""

    console: Console
    address: ConsoleAddress


@asynccontextmanager
async def open_console(
    host: Host,
    options: ConsoleOptions | None = None,
    *,
    inbox: Inbox | None = None,
    port: int = 0,
    token: str | None = None,
    static: Path = STATIC,
) -> AsyncIterator[RunningConsole]:
    """Serve a console of an open host at a port (0: a free one) until the context exits; the host stays open.

    ``inbox`` is the one whose prompters were passed to the host.

    Raises:
        ConfigError: the port cannot be used.
    """
    console = Console(host, options, inbox=inbox)
    await console.start()
    try:
        async with serving(console, port=port, token=token, static=static) as address:
            yield RunningConsole(console, address)
    finally:
        await console.aclose()


@asynccontextmanager
async def serving(
    console: Console, *, port: int = 0, token: str | None = None, static: Path = STATIC
) -> AsyncIterator[ConsoleAddress]:
    """Serve a started console until the context exits; without a token, generate one."""
    token = token or secrets.token_urlsafe(32)
    console.core.secrets.add([token])
    app = ConsoleApp(console, token, static=static)
    async with listening(app, port=port) as origin:
        app.origin = origin
        yield ConsoleAddress(origin, token)


@asynccontextmanager
async def listening(app: DrainableApp, *, port: int = 0, host: str = _HOST) -> AsyncIterator[str]:
    """Serve an ASGI application on the loopback address; yield its origin.

    The host ``localhost`` is served on both loopback addresses, so that no other program can listen on the other one.

    Raises:
        ConfigError: the port cannot be used.
    """
    from trunkline.transports.http.server.serve import serve

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    started: asyncio.Future[str] = loop.create_future()
    task = loop.create_task(
        serve(
            app,
            limits=_LIMITS,
            host=host,
            port=port,
            started=started.set_result,
            stopping=stopping,
            signals=False,
        )
    )
    try:
        await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield started.result().rstrip("/")
    finally:
        stopping.set()
        await asyncio.wait((task,), timeout=3 * _STOP_SECONDS)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
