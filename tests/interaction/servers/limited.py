"""A server with small limits."""

from __future__ import annotations

import asyncio

from trunkline import Limits, Server


def make() -> Server:
    """Make the server."""
    server = Server("limited", version="1", limits=Limits(message_bytes=2000, depth=20, in_flight=2, batch=3))
    gate = asyncio.Event()

    @server.tool
    async def hold() -> str:
        await gate.wait()
        return "held"

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


if __name__ == "__main__":
    make().run()
