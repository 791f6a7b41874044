"""How long to wait before a retry, and when to stop retrying; clock and randomness come in as arguments.

Three rules. A server that exited is restarted after a growing wait with full jitter, so that many servers do not come
back at the same moment. One that keeps crashing trips a circuit breaker. A change stream that closes is reopened a few
times, and then only every few hours: without it only change notifications are missed.
"""

from __future__ import annotations

from collections import deque

__all__ = ["HALF_OPEN_SECONDS", "STEADY_SECONDS", "Backoff", "Breaker", "Reopening"]

#: A server that ran this long did not exit because of how it was started.
STEADY_SECONDS = 60.0
#: How long after the breaker tripped one more start is tried.
HALF_OPEN_SECONDS = 300.0

_FIRST = 0.25
_LONGEST = 30.0
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
