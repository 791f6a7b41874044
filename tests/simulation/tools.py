"""The tools of the simulated server: each does one thing that clients can check."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trunkline import Context, Server
from trunkline.server.task_options import TaskOptions

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorker

__all__ = ["RESOURCES", "RETRY", "STATE_BYTES", "TICK", "add_tools", "tick_mark"]

#: How often a task that declares it may run again.
RETRY = 5

#: A request state of more bytes is stored for all workers: less than usual, so that few bytes are sealed.
STATE_BYTES = 2048
#: A notification to every session.
TICK = "simulation/tick"
#: The resources that sessions subscribe to; each may change several times, also within moments.
RESOURCES: tuple[str, ...] = tuple(f"note://{number}" for number in range(6))


def tick_mark(number: int) -> bytes:
    """Return what the announcement of a tick contains, and no other."""
    return TICK.encode() + b'\xc4%c{"number":%d}' % (11 + len(str(number)), number)


def add_tools(server: Server, worker: SimulatedWorker) -> None:
    """Register the tools of a worker."""
    world = worker.world

    async def add(a: int, b: int) -> int:
        return a + b

    async def steps(ctx: Context, key: str, n: int) -> str:
        """Report progress n times, with pauses."""
        world.ran[key] = world.ran.get(key, 0) + 1
        for step in range(1, n + 1):
            if world.random.random() < 0.5:
                await asyncio.sleep(world.random.random() * 0.3)
            await ctx.report_progress(step, n)
        return key

    async def ask(ctx: Context, key: str) -> str:
        """Ask for a text, and return it."""
        world.ran[key] = world.ran.get(key, 0) + 1
        return f"{key}:{(await ctx.elicit(key, str)).data}"

    async def buy(ctx: Context, key: str) -> str:
        """Ask for a text; the state that the answer comes with is used once."""
        text = (await ctx.elicit(key, str)).data
        world.ran[key] = world.ran.get(key, 0) + 1
        return f"{key}:{text}"

    async def keep(ctx: Context, key: str) -> str:
        """Ask for a text, and keep more than travels with the client."""
        await ctx.once("kept", lambda: "x" * 2 * STATE_BYTES)
        return f"{key}:{(await ctx.elicit(key, str)).data}"

    async def wait(key: str, seconds: float) -> str:
        world.ran[key] = world.ran.get(key, 0) + 1
        await asyncio.sleep(seconds)
        return key

    async def release(ctx: Context, key: str) -> str:
        """End the response, and go on."""
        await ctx.report_progress(1, 2)
        await ctx.close_stream()
        await asyncio.sleep(world.random.random())
        await ctx.report_progress(2, 2)
        return key

    async def tick(number: int) -> int:
        """Notify every session of a number."""
        server.notify(TICK, {"number": number})
        world.ticks[number], world.ticked_at[number] = worker, world.loop.time()
        return number

    async def touch(uri: str) -> str:
        """Change a resource."""
        server.changed(uri)
        world.touched.setdefault(uri, []).append(world.loop.time())
        return uri

    async def limited() -> bool:
        """Count against a limit that all workers share."""
        return await worker.store.admit("limit", rate=world.rate, burst=world.burst) == 0.0

    async def job(key: str, seconds: float) -> str:
        """Run as a task, once."""
        world.ran[key] = world.ran.get(key, 0) + 1
        await asyncio.sleep(seconds)
        world.completed.add(key)
        return key

    async def safe_job(key: str, seconds: float) -> str:
        """Run as a task, which may run again if its worker dies."""
        return await job(key, seconds)

    async def asking_job(ctx: Context, key: str) -> str:
        """Run as a task that asks for something."""
        world.ran[key] = world.ran.get(key, 0) + 1
        return f"{key}:{(await ctx.elicit(key, str)).data}"

    for tool in (add, steps, ask, keep, wait, release, tick, touch, limited):
        server.tool(tool)
    server.tool(buy, single_use=True)
    server.tool(job, task=True)
    server.tool(asking_job, task=True)
    server.tool(safe_job, task=TaskOptions(retry=RETRY))
    for uri in RESOURCES:
        server.resource(uri, name=uri)(lambda: "note")
