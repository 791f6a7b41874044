"""Our server with tasks of every kind, over stdio, or over HTTP with the argument ``http``: it writes its URL then."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from trunkline import Context, RequestFailed, Server, TaskOptions, ToolError

__all__ = ["build"]


@dataclass
class Person:
    """Whom to greet."""

    name: str


def build() -> Server:
    """Return the server."""
    server = Server("tasks", "Has tasks.", version="1")
    stopped: list[str] = []

    @server.tool(task=True)
    async def double(number: int, ctx: Context) -> int:
        """Double a number, a little later."""
        await ctx.info(f"doubling {number}")
        # Long enough to be worth a notification when it ends.
        await asyncio.sleep(0.2)
        return 2 * number

    @server.tool(task="required")
    async def triple(number: int) -> int:
        """Triple a number, only as a task."""
        await asyncio.sleep(0.05)
        return 3 * number

    @server.tool(task="required")
    async def fail() -> str:
        """Fail in a way the model should read."""
        raise ToolError("out of paper")

    @server.tool(task="required")
    async def break_down() -> str:
        """End in a protocol error."""
        raise RequestFailed("the printer is on fire", code=-32050)

    @server.tool(task=True)
    async def wait(label: str) -> str:
        """Wait until it is cancelled."""
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append(label)
        return "never"

    @server.tool
    async def was_stopped(label: str) -> bool:
        """Return whether a wait was cancelled."""
        return label in stopped

    @server.tool(task="required")
    async def greet(ctx: Context) -> str:
        """Ask for a name inside the task."""
        answer = await ctx.elicit("Who are you?", Person)
        return f"Hello, {answer.data.name}!" if answer.accepted else f"Hello, whoever you are ({answer.action})."

    @server.tool(task=TaskOptions(required=True, after=None))
    async def greet_first(ctx: Context) -> str:
        """Ask for a name before the task begins, where the protocol has that."""
        answer = await ctx.elicit("Who are you?", Person)
        await ctx.continue_as_task()
        return f"Hello, {answer.data.name}!" if answer.accepted else "Hello!"

    @server.tool
    async def ask_model(ctx: Context) -> str:
        """Sample from the client's model in a task of the client, and return the last state of that task."""
        states: list[str] = []
        answer = await ctx.sample("Say hello.", task=lambda task: states.append(task.status))
        return f"{answer.text} {states[-1:]}"

    @server.tool
    async def ask_person(ctx: Context) -> str:
        """Ask the user in a task of the client."""
        states: list[str] = []
        answer = await ctx.elicit("Who are you?", Person, task=lambda task: states.append(task.status))
        return f"{answer.data.name if answer.accepted else answer.action} {states[-1:]}"

    return server


def say(url: str) -> None:
    """Write where the server is."""
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        build().run("http", port=0, started=say)
    else:
        build().run()
