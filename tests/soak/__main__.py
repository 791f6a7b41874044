"""Run the soak: ``python -m tests.soak --seconds 120 --seed 1``; exit code 1 if anything was lost, doubled or left."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

import aiohttp

from tests.soak.ledger import Ledger
from tests.soak.site import Measured, Site, site
from tests.soak.work import Crowd
from tests.transports.http.serving_support import BOTH, tool

WORKERS = 4
#: One worker is killed and Redis restarted once in so many seconds, on average.
KILL_EVERY, RESTART_EVERY = 12.0, 35.0
#: Seconds of load before the first measurement, and without trouble at the end.
WARM_SECONDS, CALM_SECONDS = 15.0, 10.0
#: All workers take connections again within this time.
READY_SECONDS = 60.0
#: What the allocator keeps of a peak is no leak: a share, and a few megabytes.
GROWTH, GROWTH_BYTES = 1.25, 8 << 20
SUPERVISOR_BYTES = 4 << 20
MIB = 1 << 20


BEGUN = time.monotonic()


def say(text: str) -> None:
    """Print progress, with the seconds since the start."""
    sys.stdout.write(f"{time.monotonic() - BEGUN:7.1f}  {text}\n")
    sys.stdout.flush()


def schedule(seconds: float, seed: int) -> list[tuple[float, str, float]]:
    """Return when what is done: ``kill`` with a choice of the worker, ``redis`` with the seconds it is gone."""
    choose = random.Random(seed)
    kills, restarts = max(2, round(seconds / KILL_EVERY)), max(1, round(seconds / RESTART_EVERY))
    planned = [(choose.uniform(0, seconds), "kill", choose.random()) for _ in range(kills)]
    planned += [(choose.uniform(0, seconds), "redis", choose.uniform(0.1, 4.0)) for _ in range(restarts)]
    return sorted(planned)


async def trouble(place: Site, ledger: Ledger, seconds: float, seed: int) -> None:
    """Kill workers and restart Redis for a while."""
    begun = time.monotonic()
    for at, kind, choice in schedule(seconds, seed):
        await asyncio.sleep(max(0.0, begun + at - time.monotonic()))
        if kind == "kill":
            pid = place.kill(int(choice * WORKERS))
            if pid is not None:
                ledger.killed(pid)
                ledger.counts["workers killed"] += 1
                say(f"worker {pid} killed")
        else:
            ledger.redis_gone()
            say(f"Redis killed, for {choice:.1f} s")
            await place.restart_redis(choice)
            ledger.redis_back()
            ledger.counts["restarts of Redis"] += 1
    await asyncio.sleep(max(0.0, begun + seconds - time.monotonic()))


async def each_worker(place: Site, crowd: Crowd) -> None:
    """Use every session once at every worker, so that all of them hold the same before memory is compared."""
    async with asyncio.timeout(READY_SECONDS):
        pinned: dict[int, aiohttp.ClientSession] = {}
        while len(pinned) < WORKERS:
            # One connection, which stays with the worker that it was passed to.
            http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1))
            try:
                pid = await _pid(http, crowd)
            except (aiohttp.ClientError, OSError):
                pid = 0
            if pid in (0, *pinned):
                await http.close()
                await asyncio.sleep(0.05)
            else:
                pinned[pid] = http

    async def use(http: aiohttp.ClientSession) -> None:
        async with http:
            for session in crowd.sessions:
                call = tool("add", a=1, b=2, id="cover")
                async with http.post(session.url, json=call, headers=session.headers) as response:
                    await response.read()
                    if response.status != 200:
                        session.ledger.fault(f"a session got {response.status} at one of the workers")

    await asyncio.gather(*(use(http) for http in pinned.values()))


async def _pid(http: aiohttp.ClientSession, crowd: Crowd) -> int:
    session = crowd.sessions[0]
    head = {**session.headers, "accept": BOTH}
    async with http.post(session.url, json=tool("pid", id="pid"), headers=head) as response:
        return int((await response.json())["result"]["content"][0]["text"])


async def measured(place: Site) -> tuple[Measured, list[Measured]]:
    """Return what the supervisor and the workers have, once the connections of clients are gone."""
    async with asyncio.timeout(READY_SECONDS):
        while True:
            before = [place.measure(pid) for pid in place.workers()]
            await asyncio.sleep(1.0)
            after = [place.measure(pid) for pid in place.workers()]
            if [each.descriptors for each in before] == [each.descriptors for each in after]:
                return place.measure(place.process.pid), after


def new_session() -> aiohttp.ClientSession:
    """Return an HTTP client that opens as many connections as it needs, and bounds every wait."""
    connector = aiohttp.TCPConnector(limit=0)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None, sock_read=120))


async def soak(place: Site, ledger: Ledger, *, sessions: int, seconds: float, seed: int) -> None:
    """Run everything against a server."""
    async with new_session() as http:
        crowd = Crowd(http, place.url, ledger, sessions=sessions, seed=seed)
        say(f"opening {sessions:,} sessions")
        await crowd.open()
        say(f"{WARM_SECONDS:.0f} s of load")
        crowd.start()
        await asyncio.sleep(WARM_SECONDS)
        await crowd.stop()
        say("every session once at every worker")
        await each_worker(place, crowd)
        say("waiting for the last notices")
        await crowd.settle()
        await crowd.close()
    supervisor, workers = await measured(place)
    say(f"before: {_text(supervisor, workers)}")
    async with new_session() as http:
        crowd.move(http)
        await crowd.listen()
        say(f"{seconds:.0f} s of load, while workers are killed and Redis is restarted (seed {seed})")
        crowd.start()
        await trouble(place, ledger, seconds, seed)
        await asyncio.sleep(CALM_SECONDS)
        await crowd.stop()
        say("everything has ended; waiting for the last notices and tasks")
        await crowd.settle()
        await crowd.tasks.settle(place.notes)
        say("every session once at every worker")
        await each_worker(place, crowd)
        await crowd.close()
    supervisor_after, workers_after = await measured(place)
    say(f"after:  {_text(supervisor_after, workers_after)}")
    compare(ledger, (supervisor, workers), (supervisor_after, workers_after))


def _text(supervisor: Measured, workers: list[Measured]) -> str:
    memory = ", ".join(f"{each.memory / MIB:.1f}" for each in workers)
    descriptors = ", ".join(str(each.descriptors) for each in workers)
    return (
        f"supervisor {supervisor.memory / MIB:.1f} MiB, {supervisor.descriptors} descriptors; "
        f"workers {memory} MiB, {descriptors} descriptors"
    )


def compare(ledger: Ledger, before: tuple[Measured, list[Measured]], after: tuple[Measured, list[Measured]]) -> None:
    """Check that memory is flat, and that the descriptors are the same."""
    if len(after[1]) != WORKERS:
        ledger.fault(f"there are {len(after[1])} workers, not {WORKERS}")
    allowed = mean(each.memory for each in before[1]) * GROWTH + GROWTH_BYTES
    for each in after[1]:
        if each.memory > allowed:
            ledger.fault(f"a worker has {each.memory / MIB:.1f} MiB, more than {allowed / MIB:.1f}")
    if after[0].memory > before[0].memory + SUPERVISOR_BYTES:
        ledger.fault(f"the supervisor grew to {after[0].memory / MIB:.1f} MiB")
    if after[0].descriptors != before[0].descriptors:
        ledger.fault(f"the supervisor has {after[0].descriptors} descriptors, it had {before[0].descriptors}")
    if {each.descriptors for each in after[1]} != {each.descriptors for each in before[1]}:
        ledger.fault("the workers do not have the same descriptors as before")


def main() -> int:
    """Run the soak and print what happened."""
    parser = argparse.ArgumentParser(prog="tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long workers are killed")
    parser.add_argument("--seed", type=int, default=1, help="decides what is killed when, and what clients do")
    parser.add_argument("--sessions", type=int, default=2000)
    options = parser.parse_args()
    ledger = Ledger()
    ledger.counts["sessions"] = options.sessions
    with tempfile.TemporaryDirectory(prefix="trunkline-soak-") as folder:
        with site(Path(folder), workers=WORKERS) as place:
            try:
                asyncio.run(soak(place, ledger, sessions=options.sessions, seconds=options.seconds, seed=options.seed))
                if code := place.stop():
                    ledger.fault(f"the supervisor ended with {code}")
            except TimeoutError as error:
                ledger.fault(f"the soak itself waited in vain: {error!r}")
        if left := place.left():
            ledger.fault(f"processes are left: {left}")
    sys.stdout.write(f"\n{ledger.summary()}\n\n")
    say(
        "OK"
        if not ledger.faults
        else f"FAILED; the same again: make soak SECONDS={options.seconds:.0f} SEED={options.seed}"
    )
    return 1 if ledger.faults else 0


if __name__ == "__main__":
    sys.exit(main())
