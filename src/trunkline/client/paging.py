"""Collects all pages of a list, and stops at servers whose pages never end.

It knows neither methods nor caches: the caller passes a function that fetches one page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from trunkline.errors import RemoteProtocolError

__all__ = ["all_pages"]


async def all_pages(fetch: Callable[[str | None], Awaitable[Any]], member: str, *, limit: int) -> list[Any]:
    """Fetch page after page until one has no cursor, and concatenate their lists, found under ``member``.

    Raises:
        RemoteProtocolError: a cursor was repeated, or there are more pages than the limit.
    """
    found: list[Any] = []
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(limit):
        page = await fetch(cursor)
        found += getattr(page, member)
        cursor = page.next_cursor
        # Only absence ends a list: the empty string is a cursor like any other.
        if cursor is None:
            return found
        if cursor in seen:
            raise RemoteProtocolError(f"The server repeated the cursor {cursor!r}: its list would never end.")
        seen.add(cursor)
    raise RemoteProtocolError(f"The server's list has more than {limit} pages, which is the limit.")
