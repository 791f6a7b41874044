"""Serves one server over two custom transports and calls it over each.

The first is the package's ``StreamLink`` over a Unix socket; the second is ``FrameLink``, written from scratch.
"""

from __future__ import annotations

import asyncio
import os
import tempfile

from examples.custom_transport.frames import FrameLink
from trunkline import Client, Server, StreamLink
from trunkline.transports import Link

server = Server("calculator", version="1.0.0")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def call_over(link: Link, name: str) -> None:
    """Call the server behind a link and show the answer."""
    async with Client(link) as client:
        result = await client.call_tool("add", {"a": 19, "b": 23})
        print(f"{name}: 19 + 23 = {result.data}")


async def by_streams(path: str) -> None:
    """Serve a Unix socket with the stream link: the whole transport is one line on each side."""
    connected: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.add(asyncio.create_task(server.serve(StreamLink(reader, writer))))

    async with await asyncio.start_unix_server(accept, path):
        await call_over(StreamLink(*await asyncio.open_unix_connection(path)), "StreamLink")
        await asyncio.gather(*connected)


async def by_frames(path: str) -> None:
    """Serve a Unix socket with the custom link."""
    loop = asyncio.get_running_loop()
    connected: set[asyncio.Task[None]] = set()

    def accept() -> FrameLink:
        link = FrameLink()
        connected.add(loop.create_task(server.serve(link)))
        return link

    async with await loop.create_unix_server(accept, path):
        _, link = await loop.create_unix_connection(FrameLink, path)
        await call_over(link, "FrameLink")
        await asyncio.gather(*connected)


async def main() -> None:
    """Call the server over both transports."""
    with tempfile.TemporaryDirectory() as folder:
        await by_streams(os.path.join(folder, "streams"))
        await by_frames(os.path.join(folder, "frames"))


if __name__ == "__main__":
    asyncio.run(main())
