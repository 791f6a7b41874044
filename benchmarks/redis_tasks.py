"""Tasks over Redis: created over HTTP, run, and read once, by our client at our server and at FastMCP's."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from benchmarks.driver import ServerFailed, cpu_ns
from benchmarks.scaled_server import Redis, Scaled, scaled, worker_environment
from benchmarks.subjects import Subject, install
from trunkline import Client

__all__ = ["TaskCost", "measure_fastmcp", "measure_ours"]

FASTMCP = Subject(
    "fastmcp tasks",
    "peers/fastmcp_tasks_server.py",
    "fastmcp",
    "fastmcp-tasks",
    plain_install=False,
    revisions=("2026-07-28",),
    sections=(),
)
#: Requests under way at a time.
AT_ONCE = 16
#: All tasks have run by then; what both servers do while they are idle is measured for as long, and subtracted.
IDLE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class TaskCost:
    """The processor time of a task at the server and at Redis, in microseconds, and its commands."""

    server_us: float
    redis_us: float
    commands: float


def measure_ours(redis: Redis, count: int) -> TaskCost:
    """Measure our server with one worker."""
    with scaled(store=redis.url) as server:
        return asyncio.run(_measure(server, redis, count))


def measure_fastmcp(redis: Redis, count: int) -> TaskCost:
    """Measure FastMCP.

    Raises:
        ServerFailed: it cannot be installed, or does not work.
    """
    installed = install(FASTMCP)
    if installed.problem is not None:
        raise ServerFailed(installed.problem)
    environment = worker_environment() | {"FASTMCP_DOCKET_URL": redis.url}
    with Scaled(installed.server_command(), env=environment) as server:
        return asyncio.run(_measure(server, redis, count))


async def _measure(server: Scaled, redis: Redis, count: int) -> TaskCost:
    async with Client(server.url, revision=FASTMCP.revisions[0]) as client:
        await _run(client, AT_ONCE)
        before = _state(server, redis)
        await asyncio.sleep(IDLE_SECONDS)
        idle = [after - now for now, after in zip(before, _state(server, redis), strict=True)]
        before, begun = _state(server, redis), time.monotonic()
        await _run(client, count)
        spent = [after - now for now, after in zip(before, _state(server, redis), strict=True)]
        share = (time.monotonic() - begun) / IDLE_SECONDS
    own = [max(0.0, each - share * rest) / count for each, rest in zip(spent, idle, strict=True)]
    return TaskCost(own[0] / 1000, own[1] / 1000, own[2])


def _state(server: Scaled, redis: Redis) -> tuple[int, int, int]:
    return sum(server.cpu().values()), cpu_ns(redis.pid), redis.commands()


async def _run(client: Client, count: int) -> None:
    """Create tasks, let them run, and read each once."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def create(number: int) -> str:
        async with gate:
            return (await client.start_task("job", {"text": f"text {number}"})).id

    ids = await asyncio.gather(*[create(number) for number in range(count)])
    await asyncio.sleep(IDLE_SECONDS)

    async def read(number: int, id: str) -> None:
        async with gate:
            result = await client.task(id).result(timeout=60)
            if result.text != f"text {number}":
                raise ServerFailed(f"a task was answered with {result.text[:100]!r}")

    await asyncio.gather(*[read(number, id) for number, id in enumerate(ids)])
