"""All pages of a list as one list, against servers whose pages never end.

It knows neither methods nor caches: whoever calls gives a function that fetches one page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from trunkline.errors import RemoteProtocolError

__all__ = ["all_pages"]

T = TypeVar("T")


async def all_pages(
    fetch: Callable[[str | None], Awaitable[Any]], items: Callable[[Any], list[T]], *, limit: int
) -> list[T]:
    """Fetch page after page until one has no cursor, and join their items.

    Raises:
        RemoteProtocolError: a cursor came twice, or there are more pages than the limit.
    """
    found: list[T] = []
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(limit):
        page = await fetch(cursor)
        found += items(page)
        cursor = page.next_cursor
        # Only absence ends a list: the empty text is a cursor like any other.
        if cursor is None:
            return found
        if cursor in seen:
            raise RemoteProtocolError(f"The server gave the cursor {cursor!r} twice: its list would never end.")
        seen.add(cursor)
    raise RemoteProtocolError(f"The server's list has more than {limit} pages, which is the limit.")
