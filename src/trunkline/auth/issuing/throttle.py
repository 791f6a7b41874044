"""A limit on how often something may happen, counted in fixed windows, in this process, and bounded itself."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["Throttle"]

_REMEMBERED = 4096


class Throttle:
    """Counts what happens under a key, and says when it is too often."""

    __slots__ = ("_clock", "_counts", "_most", "_seconds", "_window")

    def __init__(self, most: int, seconds: float, *, clock: Callable[[], float]) -> None:
        """Allow so many in so many seconds."""
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._window = -1
        self._counts: dict[str, int] = {}

    def count(self, key: str) -> int:
        """Count once more; give the seconds to wait if that is too often, else 0."""
        spent = self._current().get(key, 0) + 1
        if len(self._counts) < _REMEMBERED or key in self._counts:
            self._counts[key] = spent
        return self._wait() if spent > self._most or key not in self._counts else 0

    def waits(self, key: str) -> int:
        """Give the seconds to wait before it may happen again, without counting."""
        return self._wait() if self._current().get(key, 0) >= self._most else 0

    def forgive(self, key: str) -> None:
        """Forget what was counted under a key."""
        self._counts.pop(key, None)

    def _current(self) -> dict[str, int]:
        window = int(self._clock() // self._seconds)
        if window != self._window:
            self._window = window
            self._counts.clear()
        return self._counts

    def _wait(self) -> int:
        """Give the rest of the window, in whole seconds."""
        return max(1, math.ceil((self._window + 1) * self._seconds - self._clock()))
