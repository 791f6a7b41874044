"""Calls, errors, latencies and tokens of each server over the last 24 hours, in memory.

Latencies are kept as histograms with logarithmic bounds, not as samples: a percentile is at most 5 % off, and a minute
of a server takes the same memory after ten calls as after ten thousand.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from trunkline.host.events import ActCompleted
from trunkline.host.upstreams.catalog.items import tokens_in

__all__ = ["LONGEST_WINDOW", "Metrics"]

#: How far back metrics reach, in seconds.
LONGEST_WINDOW = 24 * 3600
_BUCKET = 60  # Seconds of the smallest step.
_POINTS = 60  # Steps of a chart, at most.
_MOST_SERVERS = 500  # Server names that are kept; a configuration that changes often must not fill the memory.

# The bounds of the bins grow by this factor; a value is represented by the middle of its bin.
_GROWTH = 1.1
_SMALLEST = 1e-4  # Seconds; everything faster is in the first bin.
_LAST = 185  # The bin of some 75 minutes; everything slower is in it.
_ERRORS = frozenset({"tool-error", "error", "lost"})


class _Bucket(Struct):
    """The calls of one server in one minute, or the sum of several."""

    calls: int = 0
    errors: int = 0
    denied: int = 0
    tokens: int = 0
    #: The number of latencies in each bin.
    bins: dict[int, int] = {}

    def add(self, event: ActCompleted) -> None:
        if event.outcome == "denied":
            self.denied += 1
            return
        self.calls += 1
        self.errors += event.outcome in _ERRORS
        self.tokens += 0 if event.bytes is None else tokens_in(event.bytes)
        bin = _bin(event.seconds)
        self.bins[bin] = self.bins.get(bin, 0) + 1

    def merge(self, other: _Bucket) -> None:
        self.calls += other.calls
        self.errors += other.errors
        self.denied += other.denied
        self.tokens += other.tokens
        for bin, count in other.bins.items():
            self.bins[bin] = self.bins.get(bin, 0) + count

    def percentile(self, share: float) -> float | None:
        """Return a percentile of the latency in milliseconds; None without calls."""
        rank, seen = math.ceil(share * sum(self.bins.values())), 0
        for bin in sorted(self.bins):
            seen += self.bins[bin]
            if seen >= rank:
                return round(_SMALLEST * math.pow(_GROWTH, bin - 0.5) * 1000, 3)
        return None


def _bin(seconds: float) -> int:
    if seconds <= _SMALLEST:
        return 0
    return min(_LAST, math.ceil(math.log(seconds / _SMALLEST) / math.log(_GROWTH)))


class Metrics:
    """Counts calls, errors, latencies and tokens by server and minute."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """Start without calls."""
        self._now = now
        #: By server, and by the minute since the epoch, oldest first.
        self._servers: dict[str, dict[int, _Bucket]] = {}

    def add(self, event: ActCompleted) -> None:
        """Count a call."""
        minute = int(self._now() // _BUCKET)
        if event.server not in self._servers and len(self._servers) >= _MOST_SERVERS:
            self._forget(minute)
            if len(self._servers) >= _MOST_SERVERS:
                return
        buckets = self._servers.setdefault(event.server, {})
        bucket = buckets.get(minute)
        if bucket is None:
            bucket = buckets[minute] = _Bucket()
            _drop_old(buckets, minute)
        bucket.add(event)

    def _forget(self, minute: int) -> None:
        for server, buckets in list(self._servers.items()):
            _drop_old(buckets, minute)
            if not buckets:
                del self._servers[server]

    def report(self, window: int, servers: Iterable[str]) -> dict[str, Any]:
        """Return the metrics of the given servers, and of all servers with calls, by step."""
        window = min(max(window, _BUCKET), LONGEST_WINDOW)
        width = math.ceil(window / _BUCKET / _POINTS)
        count = math.ceil(window / _BUCKET / width)
        now = self._now()
        # The last step ends with the current minute.
        end = int(now // _BUCKET) + 1
        names = dict.fromkeys([*servers, *self._servers])
        return {
            "at": now,
            "step": width * _BUCKET,
            "servers": [self._server(name, end - count * width, width, count) for name in names],
        }

    def _server(self, name: str, begin: int, width: int, count: int) -> dict[str, Any]:
        steps = [_Bucket() for _ in range(count)]
        total = _Bucket()
        for minute, bucket in self._servers.get(name, {}).items():
            at = (minute - begin) // width
            if 0 <= at < count:
                steps[at].merge(bucket)
                total.merge(bucket)
        return {
            "name": name,
            "calls": [step.calls for step in steps],
            "errors": [step.errors for step in steps],
            "tokens": [step.tokens for step in steps],
            **_percentiles(steps),
            "totals": {
                "calls": total.calls,
                "errors": total.errors,
                "denied": total.denied,
                "tokens": total.tokens,
                **{key: values[0] for key, values in _percentiles([total]).items()},
            },
        }


def _percentiles(steps: Sequence[_Bucket]) -> dict[str, list[float | None]]:
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {name: [step.percentile(share) for step in steps] for name, share in shares.items()}


def _drop_old(buckets: dict[int, _Bucket], minute: int) -> None:
    oldest = minute - LONGEST_WINDOW // _BUCKET
    for old in [each for each in buckets if each <= oldest]:
        del buckets[old]
