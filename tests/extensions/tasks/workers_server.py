"""A server with tasks as a program, for tests of several workers: the options of ``run`` as JSON, the URL on stdout.

Its tools append to a file what they do, and wait for other files, so that tests see and decide what happens when.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from trunkline import Context, Server
from trunkline.extensions import TaskLimits, TaskOptions, TaskSettings

options: dict[str, Any] = json.loads(sys.argv[1])
folder = Path(options.pop("folder"))
settings = TaskSettings(lease=options.pop("lease", 30.0), limits=TaskLimits(**options.pop("limits", {})))
server = Server("workers", version="1", tasks=settings)
# One write in append mode is whole or not there, also when the process is killed in the next moment.
log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(what: str, name: str) -> None:
    """Write what a tool does."""
    os.write(log, f"{what} {name} {os.getpid()}\n".encode())


async def gate(name: str) -> None:
    """Wait until a test lets the task go on."""
    while not (folder / name).exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)


async def job(name: str, ctx: Context) -> str:
    """Work until a file appears."""
    note("run", name)
    await ctx.report_progress(1, 2, f"{name} has begun")
    try:
        await gate(name)
    except asyncio.CancelledError:
        note("cancelled", name)
        raise
    note("end", name)
    return f"{name} done"


server.add_tool(job, name="once", task=TaskOptions(poll=0.05))
server.add_tool(job, name="again", task=TaskOptions(poll=0.05, retry=3))
server.add_tool(job, name="short", task=TaskOptions(poll=0.05, ttl=0.5))


@server.tool(task=TaskOptions(poll=0.05, retry=3))
async def ask(name: str, ctx: Context) -> str:
    """Ask for a colour."""
    note("run", name)
    answer = await ctx.elicit("Colour?", str)
    note("end", name)
    return f"{answer.action} {answer.data if answer.accepted else ''}".strip()


@server.tool(task=TaskOptions(poll=0.05, retry=3))
async def pay(name: str, ctx: Context) -> str:
    """Pay once, then work until a file appears."""
    note("run", name)

    def charge() -> str:
        note("pay", name)
        return f"receipt of {name}"

    receipt: str = await ctx.once("pay", charge)
    note("paid", name)
    await gate(name)
    return receipt


def say(url: str) -> None:
    """Write the URL for the test."""
    sys.stdout.write(f"{url}/mcp\n")
    sys.stdout.flush()


server.run("http", port=0, started=say, **options)
