"""One run: a world from a seed, clients and faults in it, and what must hold at its end."""

from __future__ import annotations

import asyncio
import gc
import logging
from random import Random
from typing import Any

from tests.simulation.broken import broken
from tests.simulation.clients import SimulatedClient
from tests.simulation.invariants import (
    check_events,
    check_limits,
    check_listeners,
    check_lost_writes,
    check_notices,
    check_sessions,
    check_tasks,
)
from tests.simulation.loop import virtual_time
from tests.simulation.stateless import StatelessClient
from tests.simulation.store import Faults
from tests.simulation.world import World

__all__ = ["Outcome", "simulate"]

#: For so many virtual seconds clients work while things fail; for so many more everything must come to its end. The
#: second is more than every bounded wait of a worker but that for a person, 900 s: no person is slow here.
FAULTY_SECONDS, END_SECONDS = 15.0, 120.0
#: The time after the last operation in which what was announced must have been delivered.
SETTLE_SECONDS = 6.0


class Outcome:
    """What became of a run."""

    __slots__ = ("seconds", "seed", "steps", "trace", "violations")

    def __init__(self, world: World) -> None:
        self.seed = world.seed
        self.violations: list[str] = world.violations
        self.trace: list[str] = world.lines or []
        self.steps = world.loop.steps
        self.seconds = world.loop.time()


def simulate(seed: int, *, variant: str | None = None, tracing: bool = False) -> Outcome:
    """Run the world of a seed, with the code as it is or with a broken variant of it."""
    world = World(seed, tracing=tracing)
    collecting, logging_level = gc.isenabled(), logging.root.manager.disable
    # What the code logs about faults is expected, and costs time.
    logging.disable(logging.CRITICAL)
    # What is collected, and when, must not depend on what ran before.
    gc.disable()
    try:
        with broken(variant), virtual_time(world.loop, Random(seed)):
            _run(world)
            world.loop.close()
    finally:
        logging.disable(logging_level)
        if collecting:
            gc.enable()
    return Outcome(world)


def _run(world: World) -> None:
    random, loop = world.random, world.loop
    for _ in range(2 + (random.random() < 0.5)):
        world.start_worker()
    _set_faults(world)
    clients = [
        SimulatedClient(world, f"client{number + 1}", 5 + int(random.random() * 12))
        for number in range(2 + (random.random() < 0.3))
    ]
    stateless = [
        StatelessClient(world, f"stateless{number + 1}", 4 + int(random.random() * 8))
        for number in range(int(random.random() * 3))
    ]
    everybody: list[SimulatedClient | StatelessClient] = [*clients, *stateless]
    jobs = [loop.start(client.actor, client.run()) for client in everybody]
    director = loop.start(world.actor, _direct(world, jobs))
    if not loop.run(director, until=FAULTY_SECONDS + END_SECONDS):
        waits = {client.actor.name: list(client.waits.values()) for client in everybody if not client.finished}
        world.violated(f"it hangs: {waits or 'nothing waits'}")
        return
    for job in [director, *jobs]:
        if job.exception() is not None:
            raise job.exception()  # type: ignore[misc]
    for check in (_settle(world, clients, stateless), _after(world, clients)):
        done = loop.start(world.actor, check)
        if not loop.run(done, until=loop.time() + END_SECONDS):
            world.violated("the checks at the end hang")
            return
        done.result()
    for error in loop.errors:
        world.violated(f"an error was not handled: {error}")


def _set_faults(world: World) -> None:
    random = world.random
    kind = int(random.random() * 4)
    # No faults, few, many; the last with slow answers as well.
    rate = (0.0, 0.005, 0.03, 0.02)[kind]
    slow = 0.02 if kind == 3 else 0.0
    # A slow network makes more things overlap.
    latency = 0.002 if random.random() < 0.6 else 0.002 + 0.1 * random.random() ** 2
    before, after = rate * random.random(), rate * random.random()
    world.redis.faults = Faults(before=before, after=after, slow=slow, latency=latency)
    world.breaks = (0.0, 0.02, 0.05, 0.02)[kind]
    world.calm = kind == 0
    world.mischief = (0.0, 0.3, 1.0, 0.5)[kind]


async def _direct(world: World, jobs: list[asyncio.Task[Any]]) -> None:
    """Let things fail for a while, and then let everything come to its end."""
    random, loop = world.random, world.loop
    loses = random.random() < 0.25
    while loop.time() < FAULTY_SECONDS and not all(job.done() for job in jobs):
        await asyncio.sleep(random.random() * 1.5)
        if random.random() < world.mischief:
            loses = await _mischief(world, loses=loses)
    if not world.redis.reachable:
        world.redis.start()
    for slot, worker in enumerate(world.workers):
        if worker is None:
            world.start_worker(slot)
    world.quiet()
    for job in jobs:
        await asyncio.wait([job])


async def _mischief(world: World, *, loses: bool) -> bool:
    """Let one thing fail; return whether writes may still be lost."""
    random, redis = world.random, world.redis
    chance = random.random()
    slot = int(random.random() * len(world.workers))
    worker = world.workers[slot]
    if chance < 0.35:
        if worker is None:
            world.start_worker(slot)
        else:
            world.crash_worker(slot)
    elif chance < 0.7:
        if worker is not None:
            worker.store.break_channels()
    elif chance < 0.85:
        redis.stop()
        await asyncio.sleep(0.05 + random.random() ** 2 * 4)
        redis.start()
    elif chance < 0.95 and loses:
        redis.save()
        await asyncio.sleep(random.random() * 0.5)
        world.fail_over()
        return False
    return loses


async def _settle(world: World, clients: list[SimulatedClient], stateless: list[StatelessClient]) -> None:
    await asyncio.sleep(SETTLE_SECONDS)
    check_events(world, clients)
    check_notices(world, clients)
    check_listeners(world, stateless)
    check_limits(world)
    check_lost_writes(world)
    check_tasks(world)
    await check_sessions(world, clients)


async def _after(world: World, clients: list[SimulatedClient]) -> None:
    """Replace a worker: one that starts now knows what was terminated before."""
    world.crash_worker(0)
    world.start_worker(0)
    await asyncio.sleep(1.0)
    await check_sessions(world, clients)
