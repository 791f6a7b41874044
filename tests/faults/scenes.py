"""The two scenes: a round of calls while everything goes wrong, and a host that is killed.

Each looks at what must hold, during and after, and notes what does not; nothing here ends a run early.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.faults.callers import BOUND, Caller
from tests.faults.casting import MARK, ROOT, Part
from tests.faults.claims import Claims, Tally
from tests.faults.measures import below, lives, marked, named, until
from tests.faults.trouble import Maker, Webs, plan
from trunkline import Client
from trunkline.host.audit.reader import verify
from trunkline.host.audit.trail import AuditTrail
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.events import EventSubscription, ServerStateChanged
from trunkline.host.gateway.gateway import Gateway
from trunkline.host.host import Host
from trunkline.host.upstreams.supervision.upstream import ServerStatus
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, REVISION_NAMES

__all__ = ["Stage", "open_host", "play", "play_killed"]

_RULE = '[[rule]]\neffect = "allow"\nserver = "{name}"\ntool = "*"\n' * 2 + "tainted = true\n"
_SETTLE_SECONDS = 60.0
_FAILED = ("broken", "partial", "waiting")


class Stage(Struct, frozen=True, kw_only=True):
    """Where a scene is played, with whom, and who takes notes."""

    parts: Sequence[Part]
    folder: Path
    ledger: Path
    mark: str
    seed: str
    claims: Claims
    tally: Tally
    tell: Callable[[str], None]
    #: How many kinds of clients there are.
    clients: int = 6
    verbose: bool = False

    def chance(self, what: object) -> random.Random:
        """Give luck of its own to everybody, the same each time."""
        return random.Random(f"{self.seed} {what}")


def open_host(parts: Sequence[Part], folder: Path) -> Host:
    """Make the host of these servers, with everything that a host has switched on."""
    rules = "".join(_RULE.format(name=part.name) for part in parts)
    return Host.open(
        {part.name: part.entry for part in parts},
        folder=folder,
        policy=parse_policy(rules, file="policy.toml"),
        wait="none",
    )


async def play(stage: Stage, seconds: float, *, warming: bool = False) -> None:
    """Play one round: start, call while things go wrong, let it settle, look, call once more, end.

    One that only warms up does not wait until all has settled.
    """
    webs = Webs(stage.ledger, stage.mark)
    try:
        for part in stage.parts:
            if part.port is not None:
                webs.start(part)
        async with open_host(stage.parts, stage.folder) as host:
            watching = asyncio.create_task(_watch(host.events(), stage))
            await _start(stage, host)
            async with _callers(stage, host) as callers:
                await _storm(stage, host, webs, callers, seconds)
                if not warming:
                    await _look(stage, host, callers)
            stage.tally.restarts += sum(status.restarts for status in host.status())
        await watching
    finally:
        webs.close()
    left = [named(pid) for pid in marked(stage.mark)]
    stage.claims.hold(not left, f"processes outlived the host: {left}")
    proof = verify(stage.folder / "audit.jsonl")
    stage.claims.hold(proof.ok, f"the audit trail is broken: {proof.reason}")
    stage.tell(f"closed: no process left of {len(stage.parts)}, {proof.entries} entries in the audit trail")


async def _watch(events: EventSubscription, stage: Stage) -> None:
    """See that whoever fails has a reason, and that those who are well stay so."""
    honest = {part.name for part in stage.parts if part.honest}
    ready: set[str] = set()
    async for event in events:
        if not isinstance(event, ServerStateChanged):
            continue
        if event.state in _FAILED:
            stage.claims.hold(event.reason, f"{event.server} is {event.state} without a reason")
        if event.state == "ready":
            ready.add(event.server)
        elif event.server in honest & ready and event.state != "stopped":
            stage.claims.hold(False, f"{event.server} was well and is {event.state}: {event.reason}")


async def _start(stage: Stage, host: Host) -> None:
    began = time.monotonic()
    honest = {part.name for part in stage.parts if part.honest}

    def started() -> bool:
        return all(status.state == "ready" for status in host.status() if status.name in honest)

    stage.claims.hold(await until(started, _SETTLE_SECONDS), f"those that are well did not start: {_states(host)}")
    stage.tell(f"started: {len(honest)} of {len(stage.parts)} are well, ready after {time.monotonic() - began:.1f} s")


def _states(host: Host) -> str:
    return ", ".join(f"{status.name} {status.state}" for status in host.status())


# --- clients ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _callers(stage: Stage, host: Host) -> AsyncIterator[dict[Caller, Client]]:
    """Open the gateway in memory and over HTTP, and clients of both eras at each."""
    gateway = Gateway(host._open.core, host.policy)
    stopping = asyncio.Event()
    told: asyncio.Future[tuple[str, str | None]] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        host.serve(http="127.0.0.1:0", started=lambda url, token: told.set_result((url, token)), stopping=stopping)
    )
    url, token = await told
    makers = _makers(gateway, url, {"Authorization": f"Bearer {token}"})
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_stop_serving, gateway, stopping, serving)
        callers = {}
        for name, make in list(makers.items())[: stage.clients]:
            caller = Caller(f"{stage.folder.name}.{name}", make, claims=stage.claims, tally=stage.tally)
            callers[caller] = await stack.enter_async_context(make())
        yield callers


async def _stop_serving(gateway: Gateway, stopping: asyncio.Event, serving: asyncio.Task[None]) -> None:
    stopping.set()
    await serving
    await gateway.aclose()


def _makers(gateway: Gateway, url: str, headers: dict[str, str]) -> dict[str, Callable[[], Client]]:
    # Longer than the host may take to answer, shorter than what counts as hanging.
    patience = BOUND - 1.0

    def memory(revision: str, **options: Any) -> Callable[[], Client]:
        return lambda: Client(gateway, revision=revision, timeout=patience, **options)

    def web(revision: str) -> Callable[[], Client]:
        return lambda: Client(url, revision=revision, timeout=patience, headers=headers)

    return {
        # Can be asked, so it has connections of its own to servers of the handshake era.
        "asked": memory(NEWEST_HANDSHAKE.name, elicitation=lambda params: None),
        "http-new": web(NEWEST.name),
        "http-old": web(NEWEST_HANDSHAKE.name),
        "memory-new": memory(NEWEST.name),
        "memory-old": memory(NEWEST_HANDSHAKE.name),
        "oldest": memory(min(REVISION_NAMES)),
    }


async def _storm(stage: Stage, host: Host, webs: Webs, callers: dict[Caller, Client], seconds: float) -> None:
    """Have everybody call while what was planned is done."""
    stopping = asyncio.Event()
    maker = Maker(host, webs, stage.parts, mark=stage.mark)
    honest = [part for part in stage.parts if part.honest]
    # Those that trouble is made for are called most: what is in flight there is what can be lost.
    victims = [part for part in stage.parts if part.kind.troubles]
    tasks = []
    for caller, client in callers.items():
        for number, parts in enumerate((honest, stage.parts, victims, victims)):
            luck = stage.chance((caller.name, number))
            tasks.append(asyncio.create_task(caller.keep_calling(client, parts, luck, stopping)))
        tasks.append(asyncio.create_task(caller.keep_visiting(stage.parts, stage.chance(caller.name), stopping)))
    trouble = asyncio.create_task(maker.carry_out(plan(stage.parts, stage.chance("trouble"), seconds)))
    await asyncio.sleep(seconds)
    stopping.set()
    _, late = await asyncio.wait([*tasks, trouble], timeout=2 * BOUND)
    for task in late:
        stage.claims.hold(False, f"not over in time: {task.get_coro()}")
        task.cancel()
    for task in {*tasks, trouble} - late:
        stage.claims.hold(task.exception() is None, f"the test itself failed: {task.exception()!r}")
    rows = stage.tally.rows.values()
    stage.tell(f"called: {sum(row.calls for row in rows)} calls, {maker.done} troubles made")


# --- what must hold --------------------------------------------------------------------------------------------------


async def _look(stage: Stage, host: Host, callers: dict[Caller, Client]) -> None:
    """Wait until the status tells the truth, and call everybody who is well once more."""
    wrong: list[str] = []

    def true() -> bool:
        statuses = {status.name: status for status in host.status()}
        wrong[:] = [fault for part in stage.parts if (fault := _untrue(part, statuses.get(part.name))) is not None]
        return not wrong

    began = time.monotonic()
    await until(true, _SETTLE_SECONDS)
    for fault in wrong:
        stage.claims.hold(False, fault)
    well = [part for part in stage.parts if part.honest or part.kind.states == frozenset({"ready"})]
    chance = stage.chance("last")
    for caller, client in callers.items():
        results = await asyncio.gather(*(caller.call(client, part, chance) for part in well))
        for part, answered in zip(well, results, strict=True):
            recovered = bool(part.kind.troubles) or part.honest
            stage.claims.hold(answered or not recovered, f"{part.name} is ready but did not answer {caller.name}")
    states = Counter(status.state for status in host.status())
    stage.tell(f"settled after {time.monotonic() - began:.1f} s: {', '.join(f'{n} {s}' for s, n in states.items())}")
    for status in host.status():
        if stage.verbose and (status.reason or status.last_error):
            stage.tell(f"  {status.name} {status.state}: {status.reason}; last: {status.last_error}"[:400])


def _untrue(part: Part, status: ServerStatus | None) -> str | None:
    """Say what is not true about how a server is said to be."""
    if status is None:
        return f"{part.name} is not there"
    if status.state not in part.kind.states:
        return f"{part.name} is {status.state} ({status.reason})"
    if status.state in _FAILED and not status.reason:
        return f"{part.name} is {status.state} without a reason"
    if part.honest and status.restarts and part.port is None:
        return f"{part.name} was well and was started {status.restarts} times more: {status.last_error}"
    if part.kind.name in ("killed", "terminated", "stopped") and not status.restarts:
        return f"{part.name} was ended and is said to have been started once"
    if status.state == "ready" and part.port is None and not (status.pid and lives(status.pid)):
        return f"{part.name} is ready without a process"
    return None


# --- a host that is killed -------------------------------------------------------------------------------------------


async def play_killed(folder: Path, *, mark: str, seed: str, claims: Claims, tell: Callable[[str], None]) -> None:
    """Kill a host in the middle of its work: nothing of it stays, and nothing that it acknowledged is lost."""
    environment = {**os.environ, MARK: mark, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    doomed = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.doomed", str(folder), mark, seed,
        env=environment, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert doomed.stdout is not None
    wanted = random.Random(seed).randrange(20, 80)
    async with asyncio.timeout(_SETTLE_SECONDS):
        lines = [await doomed.stdout.readline() for _ in range(wanted)]
    # All that could outlive it, by whatever mark: a watcher of ours has none.
    started = below(doomed.pid)
    doomed.kill()
    lines += (await doomed.stdout.read()).splitlines(keepends=True)
    await doomed.wait()
    began = time.monotonic()
    await until(lambda: not any(map(lives, started)) and not marked(mark), BOUND)
    left = [named(pid) for pid in {*filter(lives, started), *marked(mark)}]
    claims.hold(not left, f"processes outlived a host that was killed: {left}")
    claims.hold(len(started) > 10, f"the host that was killed had only {len(started)} processes")
    acknowledged = [line.decode().strip() for line in lines if line.endswith(b".\n")]
    _check_trail(folder, acknowledged, claims)
    tell(
        f"killed a host: {len(started)} processes gone after {time.monotonic() - began:.1f} s, "
        f"{len(acknowledged)} acknowledged calls in its audit trail"
    )


def _check_trail(folder: Path, acknowledged: list[str], claims: Claims) -> None:
    """See that whatever the host said it had done is in the trail, and that the next host can go on with it."""
    path = folder / "audit.jsonl"
    AuditTrail.open(path).close()
    proof = verify(path)
    claims.hold(proof.ok, f"the audit trail of a host that was killed is broken: {proof.reason}")
    written = path.read_text()
    lost = [call for call in acknowledged if f'"{call}"' not in written]
    claims.hold(not lost, f"acknowledged calls are not in the audit trail: {lost[:5]}")
