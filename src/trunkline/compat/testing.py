"""FastMCP's helpers for tests: a server that listens while a block runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from trunkline.compat.wire import find_available_port

__all__ = ["RunningServer", "asgi_client", "asgi_server", "run_server_async"]


@asynccontextmanager
async def run_server_async(
    server: Any,
    port: int | None = None,
    transport: str = "http",
    path: str = "/mcp",
    host: str = "127.0.0.1",
    **options: Any,
) -> AsyncIterator[str]:
    """Serve over HTTP in the running loop; the block is given the URL."""
    import uvicorn

    number = port or find_available_port()
    app = server.http_app(path=path, transport=transport, **options)
    serving = uvicorn.Server(uvicorn.Config(app, host=host, port=number, log_level="error"))
    task = asyncio.get_running_loop().create_task(serving.serve())
    try:
        # uvicorn says in no other way that it listens.
        while not serving.started and not task.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        yield f"http://{host}:{number}{path}"
    finally:
        serving.should_exit = True
        await asyncio.wait([task], timeout=3)
        task.cancel()


class RunningServer:
    """A server that listens, and ways to reach it."""

    def __init__(self, url: str, transport: str) -> None:
        """Initialize with the URL."""
        self.url = url
        self._kind = transport

    def transport(self, **options: Any) -> Any:
        """Return a transport of FastMCP's client."""
        from trunkline.compat.transports import SSETransport, StreamableHttpTransport

        return (SSETransport if self._kind == "sse" else StreamableHttpTransport)(self.url, **options)

    def client(self, *, auth: Any = None, headers: Any = None, **options: Any) -> Any:
        """Return a client of FastMCP."""
        from trunkline.compat.clients import Client

        return Client(self.transport(auth=auth, headers=headers), **options)

    def http_client(self, **options: Any) -> Any:
        """Return an HTTP client of the same server."""
        from urllib.parse import urlsplit

        from trunkline.compat.openapi.director import http_module

        parts = urlsplit(self.url)
        given = {name: value for name, value in options.items() if value is not None}
        return http_module().AsyncClient(base_url=f"{parts.scheme}://{parts.netloc}", **given)


@asynccontextmanager
async def asgi_server(server: Any, transport: str = "http", **options: Any) -> AsyncIterator[RunningServer]:
    """Serve while a block runs, which is given the running server."""
    kind = "sse" if transport == "sse" else "http"
    async with run_server_async(server, transport=kind, path=options.pop("path", "/mcp"), **options) as url:
        yield RunningServer(url, kind)


@asynccontextmanager
async def asgi_client(server: Any, *, transport: str = "http", **options: Any) -> AsyncIterator[Any]:
    """Serve while a block runs, which is given a connected client."""
    async with asgi_server(server, transport) as running, running.client(**options) as client:
        yield client
