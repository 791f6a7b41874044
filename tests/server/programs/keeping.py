"""A server with handles and tasks as a program: the options of ``run`` as JSON, the URL on stdout."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from trunkline import Context, Handle, Server

server = Server("keeping", version="1")


@server.tool
async def start(ctx: Context) -> str:
    """Begin to count."""
    # Stored, not inside the text of the handle.
    return (await ctx.handle([0], stored=True)).id


@server.tool
async def add(draft: Handle[list[int]]) -> str:
    """Count one more."""
    async with draft.edit() as value:
        value[0] += 1
    return f"{value[0]} {os.getpid()}"


@server.tool(task=True)
async def work() -> str:
    """Work for a while."""
    await asyncio.sleep(0.2)
    return f"done by {os.getpid()}"


@server.tool
async def pid() -> int:
    """Return the process that serves the call."""
    return os.getpid()


def say(url: str) -> None:
    """Write the URL for the test."""
    sys.stdout.write(f"{url}/mcp\n")
    sys.stdout.flush()


server.run("http", port=0, started=say, **json.loads(sys.argv[1]))
