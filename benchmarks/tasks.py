"""What tasks cost: ``python -m benchmarks.tasks``.

Everything runs in one process over memory links, so that the figures are those of our own code: CPU time per operation,
the median of alternating rounds. The ratios are what counts. A task is created by ``tools/call`` and finished by its
handler; reading its result with ``tasks/get`` is one request more. The SQLite file holds finished tasks, of which one
at random is asked for.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from msgspec import Raw

from trunkline import Client, Server
from trunkline.extensions import CallerFacts, TaskLimits, TaskRecord, TaskSettings

ROUNDS = 15
CALLS = 400
GETS = 300
FEW, MANY = 1_000, 100_000
REVISIONS = ("2025-11-25", "2026-07-28")


def subject() -> Server:
    """Create the server: one tool twice, plain and as a task."""
    limits = TaskLimits(total=10_000_000, per_caller=1_000_000)
    server = Server("bench", tasks=TaskSettings(limits=limits))

    async def echo(text: str) -> str:
        """Return the text."""
        return text

    server.add_tool(echo, name="plain")
    server.add_tool(echo, name="task", task=True)
    return server


async def cpu(work: Callable[[], Awaitable[object]], times: int) -> float:
    """Return the CPU time of one repetition, in microseconds."""
    begun = time.process_time_ns()
    for _ in range(times):
        await work()
    return (time.process_time_ns() - begun) / times / 1000


async def creating(revision: str) -> None:
    """Compare a plain call with a task that is created and finished, and one whose result is read too."""
    server = subject()
    async with Client(server, revision=revision) as client:

        async def plain() -> None:
            await client.call_tool("plain", {"text": "x"})

        async def create() -> str:
            handle = await client.start_task("task", {"text": "x"})
            # The handler runs in a task of its own, which an event would only make dearer to wait for.
            while server.tasks.runs:  # type: ignore[union-attr]  # noqa: ASYNC110
                await asyncio.sleep(0)
            return handle.id

        async def read() -> None:
            await client.request("tasks/get", {"taskId": await create()})

        figures: dict[str, list[float]] = {"plain": [], "create and finish": [], "and read": []}
        for _ in range(ROUNDS):
            for name, work in (("plain", plain), ("create and finish", create), ("and read", read)):
                figures[name].append(await cpu(work, CALLS))
    base = statistics.median(figures["plain"])
    for name, values in figures.items():
        value = statistics.median(values)
        sys.stdout.write(f"{revision}  {name:<20}{value:>9.1f} us{value / base:>8.2f} x plain\n")


def fill(path: Path, count: int) -> list[str]:
    """Write finished tasks into a file."""
    import sqlite3

    now = time.time()
    caller = CallerFacts("2026-07-28", {"extensions": {"io.modelcontextprotocol/tasks": {}}}, transport="memory")
    result = Raw(msgspec.json.encode({"content": [{"type": "text", "text": "x" * 200}]}))
    ids = [f"task-{number:08d}" for number in range(count)]
    backend = SqliteTaskBackend(path, now=time.time)

    async def make_schema() -> None:
        await backend.get("none")
        await backend.aclose()

    asyncio.run(make_schema())
    with sqlite3.connect(path) as db:
        columns = len(db.execute("PRAGMA table_info(tasks)").fetchall())
        rows = []
        for id in ids:
            record = TaskRecord(
                id=id, owner=None, tool="task", caller=caller, created=now, updated=now, ttl=None, poll=1.0,
                status="completed", result=result,
            )  # fmt: skip
            rows.append((id, None, now, "bench", 0, None, msgspec.json.encode(record)))
        db.executemany(f"INSERT INTO tasks VALUES ({','.join('?' * columns)})", rows)
    return ids


async def getting(path: Path, ids: list[str]) -> float:
    """Return the median time of ``tasks/get`` over rounds, in microseconds."""
    server = Server("bench", tasks=str(path))
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
    server.close()
    return statistics.median(rounds)


def main() -> None:
    """Measure and print."""
    for revision in REVISIONS:
        asyncio.run(creating(revision))
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder) / "few.sqlite", Path(folder) / "many.sqlite"
        one, other = fill(few, FEW), fill(many, MANY)
        small, large = asyncio.run(getting(few, one)), asyncio.run(getting(many, other))
    sys.stdout.write(f"tasks/get, {FEW:,} finished tasks in the file: {small:.1f} us\n")
    sys.stdout.write(f"tasks/get, {MANY:,} finished tasks in the file: {large:.1f} us, {large / small:.2f} x\n")


if __name__ == "__main__":
    main()
