"""The simulation itself: it holds for fixed seeds, replays exactly, and notices what is broken on purpose."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from random import Random

import pytest

from tests.simulation.broken import BROKEN, SEEDS
from tests.simulation.loop import SimulationLoop, virtual_time
from tests.simulation.run import simulate

#: The seeds that are always tried, and those that are tried with the slow tests.
SEEDS_ALWAYS = range(40)
SEEDS_SLOW = range(40, 240)
#: A seed in which workers crash, the store is restarted and connections break.
BUSY = 692


@pytest.fixture(autouse=True)
def running_loop_is_left_alone() -> Iterator[None]:
    """Check that a run leaves no event loop behind."""
    yield
    assert asyncio._get_running_loop() is None


@pytest.mark.parametrize("seeds", [SEEDS_ALWAYS, pytest.param(SEEDS_SLOW, marks=pytest.mark.slow)], ids=str)
def test_the_invariants_hold(seeds: range) -> None:
    assert {seed: found for seed in seeds if (found := simulate(seed).violations)} == {}


def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = simulate(BUSY, tracing=True), simulate(BUSY, tracing=True)
    assert len(first.trace) > 100
    assert (first.trace, first.steps) == (second.trace, second.steps)


def test_another_process_with_other_hashes_gives_the_same_trace() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(BUSY), "--runs", "1", "--trace"]
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True).stdout
    here = simulate(BUSY, tracing=True).trace
    assert printed.splitlines()[: len(here)] == here


def test_another_seed_gives_another_trace() -> None:
    assert simulate(1, tracing=True).trace != simulate(2, tracing=True).trace


@pytest.mark.parametrize("variant", BROKEN)
def test_a_broken_variant_is_noticed(variant: str) -> None:
    _, first = BROKEN[variant]
    found = next((seed for seed in range(first, first + SEEDS) if simulate(seed, variant=variant).violations), None)
    assert found is not None
    # The code as it is passes with this very seed: it is the variant that was noticed.
    assert simulate(found).violations == []


def test_a_failure_is_printed_with_its_seed_and_replayed() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--broken", "log-cleared-early", "--stop"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    seed = ran.stdout.split(":")[0].removeprefix("seed ")
    replayed = subprocess.run(
        [*command, "--seed", seed, "--runs", "1", "--trace"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.returncode, replayed.returncode) == (1, 1)
    assert "VIOLATION: " + ran.stdout.splitlines()[0].partition(": ")[2] in replayed.stdout


def test_time_passes_without_waiting() -> None:
    loop = SimulationLoop(Random(1))
    with virtual_time(loop, Random(1)):
        done = loop.start(loop.actor("one"), asyncio.sleep(1e6))
        assert loop.run(done, until=2e6)
        loop.close()
    assert loop.time() == 1e6


def test_an_actor_that_was_killed_does_nothing_any_more() -> None:
    loop = SimulationLoop(Random(1))
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            seen.append("finally")

    with virtual_time(loop, Random(1)):
        victim, other = loop.actor("victim"), loop.actor("other")
        loop.start(victim, work())
        loop.schedule(other, 5.0, loop.kill, victim)
        assert loop.run(loop.start(other, asyncio.sleep(20)), until=100.0)
        assert seen == []
        loop.close()


def test_the_callbacks_of_one_actor_keep_their_order() -> None:
    loop = SimulationLoop(Random(7))
    seen: list[int] = []
    with virtual_time(loop, Random(7)):
        actors = [loop.actor("one"), loop.actor("other")]
        for number in range(20):
            loop.schedule(actors[number % 2], 0.0, seen.append, number)
        loop.run(loop.start(loop.actor("third"), asyncio.sleep(1)), until=10.0)
        loop.close()
    assert [number for number in seen if number % 2 == 0] == list(range(0, 20, 2))
    assert [number for number in seen if number % 2] == list(range(1, 20, 2))
    assert seen != sorted(seen)
