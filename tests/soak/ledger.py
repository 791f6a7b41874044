"""What happened in a soak: counts, faults, and when workers and Redis were gone, which excuses some errors.

An excuse names its cause. A connection may end only if a worker died after it was last heard. A request may be refused
only while Redis is gone or slow, or before every worker has reached it again, which is probed and not guessed from a
time. Whether Redis was slow is measured by every worker, beside the code under test: on a busy machine it is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

__all__ = ["Ledger", "Period"]

#: The most faults that are printed.
_SHOWN = 40


class Period:
    """A time in which something was wrong."""

    __slots__ = ("begun", "ended", "until")

    def __init__(self) -> None:
        """Begin now."""
        self.begun = time.monotonic()
        #: When a killed worker had ended, or Redis answered again.
        self.ended = float("inf")
        #: When every worker was seen to serve again what needs Redis.
        self.until = float("inf")

    def overlaps(self, begun: float, ended: float) -> bool:
        """Return whether a time has a part of it."""
        return self.begun <= ended and self.until >= begun


class Ledger:
    """Counts, faults and excuses."""

    def __init__(self) -> None:
        """Start empty."""
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        #: The workers that were killed, by process id.
        self.kills: dict[int, Period] = {}
        #: When Redis was stopped; and when a worker found it, or itself, slower than half of the time it has.
        self.outages: list[Period] = []
        self.slow: list[Period] = []
        self.begun = time.monotonic()
        self._unjudged: list[Callable[[], str | None]] = []

    # --- what is done to the server ---

    def killed(self, pid: int) -> Period:
        """Record that a worker is about to be killed."""
        self.kills[pid] = Period()
        return self.kills[pid]

    def redis_gone(self) -> Period:
        """Record that Redis is about to be stopped."""
        self.outages.append(Period())
        return self.outages[-1]

    def was_slow(self, begun: float, ended: float) -> None:
        """Record that a worker found Redis, or itself, slow for a while."""
        period = Period()
        period.begun, period.ended = begun, ended
        self.slow.append(period)

    def open_periods(self) -> list[Period]:
        """Return what has ended, without all workers having been seen to serve again."""
        now = time.monotonic()
        every = (*self.kills.values(), *self.outages, *self.slow)
        return [each for each in every if each.ended <= now and each.until > now]

    def was_gone(self, begun: float, ended: float) -> bool:
        """Return whether Redis was gone or slow at a time, or not yet reached by every worker."""
        return any(each.overlaps(begun, ended) for each in (*self.outages, *self.slow))

    def died(self, since: float) -> bool:
        """Return whether a worker ended after a time, or was being ended."""
        return any(each.ended >= since for each in self.kills.values())

    # --- what is seen ---

    def fault(self, text: str) -> None:
        """Record what should not have happened."""
        self.faults.append(f"{time.monotonic() - self.begun:6.1f} s  {text}")

    def lost(self, what: str, heard: float) -> None:
        """Record a connection that ended, and when it was last heard: only a worker that died since ends one."""
        if self.died(heard):
            self.counts["requests that ended with their worker"] += 1
        else:
            self.fault(f"{what}: its connection ended, and no worker was killed")

    def ended(self, what: str, heard: float) -> None:
        """Record a stream that ended before its answer: with its worker, or while its events could not be stored."""
        self.counts["streams that ended early"] += 1
        if not self.died(heard):
            fault = f"{what} ended, although Redis was there and no worker was killed"
            self._judge_later(heard, lambda gone: None if gone else fault)

    def served_late(self, what: str, since: float) -> None:
        """Record a request that was served although others had ended that: only by a worker that could not know."""
        self._judge_later(since, lambda gone: None if gone else f"{what} was still served")

    def refused(self, what: str, begun: float, *, needs_redis: bool = True) -> None:
        """Record a request that was answered with 503: only while Redis was gone.

        One that needs nothing of Redis is refused only by a worker that starts while Redis is gone: such a worker
        cannot know which sessions were ended.
        """
        self.counts["requests refused with 503"] += 1
        ended = time.monotonic()

        def judge(gone: bool) -> str | None:
            if not gone:
                return f"{what}: 503, although Redis was there"
            if not needs_redis and not self._starts_without_redis(begun, ended):
                return f"{what}: 503, although it needs nothing of Redis and no worker had to start without it"
            return None

        self._judge_later(begun, judge)

    def _judge_later(self, begun: float, judge: Callable[[bool], str | None]) -> None:
        """Judge at the end, when all that workers have measured is known."""
        ended = time.monotonic()

        def judgement() -> str | None:
            fault = judge(self.was_gone(begun, ended))
            return fault and f"{ended - self.begun:6.1f} s  {fault}"

        self._unjudged.append(judgement)

    def judge(self) -> None:
        """Judge what depends on when Redis was gone."""
        self.faults += [fault for judgement in self._unjudged if (fault := judgement()) is not None]
        self._unjudged.clear()

    def _starts_without_redis(self, begun: float, ended: float) -> bool:
        outages = [each for each in (*self.outages, *self.slow) if each.overlaps(begun, ended)]
        kills = [each for each in self.kills.values() if each.overlaps(begun, ended)]
        return any(kill.overlaps(each.begun, each.until) for kill in kills for each in outages)

    def unknown(self, what: str, pids: set[int], begun: float) -> None:
        """Record a request that was answered in place of its worker: only if that one was killed."""
        if pids <= self.kills.keys() if pids else self.died(begun):
            self.counts["requests answered with an error in place of a dead worker"] += 1
        else:
            self.fault(f"{what}: answered for a dead worker, and {pids or 'no worker'} was not killed")

    def summary(self) -> str:
        """Return all counts, and the faults."""
        width = max((len(name) for name in self.counts), default=0) + 2
        lines = [f"{name:<{width}}{count:>9,}" for name, count in self.counts.items()]
        lines.append(f"{'faults':<{width}}{len(self.faults):>9,}")
        lines += [f"  - {fault}" for fault in self.faults[:_SHOWN]]
        return "\n".join(lines)
