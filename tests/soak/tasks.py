"""The tasks of a soak: what clients were told of them, held against what was done."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import NamedTuple

from tests.soak.ledger import Ledger
from tests.soak.sessions import RETRY_SECONDS, Lost, Refused, SoakSession

__all__ = ["TaskBook"]

#: Every task has ended within this time: a few leases, and the longest work.
_END_SECONDS = 120.0


class _Known(NamedTuple):
    """A task that was acknowledged."""

    name: str
    tool: str
    session: SoakSession
    #: When its creation was requested.
    begun: float


class TaskBook:
    """The tasks that clients were told of."""

    def __init__(self, ledger: Ledger) -> None:
        """Start without tasks."""
        self._ledger = ledger
        self._known: dict[str, _Known] = {}
        self._numbers = 0

    def new_name(self) -> str:
        """Return a name that no other task has."""
        self._numbers += 1
        return f"task{self._numbers}"

    def created(self, id: str, name: str, tool: str, session: SoakSession, begun: float) -> None:
        """Record a task that was acknowledged."""
        self._known[id] = _Known(name, tool, session, begun)

    async def settle(self, file: Path) -> None:
        """Ask for every task until it has ended, then compare with what was done."""
        states = {id: await self._ended(id, known.session) for id, known in self._known.items()}
        notes = await asyncio.to_thread(file.read_text, encoding="utf-8")
        done: dict[str, list[tuple[str, int]]] = {}
        for line in notes.splitlines():
            what, name, pid = line.split()
            if what != "slow":
                done.setdefault(name, []).append((what, int(pid)))
        for id, known in self._known.items():
            self.compare(known.name, known.tool, known.begun, states[id], done.get(known.name, []))

    def compare(self, name: str, tool: str, begun: float, state: str, done: list[tuple[str, int]]) -> None:
        """Hold the outcome of a task against what its workers have noted: ``run`` and ``end`` with their process."""
        ledger, label = self._ledger, f"task {name} of {tool}"
        ledger.counts[f"tasks {state}"] += 1
        runs, ends = ([pid for what, pid in done if what == kind] for kind in ("run", "end"))
        ledger.counts["tasks that ran again"] += len(runs) > 1
        if state not in ("completed", "failed"):
            ledger.fault(f"{label} did not end: {state}")
        if alive := [pid for pid in runs[:-1] if pid not in ledger.kills]:
            ledger.fault(f"{label} ran again, although {alive} did not die")
        if tool == "work_once" and len(runs) > 1:
            ledger.fault(f"{label} ran {len(runs)} times and may run once")
        if tool == "work_again" and state != "completed":
            ledger.fault(f"{label} may run again, and is {state}")
        if state == "completed" and not ends:
            ledger.fault(f"{label} is completed, and its function did not return")
        if state == "failed" and (runs[-1] not in ledger.kills if runs else not ledger.died(begun)):
            ledger.fault(f"{label} failed, although its worker did not die")

    async def _ended(self, id: str, session: SoakSession) -> str:
        deadline, state = time.monotonic() + _END_SECONDS, "unknown"
        while time.monotonic() < deadline:
            begun = time.monotonic()
            try:
                status, answer = await session.post(session.next_request("tasks/get", {"taskId": id}))
            except Lost as lost:
                self._ledger.lost("tasks/get", lost.heard)
            except Refused:
                self._ledger.refused("tasks/get", begun)
            else:
                state = answer["result"]["status"] if status == 200 and "result" in answer else f"{status} {answer}"
                if state != "working":
                    break
            await asyncio.sleep(RETRY_SECONDS)
        return state
