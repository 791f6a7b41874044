"""How long to wait before trying again, and when to stop trying: rules without a clock or chance of their own.

Three rules. A server that ended is started again after a wait that grows and is spread over its whole length, so that
many servers do not come back at the same moment. One that ends again and again trips a breaker. A stream of changes
that closes is opened again a few times, and then only every few hours: nothing but changes is missed without it.
"""

from __future__ import annotations

from collections import deque

__all__ = ["HALF_OPEN_SECONDS", "STEADY_SECONDS", "Backoff", "Breaker", "Reopening"]

#: Whoever lived for so long did not end because of how it was started.
STEADY_SECONDS = 60.0
#: So long after the breaker tripped one more start is tried.
HALF_OPEN_SECONDS = 300.0

_FIRST = 0.25
_LONGEST = 30.0
# Beyond this power of two every wait is the longest.
_MOST_DOUBLINGS = 16


class Backoff:
    """The waits between tries: up to a quarter of a second, then up to twice as long each time."""

    __slots__ = ("_first", "_longest", "_tries")

    def __init__(self, first: float = _FIRST, longest: float = _LONGEST) -> None:
        """Say how long the first wait may be, and how long any."""
        self._first = first
        self._longest = longest
        self._tries = 0

    def next(self, spread: float) -> float:
        """Give the next wait; ``spread``, from 0 to 1, says how much of its longest length."""
        longest = min(self._first * (1 << min(self._tries, _MOST_DOUBLINGS)), self._longest)
        self._tries += 1
        return longest * spread

    def reset(self) -> None:
        """Begin again with the first wait."""
        self._tries = 0


class Breaker:
    """Counts crashes, and says when there were too many in a short time."""

    __slots__ = ("_crashes", "_on_trial", "_seconds", "_times")

    def __init__(self, crashes: int, seconds: float) -> None:
        """Trip at so many crashes within so many seconds."""
        self._crashes = max(1, crashes)
        self._seconds = seconds
        self._times: deque[float] = deque(maxlen=self._crashes)
        self._on_trial = False

    def failed(self, now: float) -> bool:
        """Count a crash; tell whether that was one too many."""
        self._times.append(now)
        while now - self._times[0] > self._seconds:
            self._times.popleft()
        return self._on_trial or len(self._times) >= self._crashes

    def try_once(self) -> None:
        """Let one start be tried: if that one crashes too, it was one too many at once."""
        self._times.clear()
        self._on_trial = True

    def reset(self) -> None:
        """Forget all crashes: it ran well, or somebody says that it will."""
        self._times.clear()
        self._on_trial = False


class Reopening:
    """When a stream of changes that closed is opened again.

    One that closes within ten seconds is opened again three times; one that lived longer five times an hour. Whatever
    closes beyond that is opened again after six hours.
    """

    __slots__ = ("_closed_at", "_quickly")

    _QUICK_SECONDS = 10.0
    _QUICK_TRIES = 3
    _HOUR = 3600.0
    _TRIES_AN_HOUR = 5
    _LATER = 6 * 3600.0

    def __init__(self) -> None:
        """Begin with a stream that never closed."""
        self._quickly = 0
        self._closed_at: deque[float] = deque(maxlen=self._TRIES_AN_HOUR + 1)

    def closed(self, *, lived: float, now: float) -> float:
        """Note that the stream closed after so many seconds; give the seconds until it may be opened again."""
        if lived < self._QUICK_SECONDS:
            self._quickly += 1
            return self._LATER if self._quickly > self._QUICK_TRIES else float(2 ** (self._quickly - 1))
        self._quickly = 0
        self._closed_at.append(now)
        lately = sum(now - at < self._HOUR for at in self._closed_at)
        return self._LATER if lately > self._TRIES_AN_HOUR else 1.0
