"""What is done to the servers from outside, and when: signals, restarts, servers taken out and put in again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from tests.faults.casting import Part, web_command
from tests.faults.kinds import Trouble
from tests.faults.measures import processes_of
from trunkline.host.host import Host

__all__ = ["Act", "Maker", "Webs", "plan"]

_SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "stop": signal.SIGSTOP}
# A server that hangs is found out after two pings of ten seconds: it has to begin early.
_EARLY = 0.06


class Act(Struct, frozen=True, order=True):
    """One thing that is done, so many seconds after the beginning."""

    at: float
    server: str
    what: Trouble


def plan(parts: Sequence[Part], chance: random.Random, seconds: float) -> list[Act]:
    """Say what will be done."""
    acts = []
    for part in parts:
        for what in part.kind.troubles:
            share = chance.uniform(0.02, _EARLY) if what == "stop" else chance.uniform(0.05, 0.85)
            acts.append(Act(share * seconds, part.name, what))
    return sorted(acts)


class Webs:
    """The processes of the servers that are reached by a URL."""

    def __init__(self, ledger: Path, mark: str) -> None:
        """Start with none."""
        self._ledger = ledger
        self._mark = mark
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, part: Part) -> None:
        """Start one, in place of the one before."""
        self.end(part)
        command, env = web_command(part, self._ledger, self._mark)
        self._running[part.name] = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)

    def end(self, part: Part) -> None:
        """Kill one."""
        process = self._running.pop(part.name, None)
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Kill them all."""
        running, self._running = self._running, {}
        for process in running.values():
            process.kill()
            process.wait()


class Maker:
    """Makes the trouble that was planned."""

    def __init__(self, host: Host, webs: Webs, parts: Sequence[Part], *, mark: str) -> None:
        """Take whom it is made to."""
        self._mark = mark
        self._host = host
        self._webs = webs
        self._parts = {part.name: part for part in parts}
        # One thing at a time is done to each: a server that is taken out cannot be taken out again.
        self._turns = {part.name: asyncio.Lock() for part in parts}
        self.done = 0

    async def carry_out(self, acts: Sequence[Act]) -> None:
        """Do everything at its time."""
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for act in acts:
                await asyncio.sleep(began + act.at - asyncio.get_running_loop().time())
                group.create_task(self._in_turn(act))
                self.done += 1

    async def _in_turn(self, act: Act) -> None:
        async with self._turns[act.server]:
            await self._do(self._parts[act.server], act.what)

    async def _do(self, part: Part, what: Trouble) -> None:
        if part.port is not None and what == "kill":
            self._webs.end(part)
            await asyncio.sleep(0.5)
            self._webs.start(part)
        elif what == "restart":
            await self._host.restart(part.name)
        elif what == "replace":
            await self._host.remove_server(part.name)
            await asyncio.sleep(0.3)
            await self._host.add_server(part.name, part.entry)
        elif what == "pause":
            paused = await self._processes(part)
            _signal(paused, signal.SIGSTOP)
            await asyncio.sleep(2.0)
            _signal(paused, signal.SIGCONT)
        else:
            _signal(await self._processes(part), _SIGNALS[what])

    async def _processes(self, part: Part) -> list[int]:
        """Find the processes of a server; one that is about to start is waited for."""
        for _ in range(200):
            found = processes_of(self._mark, part.name)
            if found:
                return found
            await asyncio.sleep(0.05)
        raise LookupError(f"{part.name} has no process")


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
