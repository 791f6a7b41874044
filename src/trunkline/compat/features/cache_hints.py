"""How long clients may keep what a server sent, as FastMCP's constructor and the official SDK say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from msgspec.structs import replace

__all__ = ["CACHEABLE_METHODS", "CacheHint", "CacheScope", "CacheableMethod", "build_cache_hints", "hinted"]

CacheScope = Literal["public", "private"]
CacheableMethod = Literal[
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "server/discover",
    "tools/list",
]
CACHEABLE_METHODS: frozenset[str] = frozenset(CacheableMethod.__args__)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class CacheHint:
    """How long a result may be kept, and whether it may be shared between callers."""

    ttl_ms: int = 0
    scope: CacheScope = "private"


def build_cache_hints(cache_ttl: int | None, cache_scope: CacheScope | None) -> dict[str, CacheHint] | None:
    """Return the hint of each method, or None if there is none.

    Raises:
        ValueError: the time is not positive, or there is a scope without a time.
    """
    if cache_ttl is None:
        if cache_scope is not None:
            raise ValueError("cache_scope requires cache_ttl: without a time nothing is kept")
        return None
    if cache_ttl <= 0:
        raise ValueError(f"cache_ttl must be a positive integer, got {cache_ttl}")
    return dict.fromkeys(sorted(CACHEABLE_METHODS), CacheHint(cache_ttl * 1000, cache_scope or "private"))


def hinted(server: Any, method: str, result: Any) -> Any:
    """Return a result with the server's hint, unless it has one of its own."""
    hint = (server.cache_hints or {}).get(method)
    if hint is None or getattr(result, "ttl_ms", None):
        return result
    return replace(result, ttl_ms=hint.ttl_ms, cache_scope=hint.scope)
