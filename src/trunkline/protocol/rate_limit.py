"""A rate with a burst, and counting events against it (GCRA) within one process.

The generic cell rate algorithm keeps one number for each key: when the next event is due if all had been evenly
spaced. It may run ahead of the clock by the burst. No clock is read; the time is an argument.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from types import MappingProxyType

from msgspec import Struct

from trunkline.errors import ConfigError

__all__ = ["RateCounts", "RateLimit", "parse_rate_limit"]

_UNITS = MappingProxyType({"s": 1.0, "m": 60.0, "h": 3600.0})
_TEXT = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)/([smh])(?:,burst=(\d{1,9}))?")
#: Keys that are counted at once, about 10 MB; the one that was counted longest ago makes room.
_MOST_KEYS = 65_536


class RateLimit(Struct, frozen=True, kw_only=True):
    """How many requests one caller may send: a rate, and how many at once."""

    per_second: float
    #: How many may arrive at once; by default as many as in one second, and at least one.
    burst: int | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: the rate or the burst is not positive.
        """
        if not 0 < self.per_second < math.inf or (self.burst is not None and self.burst < 1):
            raise ConfigError(f"rate_limit={self!r}: rate and burst must be positive numbers")

    @property
    def most_at_once(self) -> int:
        """The burst."""
        return max(1, math.ceil(self.per_second)) if self.burst is None else self.burst


def parse_rate_limit(given: RateLimit | str) -> RateLimit:
    """Return a rate limit that may be written as text: ``10/s``, ``100/m``, ``10/s,burst=50``.

    Without a burst, a caller may send at once as many as the number names.

    Raises:
        ConfigError: it is no rate.
    """
    if isinstance(given, RateLimit):
        return given
    found = _TEXT.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        raise ConfigError(f"rate_limit={given!r} is not a rate: write 10/s, 100/m or 1000/h, or 10/s,burst=50")
    count, unit, burst = float(found[1]), _UNITS[found[2]], found[3]
    return RateLimit(per_second=count / unit, burst=math.ceil(count) if burst is None else int(burst))


class RateCounts:
    """The events of each key, counted in this process."""

    __slots__ = ("_burst", "_due", "_interval")

    def __init__(self, limit: RateLimit) -> None:
        """Start without events."""
        self._interval = 1.0 / limit.per_second
        self._burst = limit.most_at_once
        self._due: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        """Return how many keys are remembered."""
        return len(self._due)

    def wait(self, key: str, *, now: float, cost: int = 1) -> float:
        """Return for how many seconds so many events must wait; nothing is counted."""
        ahead = max(self._due.get(key, now), now) + (cost - self._burst) * self._interval - now
        # A billionth of a second is no reason to wait: sums of floats are not exact.
        return ahead if ahead > 1e-9 else 0.0

    def count(self, key: str, *, now: float, cost: int = 1) -> None:
        """Count events."""
        self._due[key] = max(self._due.get(key, now), now) + cost * self._interval
        self._due.move_to_end(key)
        if len(self._due) > _MOST_KEYS:
            self._due.popitem(last=False)
