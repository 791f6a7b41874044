"""All servers behind one gateway: flags and pins, restarts with late starts, sixty at once, and what is left behind."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mcp
import mcp_types
from msgspec import Struct, field

from tests.faults.measures import marked, named, until
from tests.fleet.gateway import Home, Running, pin_states, running
from tests.fleet.install import FLEET
from tests.fleet.looks import ServerRow, target_of
from tests.fleet.programs.slow_start import DELAYS, LEDGER
from tests.fleet.servers import PublicServer, fill_in, lay_out
from tests.fleet.sides import Target, official

__all__ = ["Left", "Restart", "Together", "many_at_once", "put_together", "what_is_left"]

#: Seconds of delay are drawn below this: longer than our patience with the era probe once was, shorter than the
#: official client's.
LONGEST_DELAY = 8.0
_READY_SECONDS = 300.0
_LEFT_SECONDS = 120.0
_SAMPLE_SECONDS = 0.5
_PROGRAM = Path(__file__).parent / "programs" / "slow_start.py"
#: States of a definition that an honest server may not have.
_WRONG = ("flagged", "hidden", "changed")
Tell = Callable[[str], None]


class Restart(Struct, kw_only=True):
    """One start of the gateway with late servers."""

    number: int
    #: How many tools the first list of a client had.
    at_first: int = 0
    #: Tools that the first list of a client lacks, and those that are lacking once all servers are ready.
    lost_at_first: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    #: Servers that did not become ready in time.
    late: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Together(Struct, kw_only=True):
    """What was counted of all servers behind one gateway."""

    tools: int = 0
    definitions: int = 0
    #: For each wrong state, the definitions that are in it, at any start.
    wrong: dict[str, list[str]] = field(default_factory=lambda: {state: [] for state in _WRONG})
    restarts: list[Restart] = field(default_factory=list)


class Left(Struct, kw_only=True):
    """Processes that outlived their clients."""

    #: Those of the servers that all clients share, while the gateway runs.
    shared: int = 0
    #: Those that the clients had for themselves, at their most.
    dedicated: int = 0
    #: Seconds until those were gone after the last client, and what was left after two minutes.
    seconds: float = 0.0
    after_clients: list[str] = field(default_factory=list)
    #: The same after the gateway ended.
    after_gateway: list[str] = field(default_factory=list)


def late_target(name: str, target: Target, folder: Path) -> Target:
    """Return a server that is started late, and whose starts are counted."""
    wrapper = (sys.executable, "-S", "-E", str(_PROGRAM), str(folder), name)
    return Target(command=(*wrapper, *target.command), env=target.env, cwd=target.cwd)


def _stage(name: str, servers: Mapping[str, PublicServer], mark: str) -> Home:
    """Make a gateway's folder, and one that its servers work in."""
    folder = FLEET / "homes" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    work = FLEET / "work" / name
    lay_out(work)
    targets = {entry: late_target(entry, target_of(server, work), folder) for entry, server in servers.items()}
    home = Home(folder, targets, mark)
    _delay(home, {})
    return home


def _delay(home: Home, delays: Mapping[str, float]) -> None:
    (home.folder / DELAYS).write_text("".join(f"{name} {seconds:.2f}\n" for name, seconds in delays.items()))
    (home.folder / LEDGER).write_text("")


def _starts(home: Home) -> Counter[str]:
    return Counter((home.folder / LEDGER).read_text().split())


def _not_ready(gateway: Running, servers: Mapping[str, Any]) -> list[str]:
    said = "".join(gateway.lines)
    return [name for name in servers if not re.search(rf"(^|\W){re.escape(name)}: ready", said, re.MULTILINE)]


async def _tool_names(client: mcp.Client) -> set[str]:
    found: set[str] = set()
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        found |= {tool.name for tool in page.tools}
        cursor = page.next_cursor
        if cursor is None:
            return found


# --- flags, pins and restarts ----------------------------------------------------------------------------------------


async def put_together(
    rows: list[ServerRow], servers: list[PublicServer], *, seed: int, restarts: int, mark: str, tell: Tell
) -> Together:
    """Start all servers behind one gateway, then again and again with delays drawn from the seed."""
    chosen = {server.name: server for server in servers}
    # Nothing is known of what the servers list directly if they were not looked at one by one.
    wanted = sum(row.counts["tools"] for row in rows if row.name in chosen)
    home = _stage("together", chosen, mark)
    first, known = await _start(home, chosen, 0, set(), tell)
    found = Together(tools=len(known))
    _look_at_pins(home, found, tell)
    if rows and len(known) != wanted:
        tell(f"  MISS all together: {len(known)} tools are listed, {wanted} directly")
        first.lost = [f"{wanted - len(known)} of {wanted}"]
    found.restarts.append(first)
    for number in range(1, restarts + 1):
        _delay(home, delays(seed, number, list(chosen)))
        again, _ = await _start(home, chosen, number, known, tell)
        found.restarts.append(again)
        _look_at_pins(home, found, tell)
    return found


def delays(seed: int, number: int, names: list[str]) -> dict[str, float]:
    """Draw the delays of one restart."""
    chance = random.Random(f"{seed}/{number}")
    return {name: chance.uniform(0, LONGEST_DELAY) for name in sorted(names)}


async def _start(
    home: Home, servers: Mapping[str, PublicServer], number: int, known: set[str], tell: Tell
) -> tuple[Restart, set[str]]:
    """Start the gateway, list at once as a client does, and again when all servers are ready."""
    result = Restart(number=number)
    started = time.monotonic()
    with running(home, "--search", "off", "-v") as gateway:
        async with official(gateway.target, "legacy") as client:
            at_first = await _tool_names(client)
            await until(lambda: not _not_ready(gateway, servers), _READY_SECONDS)
            result.late = _not_ready(gateway, servers)
            seen = await _tool_names(client)
    result.seconds = time.monotonic() - started
    result.at_first = len(at_first)
    result.lost_at_first, result.lost = sorted(known - at_first), sorted(known - seen)
    tell(
        f"  start {number}: {len(at_first)} tools in the first list, {len(seen)} when ready"
        f" after {result.seconds:.0f} s{_names('; not ready', result.late)}"
    )
    for words, lost in (("the first list lacks", result.lost_at_first), ("lost when ready", result.lost)):
        if lost:
            tell(f"  MISS start {number}: {len(lost)} tools, {words}{_names('', lost)}")
    return result, seen


def _look_at_pins(home: Home, found: Together, tell: Tell) -> None:
    states = pin_states(home)
    found.definitions = len(states)
    for each in states:
        called = f"{each['server']}/{each['name']}"
        if each["state"] in _WRONG and called not in found.wrong[each["state"]]:
            found.wrong[each["state"]].append(called)
            reasons = "; ".join(str(finding.get("rule") or finding) for finding in each["findings"])
            tell(f"  MISS {called} is {each['state']}{f': {reasons}' if reasons else ''}")


def _names(words: str, names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{words}: {shown}{' …' if len(names) > 5 else ''}" if names else ""


# --- sixty at once ---------------------------------------------------------------------------------------------------


async def many_at_once(
    servers: list[PublicServer], count: int, *, seed: int, mark: str, tell: Tell
) -> tuple[int, list[str]]:
    """Start many small servers behind one gateway; return how many became ready, and those started more than once."""
    small = [server for server in servers if server.small]
    chosen = {f"{small[number % len(small)].name}-{number}": small[number % len(small)] for number in range(count)}
    home = _stage("many", chosen, mark)
    _delay(home, delays(seed, 0, list(chosen)))
    with running(home, "--search", "off", "-v") as gateway:
        await until(lambda: not _not_ready(gateway, chosen), _READY_SECONDS)
        late = _not_ready(gateway, chosen)
    again = [f"{name} ({starts} starts)" for name, starts in sorted(_starts(home).items()) if starts > 1]
    if late:
        tell(f"  MISS {len(late)} of {count} servers did not become ready{_names('', late)}")
    if again:
        tell(f"  MISS {len(again)} of {count} servers were started more than once{_names('', again)}")
    return count - len(late), again


# --- what is left ----------------------------------------------------------------------------------------------------


async def what_is_left(servers: list[PublicServer], *, mark: str, tell: Tell) -> Left:
    """Let three clients that can be asked everything come, call and go, then count the processes of their own."""
    chosen = {server.name: server for server in servers if server.small}
    home = _stage("left", chosen, mark)
    left = Left()
    with running(home, "--search", "off", "-v") as gateway:
        await until(lambda: not _not_ready(gateway, chosen), _READY_SECONDS)
        shared = set(marked(mark))
        left.shared = len(shared)
        visits = asyncio.gather(*(_visit(gateway.target, chosen) for _ in range(3)))
        while not visits.done():
            left.dedicated = max(left.dedicated, len(set(marked(mark)) - shared))
            await asyncio.wait([visits], timeout=_SAMPLE_SECONDS)
        await visits
        gone = time.monotonic()
        await until(lambda: not set(marked(mark)) - shared, _LEFT_SECONDS)
        left.seconds = time.monotonic() - gone
        left.after_clients = [named(pid) for pid in marked(mark) if pid not in shared]
    await until(lambda: not marked(mark), _LEFT_SECONDS)
    left.after_gateway = [named(pid) for pid in marked(mark)]
    for line in (*left.after_clients, *left.after_gateway):
        tell(f"  MISS a process is left: {line}")
    return left


async def _visit(target: Target, servers: Mapping[str, PublicServer]) -> None:
    """Call one tool of each server, as a client that can be asked and has folders and a model."""

    async def decline(*_: Any) -> mcp_types.ElicitResult:
        return mcp_types.ElicitResult(action="decline")

    async def no_folders(*_: Any) -> mcp_types.ListRootsResult:
        return mcp_types.ListRootsResult(roots=[])

    async def no_model(*_: Any) -> mcp_types.ErrorData:
        return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message="no model is here")

    options: dict[str, Any] = {
        "elicitation_callback": decline,
        "list_roots_callback": no_folders,
        "sampling_callback": no_model,
    }
    work = FLEET / "work" / "left"
    async with official(target, "legacy", **options) as client:
        for name, server in servers.items():
            first = next((call for call in server.calls if call.kind == "tool"), None)
            if first is not None:
                await client.call_tool(f"{name}__{first.name}", fill_in(first.arguments, server, work))
