"""Results that the server allowed to be cached, for as long as it declared them fresh.

A result is stored under its method and the one parameter that matters (a cursor or a URI). Public and private results
are stored alike, since one client is one authorization context. A change notification invalidates what it concerns at
once, including results still on their way: an answer requested before the notification is not stored. Time comes in as
an argument.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from msgspec import Struct

__all__ = ["STALE", "ResponseCache"]

#: By notification: the methods whose cached results it invalidates.
STALE = MappingProxyType(
    {
        "notifications/tools/list_changed": ("tools/list",),
        "notifications/prompts/list_changed": ("prompts/list",),
        "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
        "notifications/resources/updated": ("resources/read",),
    }
)


class _Entry(Struct):
    result: Any
    until: float


class ResponseCache:
    """The fresh results of one client, oldest first."""

    __slots__ = ("_entries", "_epochs", "_limit")

    def __init__(self, limit: int) -> None:
        """Store at most ``limit`` results; a limit of 0 disables the cache."""
        self._limit = limit
        self._entries: dict[tuple[str, str | None], _Entry] = {}
        self._epochs: dict[str, int] = {}

    def get(self, method: str, key: str | None, *, now: float) -> Any:
        """Return a result that is still fresh, or None."""
        entry = self._entries.get((method, key))
        if entry is None:
            return None
        if now >= entry.until:
            del self._entries[method, key]
            return None
        return entry.result

    def epoch(self, method: str) -> int:
        """Return how often the results of a method were invalidated; ``put`` needs the value before the request."""
        return self._epochs.get(method, 0)

    def put(self, method: str, key: str | None, result: Any, *, epoch: int, now: float) -> None:
        """Store a result for its declared lifetime, unless it was invalidated on its way."""
        ttl_ms = getattr(result, "ttl_ms", None)
        if not ttl_ms or ttl_ms < 0 or self._limit <= 0 or epoch != self.epoch(method):
            return
        self._entries.pop((method, key), None)
        if len(self._entries) >= self._limit:
            del self._entries[next(iter(self._entries))]
        self._entries[method, key] = _Entry(result, now + ttl_ms / 1000)

    def forget(self, method: str, key: str | None = None) -> None:
        """Invalidate the results of a method: the one under ``key``, or all."""
        self._epochs[method] = self.epoch(method) + 1
        stale = [kept for kept in self._entries if kept[0] == method and key in (None, kept[1])]
        for kept in stale:
            del self._entries[kept]

    def notice(self, notification: str, uri: str | None = None) -> None:
        """Invalidate the results that a notification concerns."""
        for method in STALE.get(notification, ()):
            self.forget(method, uri)

    def has(self, method: str) -> bool:
        """Return True if any result of the method is cached."""
        return any(kept[0] == method for kept in self._entries)

    def clear(self) -> None:
        """Invalidate everything: the server was restarted."""
        self._entries.clear()
        for method in {method for methods in STALE.values() for method in methods}:
            self._epochs[method] = self.epoch(method) + 1

    def __len__(self) -> int:
        """Return the number of stored results, including expired ones not yet evicted."""
        return len(self._entries)
