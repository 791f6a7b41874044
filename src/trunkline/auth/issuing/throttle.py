"""A rate limit, counted in fixed windows within this process; its memory is bounded."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["Throttle"]

_REMEMBERED = 4096


class Throttle:
    """Counts events by key, and reports when there are too many."""

    __slots__ = ("_clock", "_counts", "_most", "_seconds", "_window")

    def __init__(self, most: int, seconds: float, *, clock: Callable[[], float]) -> None:
        """Allow ``most`` events in ``seconds`` seconds."""
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._window = -1
        self._counts: dict[str, int] = {}

    def count(self, key: str) -> int:
        """Count an event; return the seconds to wait if the limit is exceeded, else 0."""
        spent = self._current().get(key, 0) + 1
        if len(self._counts) < _REMEMBERED or key in self._counts:
            self._counts[key] = spent
        return self._wait() if spent > self._most or key not in self._counts else 0

    def waits(self, key: str) -> int:
        """Return the seconds to wait before the next event is allowed, without counting."""
        return self._wait() if self._current().get(key, 0) >= self._most else 0

    def forgive(self, key: str) -> None:
        """Reset the count of a key."""
        self._counts.pop(key, None)

    def _current(self) -> dict[str, int]:
        window = int(self._clock() // self._seconds)
        if window != self._window:
            self._window = window
            self._counts.clear()
        return self._counts

    def _wait(self) -> int:
        """Return the rest of the window, in whole seconds."""
        return max(1, math.ceil((self._window + 1) * self._seconds - self._clock()))
