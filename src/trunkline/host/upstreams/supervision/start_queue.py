"""When server processes start: how long to wait before a retry, when to stop retrying, and how many start at once.

**Retries** follow three rules; clock and randomness come in as arguments. A server that exited is restarted after a
growing wait with full jitter, so that many servers do not come back at the same moment. One that keeps crashing trips a
circuit breaker. A change stream that closes is reopened a few times, and then only every few hours: without it only
change notifications are missed.

**Starts** wait for a slot, and the timeout of a start runs from then on: sixty programs started at once take the
processor from each other until all of them miss their start time. Servers that a call waits for come first, then
required ones, then the others in order of arrival. A start that waits for the network, or sleeps, uses no processor,
and must not hold up the rest. While starts are queued and the processor has spare time, further ones are let in a few
at a time. Where the spare time cannot be measured, or the user chose the number, the limit alone counts. A gateway over
stdio holds all starts until it has answered its client, who may give up on a slow ``initialize``.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

from trunkline.timers import Deadline, Timers

__all__ = [
    "HALF_OPEN_SECONDS",
    "STEADY_SECONDS",
    "Backoff",
    "Breaker",
    "IdleProcessors",
    "Reopening",
    "StartQueue",
    "default_starts",
]

#: A server that ran this long did not exit because of how it was started.
STEADY_SECONDS = 60.0
#: How long after the breaker tripped one more start is tried.
HALF_OPEN_SECONDS = 300.0

_FIRST = 0.25  # Pause before the first restart; it doubles each time.
_LONGEST = 30.0  # A server that works again is used within half a minute.
# Beyond this power of two every wait is the longest.
_MOST_DOUBLINGS = 16


class Backoff:
    """The waits between retries: up to a quarter of a second at first, then up to twice as long each time."""

    __slots__ = ("_first", "_longest", "_tries")

    def __init__(self, first: float = _FIRST, longest: float = _LONGEST) -> None:
        """Set the longest first wait, and the longest wait at all."""
        self._first = first
        self._longest = longest
        self._tries = 0

    def next(self, spread: float) -> float:
        """Return the next wait; ``spread``, from 0 to 1, is the fraction of its longest length (the jitter)."""
        longest = min(self._first * (1 << min(self._tries, _MOST_DOUBLINGS)), self._longest)
        self._tries += 1
        return longest * spread

    def reset(self) -> None:
        """Restart with the first wait."""
        self._tries = 0


class Breaker:
    """A circuit breaker: counts crashes, and trips on too many in a short time."""

    __slots__ = ("_crashes", "_on_trial", "_seconds", "_times")

    def __init__(self, crashes: int, seconds: float) -> None:
        """Trip at ``crashes`` crashes within ``seconds`` seconds."""
        self._crashes = max(1, crashes)
        self._seconds = seconds
        self._times: deque[float] = deque(maxlen=self._crashes)
        self._on_trial = False

    def failed(self, now: float) -> bool:
        """Count a crash; return True if the breaker trips."""
        self._times.append(now)
        while now - self._times[0] > self._seconds:
            self._times.popleft()
        return self._on_trial or len(self._times) >= self._crashes

    def try_once(self) -> None:
        """Allow one trial start: if that crashes too, the breaker trips at once."""
        self._times.clear()
        self._on_trial = True

    def reset(self) -> None:
        """Forget all crashes: the server ran well, or was restarted by the user."""
        self._times.clear()
        self._on_trial = False


class Reopening:
    """When to reopen a change stream that closed.

    One that closes within ten seconds is reopened three times; one that lived longer, five times an hour. Beyond that,
    it is reopened after six hours.
    """

    __slots__ = ("_closed_at", "_quickly")

    _QUICK_SECONDS = 10.0
    _QUICK_TRIES = 3
    _HOUR = 3600.0
    _TRIES_AN_HOUR = 5
    _LATER = 6 * 3600.0

    def __init__(self) -> None:
        """Start with a stream that never closed."""
        self._quickly = 0
        self._closed_at: deque[float] = deque(maxlen=self._TRIES_AN_HOUR + 1)

    def closed(self, *, lived: float, now: float) -> float:
        """Record that the stream closed after ``lived`` seconds; return the seconds until it may be reopened."""
        if lived < self._QUICK_SECONDS:
            self._quickly += 1
            return self._LATER if self._quickly > self._QUICK_TRIES else float(2 ** (self._quickly - 1))
        self._quickly = 0
        self._closed_at.append(now)
        lately = sum(now - at < self._HOUR for at in self._closed_at)
        return self._LATER if lately > self._TRIES_AN_HOUR else 1.0


_PER_CORE = 4  # Starts wait for disk and network most of the time.
# How often the load is measured while starts are queued.
_LOOK_SECONDS = 0.25


def _cores() -> frozenset[int]:
    """Return the processors this process may run on."""
    try:
        return frozenset(os.sched_getaffinity(0))
    except AttributeError:
        return frozenset(range(os.cpu_count() or 1))


def default_starts() -> int:
    """Return how many processes start at the same time unless configured: four per processor."""
    return _PER_CORE * len(_cores())


class IdleProcessors:
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
        self, most: int, timers: Timers, spare: Callable[[], Callable[[], float | None]] | None = None
    ) -> None:
        """Allow ``most`` starts at a time, and more while processors are idle if ``spare`` makes a measure of that."""
        self.most = most
        self._timers = timers
        self._make_spare = spare
        self._spare: Callable[[], float | None] | None = None
        self._running = 0
        self._waiting: dict[asyncio.Future[None], Callable[[], int]] = {}
        self._row: Deadline | None = None
        #: Whether no start begins before ``release``.
        self.held = False

    @property
    def full(self) -> bool:
        """Whether a start has to wait."""
        return self.held or self._running >= self.most or bool(self._waiting)

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
        self._admit_waiting()

    def release(self) -> None:
        """Begin the starts that were held."""
        self.held = False
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        while self._waiting and self._running < self.most and not self.held:
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
            self._row = self._timers.after(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._row = None
        assert self._spare is not None
        spare = self._spare()
        # One more for each idle processor, and one for a half: their load shows before the next look.
        for _ in range(0 if spare is None or self.held else min(int(spare + 0.5), len(self._waiting))):
            self._admit()
        if self._waiting:
            self._row = self._timers.after(_LOOK_SECONDS, self._look)
