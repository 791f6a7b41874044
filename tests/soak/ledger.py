"""What happened in a soak: counts, faults, and when workers and Redis were gone, which excuses some errors."""

from __future__ import annotations

import time
from collections import Counter

__all__ = ["Ledger"]

#: A connection to a worker that was killed so many seconds ago may be used once more before the client notices.
_NOTICED = 3.0
#: For so many seconds after Redis is back, workers may not have connected again: pauses between attempts, and load.
_RECOVERED = 10.0
#: The most faults that are printed.
_SHOWN = 40


class Ledger:
    """Counts, faults and excuses."""

    def __init__(self) -> None:
        """Start empty."""
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        #: When each worker was killed, by process id.
        self.kills: dict[int, float] = {}
        self._outages: list[list[float]] = []
        self.begun = time.monotonic()

    # --- what is done to the server ---

    def killed(self, pid: int) -> None:
        """Record that a worker is killed now."""
        self.kills[pid] = time.monotonic()

    def redis_gone(self) -> None:
        """Record that Redis is stopped now."""
        self._outages.append([time.monotonic(), float("inf")])

    def redis_back(self) -> None:
        """Record that Redis answers again."""
        self._outages[-1][1] = time.monotonic()

    @property
    def outages(self) -> int:
        """How often Redis was restarted."""
        return len(self._outages)

    def was_gone(self, begun: float) -> bool:
        """Return whether Redis was gone at any time since, or had just come back."""
        return any(until + _RECOVERED > begun for _, until in self._outages)

    # --- what is seen ---

    def fault(self, text: str) -> None:
        """Record what should not have happened."""
        self.faults.append(f"{time.monotonic() - self.begun:6.1f} s  {text}")

    def lost(self, what: str, begun: float) -> None:
        """Record a request that ended with its connection: only with a worker that was killed."""
        if any(at > begun - _NOTICED for at in self.kills.values()):
            self.counts["requests that ended with their worker"] += 1
        else:
            self.fault(f"{what}: its connection ended, and no worker was killed")

    def refused(self, what: str, begun: float) -> None:
        """Record a request that was answered with 503: only while Redis was gone."""
        if self.was_gone(begun):
            self.counts["requests refused with 503 while Redis was gone"] += 1
        else:
            self.fault(f"{what}: 503, although Redis was there")

    def unknown(self, what: str, begun: float) -> None:
        """Record a request that was answered in place of a dead worker."""
        if any(at > begun - _NOTICED for at in self.kills.values()):
            self.counts["requests answered with an error in place of a dead worker"] += 1
        else:
            self.fault(f"{what}: answered for a dead worker, and none was killed")

    def summary(self) -> str:
        """Return all counts, and the faults."""
        width = max((len(name) for name in self.counts), default=0) + 2
        lines = [f"{name:<{width}}{count:>9,}" for name, count in self.counts.items()]
        lines.append(f"{'faults':<{width}}{len(self.faults):>9,}")
        lines += [f"  - {fault}" for fault in self.faults[:_SHOWN]]
        return "\n".join(lines)
