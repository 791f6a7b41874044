"""A server as a program, for tests of several workers: the options of ``run`` as JSON, the URL on stdout."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from trunkline import Context, Server
from trunkline.protocol.limits import Limits

options: dict[str, Any] = json.loads(sys.argv[1])
limits = Limits(**options.pop("limits", {}))
server = Server("machines", version="1", limits=limits, **options.pop("server", {}))


@server.tool
async def pid() -> int:
    """Return the process that serves the call."""
    return os.getpid()


@server.tool
async def greet(ctx: Context) -> str:
    """Ask for a name."""
    return f"hello {(await ctx.elicit('Your name?', str)).data}"


@server.tool
async def wait(ctx: Context) -> str:
    """Log that the call waits, and wait."""
    await ctx.info(f"waiting in {os.getpid()}")
    await asyncio.sleep(60)
    return "waited"


@server.tool
async def nap(seconds: float) -> int:
    """Sleep."""
    await asyncio.sleep(seconds)
    return os.getpid()


@server.tool
async def block(seconds: float) -> int:
    """Block the event loop."""
    time.sleep(seconds)  # noqa: ASYNC251  that is what the test is about
    return os.getpid()


@server.tool
async def walk(ctx: Context, n: int) -> str:
    """Log each step."""
    for step in range(n):
        await ctx.info(f"step {step}")
        await asyncio.sleep(0.01)
    return "walked"


@server.tool
async def tick(number: int) -> int:
    """Notify every client."""
    server.notify("acme/tick", {"number": number})
    return os.getpid()


@server.tool
async def grow() -> str:
    """Add a tool: every client hears of it."""
    server.add_tool(lambda: 1, name=f"more{os.urandom(4).hex()}", description="One more.")
    return "grown"


def say(url: str) -> None:
    """Write the URL for the test."""
    sys.stdout.write(f"{url}/mcp\n")
    sys.stdout.flush()


server.run("http", port=0, started=say, **options)
