"""An address that must not be called; records the requests that reach it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Canary", "canary"]


class Canary:
    """Counts the requests that reached it."""

    def __init__(self) -> None:
        self.origin = ""
        self.lines: list[str] = []

    async def hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Note the first line of a request, and answer it."""
        try:
            async with asyncio.timeout(10):
                line = (await reader.readline()).decode("latin-1").strip()
                # Browsers connect ahead of time and send nothing; that leaks nothing, but is recorded too.
                self.lines.append(line or "a connection")
                writer.write(b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
        except (OSError, TimeoutError):
            self.lines.append("a connection")
        finally:
            writer.close()


@asynccontextmanager
async def canary() -> AsyncIterator[Canary]:
    """Listen on a free port."""
    found = Canary()
    server = await asyncio.start_server(found.hear, "127.0.0.1", 0)
    found.origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()
