"""The server of the kill tests: its tools append to a file what they do, so that nothing can be denied afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from trunkline import Context, Server
from trunkline.extensions import TaskOptions, TaskSettings

__all__ = ["LEASE_SECONDS", "make"]


#: Short, so that the tests of workers that share a Redis do not wait for long.
LEASE_SECONDS = 2.0


def make(database: str, log: str) -> Server:
    """Return a server whose tasks are in a file, or on a Redis."""
    shared = database.startswith("redis:")
    server = Server("killed", tasks=TaskSettings(lease=LEASE_SECONDS) if shared else database)
    # One write in append mode is whole or not there, also when the process is killed in the next moment.
    number = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(what: str, name: str) -> None:
        os.write(number, f"{what} {name}\n".encode())

    async def work(name: str, seconds: float) -> str:
        note("run", name)
        await asyncio.sleep(seconds)
        note("end", name)
        return f"{name} done"

    for retry in (0, 1, 3):
        server.add_tool(work, name=f"work{retry}", task=TaskOptions(retry=retry, ttl=None))

    @server.tool(task=TaskOptions(retry=3, ttl=None))
    async def pay(name: str, seconds: float, ctx: Context) -> str:
        def charge() -> str:
            note("pay", name)
            return f"receipt of {name}"

        note("run", name)
        receipt = await ctx.once("pay", charge)
        note("paid", name)
        await asyncio.sleep(seconds)
        note("end", name)
        return f"{receipt} done"

    @server.tool(task=TaskOptions(retry=3, ttl=None))
    async def ask(name: str, seconds: float, ctx: Context) -> str:
        note("run", name)
        first = await ctx.elicit(f"First, {name}?", str)
        await asyncio.sleep(seconds / 4)
        second = await ctx.elicit(f"Second, {name}?", str)
        note("end", name)
        return f"{first.data} {second.data} done"

    return server


def say(url: str) -> None:
    """Write the URL for the test."""
    sys.stdout.write(f"{url}/mcp\n")
    sys.stdout.flush()


if __name__ == "__main__":
    options = json.loads(sys.argv[1]) if len(sys.argv) == 2 else None
    if options is None:
        make(*sys.argv[1:]).run()
    else:
        make(options["backplane"], options["log"]).run("http", port=0, started=say, backplane=options["backplane"])
