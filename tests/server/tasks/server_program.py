"""A server with tasks as a program: its options are JSON; over HTTP it writes its URL to stdout, else it speaks stdio.

Its tools append to a file what they do, and wait for other files or for some seconds, so that tests see and decide
what happens when.
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
from trunkline.protocol.limits import Limits

options: dict[str, Any] = json.loads(sys.argv[1])
folder = Path(options.pop("folder"))
settings = TaskSettings(lease=options.pop("lease", 30.0), limits=TaskLimits(**options.pop("limits", {})))
#: How long a task is kept, for tests that count them all in the end.
kept: dict[str, Any] = {"ttl": None} if options.pop("forever", False) else {}
store = options.pop("store", None)
server = Server("workers", version="1", store=store, tasks=settings, limits=Limits(drain_seconds=20.0))
# One write in append mode is whole or not there, also when the process is killed in the next moment.
log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(what: str, name: str) -> None:
    """Write what a tool does."""
    os.write(log, f"{what} {name} {os.getpid()}\n".encode())


async def gate(name: str, seconds: float | None) -> None:
    """Wait until a test lets the task go on, or for some seconds."""
    if seconds is not None:
        await asyncio.sleep(seconds)
        return
    while not (folder / name).exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)


async def job(name: str, ctx: Context, seconds: float | None = None) -> str:
    """Work."""
    note("run", name)
    await ctx.report_progress(1, 2, f"{name} has begun")
    try:
        await gate(name, seconds)
    except asyncio.CancelledError:
        note("cancelled", name)
        raise
    note("end", name)
    return f"{name} done"


server.add_tool(job, name="short", task=TaskOptions(poll=0.05, ttl=0.5))
for tool, retry in {"once": 0, "twice": 1, "again": 3}.items():
    server.add_tool(job, name=tool, task=TaskOptions(poll=0.05, retry=retry, **kept))


@server.tool(task=TaskOptions(poll=0.05, retry=3, **kept))
async def ask(name: str, ctx: Context, questions: list[str] | None = None, seconds: float = 0.0) -> str:
    """Ask for a colour, or what the caller wants to be asked, with pauses."""
    note("run", name)
    answers = []
    for question in questions or ["Colour?"]:
        answer = await ctx.elicit(question, str)
        answers.append(f"{answer.action} {answer.data if answer.accepted else ''}".strip())
        await asyncio.sleep(seconds)
    note("end", name)
    return ", ".join(answers)


@server.tool(task=TaskOptions(poll=0.05, retry=3, **kept))
async def pay(name: str, ctx: Context, seconds: float | None = None) -> str:
    """Pay once, then work."""
    note("run", name)

    def charge() -> str:
        note("pay", name)
        return f"receipt of {name}"

    receipt: str = await ctx.once("pay", charge)
    note("paid", name)
    await gate(name, seconds)
    note("end", name)
    return receipt


def say(url: str) -> None:
    """Write the URL for the test."""
    sys.stdout.write(f"{url}/mcp\n")
    sys.stdout.flush()


if options.pop("transport", "http") == "stdio":
    server.run()
else:
    server.run("http", port=0, started=say, **options)
