"""Bounds how many server processes start at the same time.

Sixty programs started at once take the processor from each other until all of them miss their start time. So a start
waits for a slot, and its timeout runs from then on. Servers that a call waits for come first, then required ones,
then the others in order of arrival.

A start that waits for the network, or sleeps, uses no processor, and must not hold up the rest. While starts are queued
and the processor has spare time, further ones are let in a few at a time. Where the spare time cannot be measured, or
the user chose the number, the limit alone counts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from trunkline.protocol.deadlines import Deadline
from trunkline.timekeeper import Timekeeper

__all__ = ["SpareTime", "StartQueue", "usual_starts"]

_PER_CORE = 4
# How often the load is measured while starts are queued.
_LOOK_SECONDS = 0.25


def _cores() -> frozenset[int]:
    """Return the processors this process may run on."""
    try:
        return frozenset(os.sched_getaffinity(0))
    except AttributeError:
        return frozenset(range(os.cpu_count() or 1))


def usual_starts() -> int:
    """Return how many processes start at the same time unless configured: four per processor."""
    return _PER_CORE * len(_cores())


class SpareTime:
    """Measures how many processors were idle since the last call; None where that cannot be measured."""

    def __init__(self, proc: Path = Path("/proc/stat"), cgroup: Path = Path("/sys/fs/cgroup/cpu.stat")) -> None:
        """Set the files of the kernel that are read."""
        self._proc = proc
        self._cgroup = cgroup
        self._names = {f"cpu{number}" for number in _cores()}
        self._last = self._read()

    def __call__(self) -> float | None:
        """Return the number of idle processors, on average since the last call."""
        before, self._last = self._last, self._read()
        if before is None or self._last is None:
            return None
        idle, total, throttled = (now - then for now, then in zip(self._last, before, strict=True))
        # A container that hit its quota has no time to spare, however idle the machine is.
        return 0.0 if throttled or total <= 0 else len(self._names) * idle / total

    def _read(self) -> tuple[int, int, int] | None:
        """Return idle time, all time, and how often the quota was hit."""
        try:
            rows = [line.split() for line in self._proc.read_text().splitlines() if line.startswith("cpu")]
            ticks = [[int(each) for each in row[1:9]] for row in rows if row[0] in self._names]
        except (OSError, ValueError):
            return None
        if not ticks:
            return None
        return sum(row[3] + row[4] for row in ticks), sum(map(sum, ticks)), self._throttled()

    def _throttled(self) -> int:
        try:
            rows = (line.split() for line in self._cgroup.read_text().splitlines())
            return next((int(row[1]) for row in rows if row[:1] == ["nr_throttled"]), 0)
        except (OSError, ValueError, IndexError):
            return 0


class StartQueue:
    """The starts in progress, and those that wait for a slot."""

    def __init__(
        self, most: int, timekeeper: Timekeeper, spare: Callable[[], Callable[[], float | None]] | None = None
    ) -> None:
        """Allow ``most`` starts at a time, and more while processors are idle if ``spare`` makes a measure of that."""
        self.most = most
        self._timekeeper = timekeeper
        self._make_spare = spare
        self._spare: Callable[[], float | None] | None = None
        self._running = 0
        self._waiting: dict[asyncio.Future[None], Callable[[], int]] = {}
        self._row: Deadline | None = None

    @property
    def full(self) -> bool:
        """Whether a start has to wait."""
        return self._running >= self.most or bool(self._waiting)

    async def enter(self, urgency: Callable[[], int]) -> None:
        """Wait for a slot; ``urgency`` is called whenever one is free, and the highest is served first.

        The caller releases the slot with ``leave``, unless this was cancelled.
        """
        if not self.full:
            self._running += 1
            return
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[slot] = urgency
        self._watch()
        try:
            await slot
        except asyncio.CancelledError:
            if self._waiting.pop(slot, None) is None:
                self.leave()
            raise

    def leave(self) -> None:
        """Release a slot."""
        self._running -= 1
        while self._waiting and self._running < self.most:
            self._admit()

    def _admit(self) -> None:
        # The first of the most urgent: a dict keeps the order of arrival.
        slot = max(self._waiting, key=lambda each: self._waiting[each]())
        del self._waiting[slot]
        self._running += 1
        if not slot.done():
            slot.set_result(None)

    def _watch(self) -> None:
        """Start measuring the processor, for as long as starts are queued."""
        if self._row is None and self._make_spare is not None:
            self._spare = self._make_spare()
            self._row = self._timekeeper.after(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._row = None
        assert self._spare is not None
        spare = self._spare()
        # One more for each idle processor, and one for a half: their load shows before the next look.
        for _ in range(0 if spare is None else min(int(spare + 0.5), len(self._waiting))):
            self._admit()
        if self._waiting:
            self._row = self._timekeeper.after(_LOOK_SECONDS, self._look)
