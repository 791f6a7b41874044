"""The bench tools with several workers and a store. Arguments: the port, and the options of ``run`` as JSON."""

import asyncio
import json
import sys

from benchmarks.servers.trunkline_server import add
from trunkline import Context, Limits, Server
from trunkline.extensions import TaskLimits, TaskOptions, TaskSettings

# No comments on idle streams and no sweep of idle sessions while something else is measured.
LIMITS = Limits(
    connections=20_000,
    sessions=200_000,
    streams=20_000,
    comment_seconds=3600,
    store_bytes=2**40,
    owner_store_bytes=2**40,
)

server = Server(
    "bench",
    tools=[add],
    limits=LIMITS,
    tasks=TaskSettings(limits=TaskLimits(per_caller=1_000_000)),
)


@server.tool
async def change() -> bool:
    """Notify every listener that the list of tools has changed."""
    server.changed("tools")
    return True


@server.tool
async def report(count: int, ctx: Context) -> int:
    """Send so many events."""
    for number in range(count):
        await ctx.info(f"event {number}")
    return count


@server.tool(task=TaskOptions(ttl=3600))
async def job(text: str) -> str:
    """Return the text, as a task."""
    return text


@server.tool(task=TaskOptions(ttl=3600))
async def long_job() -> str:
    """Work for an hour, as a task."""
    await asyncio.sleep(3600)
    return "done"


if __name__ == "__main__":
    server.run("http", host="127.0.0.1", port=int(sys.argv[1]), path="/mcp", **json.loads(sys.argv[2]))
