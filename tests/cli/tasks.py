"""A server with tools that run as tasks, for the tests of the command line."""

from __future__ import annotations

import asyncio
import os

from trunkline import Context, Server
from trunkline.errors import ToolError
from trunkline.extensions import TaskOptions

server = Server("workshop", store=os.environ.get("TASKS_FILE"))
waiting: list[asyncio.Event] = []
decided: list[str] = []


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


@server.tool(task=TaskOptions(after=3600))
async def confirm(ctx: Context) -> str:
    """Ask before the call has become a task."""
    answer = await ctx.elicit("Sure?", bool)
    decided.append(answer.action)
    return answer.action


@server.tool(task=TaskOptions(after=3600))
async def compose(ctx: Context) -> str:
    """Ask for a model's answer before the call has become a task."""
    text = (await ctx.sample("Say hi")).text
    decided.append("sampled")
    return text


@server.tool
def decisions() -> list[str]:
    """Return what ``confirm`` and ``compose`` were answered since the last call."""
    found = list(decided)
    decided.clear()
    return found


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
