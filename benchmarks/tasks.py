"""What tasks cost: ``python -m benchmarks.tasks``.

Everything runs in one process over memory links, so that the figures are those of our own code: CPU time per operation,
the median of alternating rounds. The ratios are what counts. A task is created by ``tools/call`` and finished by its
handler; reading its result with ``tasks/get`` is one request more. The same is done with each engine of the store: in
memory, in an SQLite file, and on Redis if there is a ``redis-server``. The file holds finished tasks, of which one at
random is asked for.

The bar, in both revisions: with the store in memory, to create and finish a task costs at most 2.5 times a plain call.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from trunkline import Client, Server
from trunkline.extensions import TaskLimits, TaskSettings
from trunkline.protocol.limits import Limits
from trunkline.server.runtime import runtime_for, server_store
from trunkline.server.store_budget import StoreBudget
from trunkline.server.tasks.record import CallerFacts, TaskRecord, finish
from trunkline.server.tasks.records import TaskRecords

ROUNDS = 15
CALLS = 400
GETS = 300
FEW, MANY = 1_000, 100_000
#: Tasks that are written at once.
BATCH = 500
LIMITS = TaskLimits(per_caller=1_000_000)
#: No limit of bytes is reached.
BYTES = Limits(store_bytes=2**40, owner_store_bytes=2**40)
REVISIONS = ("2025-11-25", "2026-07-28")


def subject(**options: Any) -> Server:
    """Create the server: one tool twice, plain and as a task."""
    server = Server("bench", tasks=TaskSettings(limits=LIMITS), limits=BYTES, **options)

    async def echo(text: str) -> str:
        """Return the text."""
        return text

    server.add_tool(echo, name="plain")
    server.add_tool(echo, name="task", task=True)
    return server


@contextmanager
def engines() -> Iterator[dict[str, dict[str, Any]]]:
    """Return the options of a server for each engine."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        options: dict[str, dict[str, Any]] = {"memory": {}, "sqlite": {"store": Path(folder) / "state.db"}}
        if shutil.which("redis-server"):
            from benchmarks.scaled_server import redis_server

            url = stack.enter_context(redis_server()).url
            options["redis"] = {"store": url, "state_keys": ["5a" * 32]}
        yield options


async def cpu(work: Callable[[], Awaitable[object]], times: int) -> float:
    """Return the CPU time of one repetition, in microseconds."""
    begun = time.process_time_ns()
    for _ in range(times):
        await work()
    return (time.process_time_ns() - begun) / times / 1000


async def creating(revision: str, engine: str, options: dict[str, Any]) -> None:
    """Compare a plain call with a task that is created and finished, and one whose result is read too."""
    server = subject(**options)
    async with Client(server, revision=revision) as client:

        async def plain() -> None:
            await client.call_tool("plain", {"text": "x"})

        async def create() -> str:
            handle = await client.start_task("task", {"text": "x"})
            # The handler runs in a task of its own, which an event would only make dearer to wait for.
            while runs := runtime_for(server).tasks.runs:  # type: ignore[union-attr]
                if engine == "memory":
                    await asyncio.sleep(0)
                else:
                    await asyncio.wait([run.job for run in runs.values() if run.job is not None])
            return handle.id

        async def read() -> None:
            await client.request("tasks/get", {"taskId": await create()})

        figures: dict[str, list[float]] = {"plain": [], "create and finish": [], "and read": []}
        for _ in range(ROUNDS):
            for name, work in (("plain", plain), ("create and finish", create), ("and read", read)):
                figures[name].append(await cpu(work, CALLS))
    await server.aclose()
    base = statistics.median(figures["plain"])
    for name, values in figures.items():
        value = statistics.median(values)
        sys.stdout.write(f"{revision}  {engine:<8}{name:<20}{value:>9.1f} us{value / base:>8.2f} x plain\n")


async def fill(path: Path, count: int) -> list[str]:
    """Write finished tasks into a file."""
    now = time.time()
    caller = CallerFacts("2026-07-28", {"extensions": {"io.modelcontextprotocol/tasks": {}}}, transport="memory")
    result = Raw(msgspec.json.encode({"content": [{"type": "text", "text": "x" * 200}]}))
    ids = [f"task-{number:08d}" for number in range(count)]
    server = Server("bench", store=path)
    store = await server_store(server).ready()
    records = TaskRecords(store, runner="bench", now=time.time, limits=LIMITS, budget=StoreBudget(BYTES))

    async def write(id: str) -> None:
        record = TaskRecord(
            id=id, owner=None, tool="task", caller=caller, created=now, updated=now, ttl=None, poll=1.0, runner="bench"
        )
        await records.create(record)
        await records.update(id, lambda each: finish(each, "completed", now, result=result))

    for start in range(0, count, BATCH):
        await asyncio.gather(*map(write, ids[start : start + BATCH]))
    await server.aclose()
    return ids


async def getting(path: Path, ids: list[str]) -> float:
    """Return the median time of ``tasks/get`` over rounds, in microseconds."""
    server = Server("bench", store=path)
    server.add_tool(lambda: "x", name="task", task=True, thread=False)
    choose = random.Random(1).choice
    async with Client(server) as client:

        async def get() -> None:
            await client.request("tasks/get", {"taskId": choose(ids)})

        await cpu(get, GETS)
        rounds = []
        for _ in range(ROUNDS):
            begun = time.perf_counter_ns()
            for _ in range(GETS):
                await get()
            rounds.append((time.perf_counter_ns() - begun) / GETS / 1000)
    await server.aclose()
    return statistics.median(rounds)


async def asking() -> None:
    """Compare reading one of a few tasks with reading one of many."""
    figures: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for count in (FEW, MANY):
            path = Path(folder) / f"{count}.db"
            figures.append(await getting(path, await fill(path, count)))
    small, large = figures
    sys.stdout.write(f"tasks/get, {FEW:,} finished tasks in the file: {small:.1f} us\n")
    sys.stdout.write(f"tasks/get, {MANY:,} finished tasks in the file: {large:.1f} us, {large / small:.2f} x\n")


def main() -> None:
    """Measure and print."""
    with engines() as options:
        for revision in REVISIONS:
            for engine in options:
                asyncio.run(creating(revision, engine, options[engine]))
    asyncio.run(asking())


if __name__ == "__main__":
    main()
