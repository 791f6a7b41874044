"""A server with tools that run as tasks, for the tests of the command line."""

from __future__ import annotations

import os
from pathlib import Path

from trunkline import Context, Server
from trunkline.errors import ToolError

server = Server("workshop", tasks=os.environ.get("TASKS_FILE"))
gate = Path(os.environ.get("TASKS_GATE", "/nonexistent"))


@server.tool(task=True)
async def wait(ctx: Context) -> str:
    """Wait until the file of the gate exists."""
    import asyncio

    await ctx.report_progress(1, 2, "waiting")
    while not gate.exists():
        await asyncio.sleep(0.02)
    return "waited"


@server.tool(task=True)
async def ask(ctx: Context) -> str:
    """Ask a question."""
    answer = await ctx.elicit("Which colour?", str)
    return f"{answer.action} {answer.data if answer.accepted else ''}".strip()


@server.tool(task=True)
def fail() -> str:
    """Fail."""
    raise ToolError("out of paint")


@server.tool
def quick(text: str) -> str:
    """Answer at once."""
    return text
