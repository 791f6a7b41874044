"""Run the soak: ``python -m tests.soak --seconds 120 --seed 1``; exit code 1 if anything was lost, doubled or left."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import mean

import aiohttp

from tests.soak.connections import count_turns, new_http
from tests.soak.ledger import Ledger
from tests.soak.sessions import SoakSession
from tests.soak.site import Measured, Site, site
from tests.soak.work import Crowd
from tests.transports.http.serving_support import BOTH, initialize, tool
from trunkline.protocol.revisions import NEWEST_HANDSHAKE

WORKERS = 4
#: One worker is killed, and Redis restarted or paused, once in so many seconds, on average.
KILL_EVERY, OUTAGE_EVERY = 12.0, 30.0
#: Seconds of load before the first measurement, and without trouble at the end.
WARM_SECONDS, CALM_SECONDS = 15.0, 10.0
#: All workers take connections again within this time.
READY_SECONDS = 60.0
#: What the allocator keeps of a peak is no leak: a share, and a few megabytes.
GROWTH, GROWTH_BYTES = 1.25, 8 << 20
SUPERVISOR_BYTES = 4 << 20
#: Objects that a worker may have more than before: a share, and those of all streams, which may be at one worker.
OBJECTS, OBJECTS_OF_STREAMS = 1.05, 10_000
MIB = 1 << 20


BEGUN = time.monotonic()


def say(text: str) -> None:
    """Print progress, with the seconds since the start."""
    sys.stdout.write(f"{time.monotonic() - BEGUN:7.1f}  {text}\n")
    sys.stdout.flush()


def schedule(seconds: float, seed: int) -> list[tuple[float, str, float]]:
    """Return when what is done: ``kill`` with a choice of the worker, ``restart`` and ``pause`` with seconds of Redis.

    The first two outages are of both kinds, whatever the seed. Workers are killed during outages too.
    """
    choose = random.Random(seed)
    kills, outages = max(2, round(seconds / KILL_EVERY)), max(2, round(seconds / OUTAGE_EVERY))
    planned = [(choose.uniform(0, seconds), "kill", choose.random()) for _ in range(kills)]
    for number in range(outages):
        kind = ("restart", "pause")[number if number < 2 else choose.randrange(2)]
        planned.append((choose.uniform(0, seconds), kind, choose.uniform(0.1, 4.0)))
    return sorted(planned)


async def trouble(place: Site, ledger: Ledger, seconds: float, seed: int) -> None:
    """Kill workers, and restart or pause Redis, for a while."""
    begun = time.monotonic()
    redis = asyncio.Lock()
    async with asyncio.TaskGroup() as running:
        for at, kind, choice in schedule(seconds, seed):
            await asyncio.sleep(max(0.0, begun + at - time.monotonic()))
            if kind == "kill":
                running.create_task(_kill(place, ledger, int(choice * WORKERS)))
            else:
                running.create_task(_outage(place, ledger, kind, choice, redis))
    await asyncio.sleep(max(0.0, begun + seconds - time.monotonic()))


async def _kill(place: Site, ledger: Ledger, index: int) -> None:
    pid = place.choose(index)
    if pid is not None and pid not in ledger.kills:
        period = ledger.killed(pid)
        ledger.counts["workers killed"] += 1
        say(f"worker {pid} killed")
        await place.kill(pid)
        period.ended = time.monotonic()


async def _outage(place: Site, ledger: Ledger, kind: str, seconds: float, redis: asyncio.Lock) -> None:
    async with redis:
        period = ledger.redis_gone()
        ledger.counts[f"Redis: {kind}"] += 1
        say(f"Redis: {kind}, {seconds:.1f} s")
        await (place.restart_redis if kind == "restart" else place.pause_redis)(seconds)
        period.ended = time.monotonic()


async def watch(place: Site, ledger: Ledger) -> None:
    """See after each kill and each outage when every worker serves again what needs Redis; that ends its excuse."""
    read = 0
    while True:
        read = _read_slow(place.notes, read, ledger)
        periods = ledger.open_periods()
        if periods and await _all_serve(place):
            now = time.monotonic()
            for period in periods:
                period.until = now
                longest = max(ledger.counts["longest recovery, ms"], round(1000 * (now - period.ended)))
                ledger.counts["longest recovery, ms"] = longest
                if now - period.ended > READY_SECONDS and not any(
                    each.overlaps(period.ended, now) for each in ledger.slow
                ):
                    ledger.fault(f"it took {now - period.ended:.0f} s until every worker served again")
        await asyncio.sleep(0.1)


def _read_slow(file: Path, position: int, ledger: Ledger) -> int:
    """Read since when and until when workers found Redis, or themselves, slow; return how far it was read."""
    with file.open("rb") as notes:
        notes.seek(position)
        lines = notes.read().splitlines(keepends=True)
    for line in lines:
        if line.endswith(b"\n"):
            position += len(line)
            if line.startswith(b"slow "):
                _, begun, ended = line.split()
                ledger.was_slow(float(begun), float(ended))
    return position


async def _all_serve(place: Site) -> bool:
    """Return whether each worker opens a GET stream, which needs commands and channels of Redis."""
    served: set[int] = set()
    for _ in range(4 * WORKERS):
        # One connection, which stays with the worker that it was passed to.
        async with new_http(limit=1) as http:
            session = SoakSession(http, place.url, NEWEST_HANDSHAKE.name, Ledger())
            with suppress(aiohttp.ClientError, OSError, KeyError):
                async with http.post(place.url, json=initialize(session.revision), headers=session.headers) as opened:
                    await opened.read()
                    if opened.status != 200:
                        return False
                    session.id = opened.headers["mcp-session-id"]
                pid = await _number(http, session, "pid")
                async with http.get(place.url, headers=session.headers) as response:
                    if response.status != 200:
                        return False
                served.add(pid)
        if len(served) == WORKERS:
            return served == set(place.workers())
    return False


async def each_worker(place: Site, crowd: Crowd) -> list[int]:
    """Use every session once at every worker, so that all of them hold the same; return how many objects each has."""
    async with asyncio.timeout(READY_SECONDS):
        pinned: dict[int, aiohttp.ClientSession] = {}
        while len(pinned) < WORKERS:
            # One connection, which stays with the worker that it was passed to.
            http = new_http(limit=1)
            try:
                pid = await _number(http, crowd.sessions[0], "pid")
            except (aiohttp.ClientError, OSError):
                pid = 0
            if pid in (0, *pinned):
                await http.close()
                await asyncio.sleep(0.05)
            else:
                pinned[pid] = http

    async def use(http: aiohttp.ClientSession) -> int:
        async with http:
            for session in crowd.sessions:
                call = tool("add", a=1, b=2, id="cover")
                async with http.post(session.url, json=call, headers=session.headers) as response:
                    await response.read()
                    if response.status != 200:
                        session.ledger.fault(f"a session got {response.status} at one of the workers")
            return await _number(http, crowd.sessions[0], "objects")

    return list(await asyncio.gather(*(use(http) for http in pinned.values())))


async def _number(http: aiohttp.ClientSession, session: SoakSession, name: str) -> int:
    """Return what a tool returns at the worker of a connection."""
    head = {**session.headers, "accept": BOTH}
    async with http.post(session.url, json=tool(name, id=name), headers=head) as response:
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


async def soak(place: Site, ledger: Ledger, *, sessions: int, seconds: float, seed: int) -> None:
    """Run everything against a server."""
    watching = [asyncio.create_task(each) for each in (watch(place, ledger), count_turns())]
    async with new_http() as http:
        crowd = Crowd(http, place.url, ledger, sessions=sessions, seed=seed)
        say(f"opening {sessions:,} sessions")
        await crowd.open()
        say(f"{WARM_SECONDS:.0f} s of load")
        crowd.start()
        await asyncio.sleep(WARM_SECONDS)
        await crowd.stop()
        say("every session once at every worker")
        objects = await each_worker(place, crowd)
        say("waiting for the last notices")
        await crowd.settle()
        await crowd.close()
    supervisor, workers = await measured(place)
    say(f"before: {_text(supervisor, workers)}")
    async with new_http() as http:
        crowd.move(http)
        await crowd.listen()
        say(f"{seconds:.0f} s of load, while workers are killed and Redis is restarted (seed {seed})")
        crowd.start()
        await trouble(place, ledger, seconds, seed)
        async with asyncio.timeout(2 * READY_SECONDS):
            while ledger.open_periods():  # noqa: ASYNC110  what is observed has no event
                await asyncio.sleep(0.1)
        await asyncio.sleep(CALM_SECONDS)
        await crowd.stop()
        say("everything has ended; waiting for the last notices and tasks")
        await crowd.settle()
        await crowd.tasks.settle(place.notes)
        say("every session once at every worker")
        objects_after = await each_worker(place, crowd)
        await crowd.close()
    for each in watching:
        if each.done():
            # It failed, and what it watched was not seen.
            each.result()
        each.cancel()
    supervisor_after, workers_after = await measured(place)
    say(f"after:  {_text(supervisor_after, workers_after)}")
    compare(ledger, (supervisor, workers), (supervisor_after, workers_after))
    compare_objects(ledger, objects, objects_after)


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


def compare_objects(ledger: Ledger, before: list[int], after: list[int]) -> None:
    """Check that no worker has more objects than before: a leak shows here, whatever the allocator keeps."""
    say(f"objects of the workers: before {sorted(before)}, after {sorted(after)}")
    allowed = max(before) * OBJECTS + OBJECTS_OF_STREAMS
    for each in after:
        if each > allowed:
            ledger.fault(f"a worker has {each:,} objects, more than {allowed:,.0f}")


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
    ledger.judge()
    ledger.counts["times that a worker found Redis or itself slow"] = len(ledger.slow)
    sys.stdout.write(f"\n{ledger.summary()}\n\n")
    say(
        "OK"
        if not ledger.faults
        else f"FAILED; the same again: make soak SECONDS={options.seconds:.0f} SEED={options.seed}"
    )
    return 1 if ledger.faults else 0


if __name__ == "__main__":
    sys.exit(main())
