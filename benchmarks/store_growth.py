"""What a verb of the store costs with little and with much stored: ``python -m benchmarks.store_growth``.

Each engine that is installed has two stores, one with 100 values, log entries, queue entries, index members and counts,
and one with 100,000 of each. Every verb runs in both, in turn, a short batch each; the median batch counts. A batch
leaves as much stored as there was, and looks at the same number of items in both stores, which it has looked at just
before: otherwise the caches of the processor are compared.

The bar: with 100,000 a verb costs at most 1.3 times as much.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from benchmarks.driver import ServerFailed
from benchmarks.scaled_server import redis_server
from trunkline.store.interface import Delete, Enqueue, Finish, Index, IndexLimits, Put, Store
from trunkline.store.memory import MemoryContents, MemoryEngine

FEW, MANY = 100, 100_000
BAR = 1.3
#: Batches of each verb in each store, and operations of a batch. A batch is a few milliseconds long.
ROUNDS, BATCH = 15, 40
#: Steps of a commit, and writes at a time, while a store is filled.
STEPS, AT_ONCE = 200, 500
TTL = 24 * 3600.0
VALUE = b"v" * 100
LIMITS: Mapping[str, IndexLimits] = MappingProxyType(
    {"all": IndexLimits(members=10 * MANY, weight=1 << 40), "of ada": IndexLimits(members=10 * MANY)}
)

#: Does something with the number-th item of a batch.
Work: TypeAlias = Callable[["Stage", int], Awaitable[object]]


class Stage:
    """A store with so much in it."""

    def __init__(self, store: Store, count: int) -> None:
        """Use an empty store."""
        self.store = store
        self.count = count
        #: The ids of the last entries of the log.
        self.recent: deque[str] = deque(maxlen=FEW // 2)
        self._random = Random(1)
        self.names: list[str] = [self._random.randbytes(16).hex() for _ in range(count)]
        self._sample = self.names[:: count // FEW]
        #: The names of the items that a batch adds and removes, and of those that it looks at.
        self.added: list[str] = []
        self.looked_at: list[str] = []
        self.read_after: list[str] = []

    async def fill(self) -> None:
        """Store so many items of each kind."""
        for start in range(0, self.count, STEPS):
            names = self.names[start : start + STEPS]
            await self.store.commit(*(Put(name, VALUE, TTL) for name in names))
            await self.store.commit(*(Index(name, LIMITS, weight=1, ttl=TTL) for name in names))
            await self.store.commit(*(Enqueue("jobs", name, VALUE, "worker") for name in names))
        for start in range(0, self.count, AT_ONCE):
            names = self.names[start : start + AT_ONCE]
            self.recent += [added.id for added in await asyncio.gather(*(self.append() for _ in names))]
            await asyncio.gather(*(self.store.admit(name, rate=1e-3, burst=1_000_000) for name in names))
        # The order of an index, which the first list may have to make.
        await self.store.members("all", limit=1)

    def begin_batch(self) -> None:
        """Choose the names of a batch, which is no part of what is measured."""
        self.added = [self._random.randbytes(16).hex() for _ in range(BATCH)]
        # Copies: the names that others send are no objects which the store has.
        self.looked_at = [f"{name[:8]}{name[8:]}" for name in self._random.choices(self._sample, k=BATCH)]
        self.read_after = self._random.choices(self.recent, k=BATCH)

    async def append(self) -> Any:
        """Append to a log that has as many entries as it may have."""
        return await self.store.append("log", VALUE, ttl=TTL, max_entries=self.count, max_bytes=1 << 40)


class Verb(NamedTuple):
    """What is measured, and what is done before and after each batch of it."""

    name: str
    work: Work
    before: Work | None = None
    after: Work | None = None


async def create(stage: Stage, number: int) -> object:
    """Store a new record in two indexes and a queue."""
    name = stage.added[number]
    return await stage.store.commit(
        Put(name, VALUE, TTL, only_if_absent=True),
        Index(name, LIMITS, weight=1, ttl=TTL),
        Enqueue("jobs", name, VALUE, "another"),
    )


async def remove(stage: Stage, number: int) -> object:
    """Remove what `create` stored."""
    name = stage.added[number]
    return await stage.store.commit(Delete(name), Index(name, {}, tuple(LIMITS)), Finish("jobs", "another", name))


async def enqueue(stage: Stage, number: int) -> None:
    """Add an entry to the queue."""
    await stage.store.enqueue("jobs", stage.added[number], VALUE)


async def take(stage: Stage, _: int) -> None:
    """Take the one entry that is free."""
    assert len(await stage.store.take("jobs", "another", lease=TTL)) == 1


async def finish(stage: Stage, number: int) -> None:
    """Finish an entry."""
    await stage.store.finish("jobs", "another", [stage.added[number]])


async def enqueue_held(stage: Stage, number: int) -> None:
    """Add an entry that is leased."""
    await stage.store.enqueue("jobs", stage.added[number], VALUE, holder="another")


async def release(stage: Stage, number: int) -> None:
    """Release an entry."""
    await stage.store.release("jobs", "another", [stage.added[number]])


async def take_and_finish(stage: Stage, _: int) -> None:
    """Remove an entry that is free."""
    for delivery in await stage.store.take("jobs", "another", lease=TTL):
        await stage.store.finish("jobs", "another", [delivery.id])


async def append(stage: Stage, _: int) -> None:
    """Append, which drops the oldest entry."""
    stage.recent.append((await stage.append()).id)


VERBS: Sequence[Verb] = (
    Verb("get", lambda stage, number: stage.store.get(stage.looked_at[number])),
    Verb("put", lambda stage, number: stage.store.put(stage.looked_at[number], VALUE, ttl=TTL)),
    Verb("replace", lambda stage, number: stage.store.replace(stage.looked_at[number], VALUE, VALUE, ttl=TTL)),
    Verb("commit: create", create, after=remove),
    Verb("commit: remove", remove, before=create),
    Verb("append", append),
    Verb("read", lambda stage, number: stage.store.read("log", after=stage.read_after[number], limit=10)),
    Verb("publish", lambda stage, number: stage.store.publish(stage.looked_at[number], VALUE)),
    Verb("admit", lambda stage, number: stage.store.admit(stage.looked_at[number], rate=1e-3, burst=1_000_000)),
    Verb("enqueue", enqueue, after=take_and_finish),
    Verb("take", take, before=enqueue, after=finish),
    Verb("renew", lambda stage, number: stage.store.renew("jobs", "worker", [stage.looked_at[number]])),
    Verb("release", release, before=enqueue_held, after=take_and_finish),
    Verb("members", lambda stage, number: stage.store.members("all", after=stage.looked_at[number], limit=10)),
)


async def batch(stage: Stage, verb: Verb) -> float:
    """Return how long one operation takes, in microseconds."""
    stage.begin_batch()
    if verb.before is not None:
        for number in range(BATCH):
            await verb.before(stage, number)
    work = verb.work
    if verb.before is verb.after is None:
        for number in range(BATCH):
            await work(stage, number)
    begun = time.perf_counter_ns()
    for number in range(BATCH):
        await work(stage, number)
    spent = (time.perf_counter_ns() - begun) / BATCH / 1000
    if verb.after is not None:
        for number in range(BATCH):
            await verb.after(stage, number)
    return spent


@asynccontextmanager
async def memory_stores() -> AsyncIterator[list[Store]]:
    """Make two stores in memory."""
    yield [MemoryEngine(MemoryContents(now=time.time, random=os.urandom)) for _ in range(2)]


@asynccontextmanager
async def sqlite_stores() -> AsyncIterator[list[Store]]:
    """Make two files."""
    from trunkline.store.sqlite import SqliteEngine

    with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as folder:
        yield [SqliteEngine(Path(folder) / f"{number}.db", name="bench") for number in range(2)]


@asynccontextmanager
async def redis_stores() -> AsyncIterator[list[Store]]:
    """Use one redis-server for each."""
    from trunkline.store.redis import RedisEngine

    with redis_server() as one, redis_server() as other:
        yield [RedisEngine(server.url, name="bench") for server in (one, other)]


async def measure(name: str, stores: Sequence[Store]) -> None:
    """Fill two stores and print a line for each verb."""
    few, many = stages = [Stage(store, count) for store, count in zip(stores, (FEW, MANY), strict=True)]
    async with AsyncExitStack() as closing:
        for stage in stages:
            closing.push_async_callback(stage.store.aclose)
            await stage.store.connect()
            await stage.fill()
        for verb in VERBS:
            batches: dict[Stage, list[float]] = {few: [], many: []}
            for number in range(ROUNDS):
                for stage in stages if number % 2 else reversed(stages):
                    batches[stage].append(await batch(stage, verb))
            small, large = (statistics.median(batches[stage]) for stage in stages)
            verdict = "" if large <= BAR * small else f"  more than {BAR}"
            sys.stdout.write(f"{name:8}{verb.name:16}{small:>10.1f}{large:>12.1f}{large / small:>8.2f}{verdict}\n")


ENGINES: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        "memory": memory_stores,
        **({"sqlite": sqlite_stores} if find_spec("trunkline.store.sqlite") else {}),
        "redis": redis_stores,
    }
)


async def measure_engines(names: Sequence[str]) -> None:
    """Measure engines one after another."""
    sys.stdout.write(f"{'engine':8}{'verb':16}{f'us, {FEW:,}':>10}{f'us, {MANY:,}':>12}{'ratio':>8}\n")
    for name in names:
        try:
            async with ENGINES[name]() as stores:
                await measure(name, stores)
        except ServerFailed as failure:
            sys.stdout.write(f"{name:8}{failure}\n")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.store_growth", description=__doc__)
    parser.add_argument("--engine", choices=tuple(ENGINES), action="append", help="this engine; may be repeated (all)")
    asyncio.run(measure_engines(parser.parse_args().engine or tuple(ENGINES)))


if __name__ == "__main__":
    main()
