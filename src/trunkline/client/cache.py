"""Results that a server allowed to be kept, for as long as it said they are fresh.

A result is kept under its method and the one parameter that matters (a cursor or a URI). Public and private results are
kept alike, since one client is one authorization context. A change notice makes what it concerns stale at once, also
what is still on its way: an answer asked for before the notice is not kept. Time comes in as an argument.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from msgspec import Struct

__all__ = ["STALE", "ResponseCache"]

#: The notices, and the methods whose kept results each of them makes stale.
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
        """Keep at most so many results; none at all with a limit of nought."""
        self._limit = limit
        self._entries: dict[tuple[str, str | None], _Entry] = {}
        self._epochs: dict[str, int] = {}

    def get(self, method: str, key: str | None, *, now: float) -> Any:
        """Give a result that is still fresh, or None."""
        entry = self._entries.get((method, key))
        if entry is None:
            return None
        if now >= entry.until:
            del self._entries[method, key]
            return None
        return entry.result

    def epoch(self, method: str) -> int:
        """Say how often the results of a method have become stale; ``put`` wants what it was when asked."""
        return self._epochs.get(method, 0)

    def put(self, method: str, key: str | None, result: Any, *, epoch: int, now: float) -> None:
        """Keep a result for the time it says, unless it became stale on its way."""
        ttl_ms = getattr(result, "ttl_ms", None)
        if not ttl_ms or ttl_ms < 0 or self._limit <= 0 or epoch != self.epoch(method):
            return
        self._entries.pop((method, key), None)
        if len(self._entries) >= self._limit:
            del self._entries[next(iter(self._entries))]
        self._entries[method, key] = _Entry(result, now + ttl_ms / 1000)

    def forget(self, method: str, key: str | None = None) -> None:
        """Make the results of a method stale: one of them, or all."""
        self._epochs[method] = self.epoch(method) + 1
        stale = [kept for kept in self._entries if kept[0] == method and key in (None, kept[1])]
        for kept in stale:
            del self._entries[kept]

    def notice(self, notification: str, uri: str | None = None) -> None:
        """Make stale what a notice concerns."""
        for method in STALE.get(notification, ()):
            self.forget(method, uri)

    def has(self, method: str) -> bool:
        """Tell whether any result of a method is kept."""
        return any(kept[0] == method for kept in self._entries)

    def clear(self) -> None:
        """Forget everything: the server was started anew."""
        self._entries.clear()
        for method in {method for methods in STALE.values() for method in methods}:
            self._epochs[method] = self.epoch(method) + 1

    def __len__(self) -> int:
        """Count the results kept, stale ones not yet found out included."""
        return len(self._entries)
