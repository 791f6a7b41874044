"""FastMCP's helpers for tests: a server that listens while a block runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from trunkline.compat.wire import find_available_port

__all__ = ["run_server_async"]


@asynccontextmanager
async def run_server_async(
    server: Any, port: int | None = None, transport: str = "http", path: str = "/mcp", host: str = "127.0.0.1"
) -> AsyncIterator[str]:
    """Serve over HTTP in the running loop; the block is given the URL."""
    import uvicorn

    number = port or find_available_port()
    app = server.http_app(path=path, transport=transport)
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
