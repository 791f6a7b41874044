"""A server with tools that run as tasks, for the tests of the command line."""

from __future__ import annotations

import asyncio
import os

from trunkline import Context, Server
from trunkline.errors import ToolError

server = Server("workshop", tasks=os.environ.get("TASKS_FILE"))
waiting: list[asyncio.Event] = []


@server.tool(task=True)
async def wait(ctx: Context) -> str:
    """Wait until the tool ``release`` is called."""
    event = asyncio.Event()
    waiting.append(event)
    await ctx.report_progress(1, 2, "waiting")
    await event.wait()
    return "waited"


@server.tool
async def release() -> str:
    """Let all calls of ``wait`` go on."""
    for event in waiting:
        event.set()
    return "released"


@server.tool(task=True)
async def ask(ctx: Context) -> str:
    """Ask a question."""
    answer = await ctx.elicit("Which colour?", str)
    return f"{answer.action} {answer.data if answer.accepted else ''}".strip()


@server.tool(task=True)
def fail() -> str:
    """Fail."""
    raise ToolError("out of paint")


@server.tool(task=True)
def echo(text: str) -> str:
    """Return a text, as a task."""
    return text


@server.tool
def quick(text: str) -> str:
    """Answer at once."""
    return text
