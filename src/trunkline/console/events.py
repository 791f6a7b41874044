"""Events for the pages of the console; every open page gets all of them.

Publishing never blocks. The queue of a page that falls behind is replaced by one ``missed`` event; the page then loads
everything again, as after a reconnect. So events need neither ids nor replay.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

__all__ = ["ConsoleEvents", "PageEvents"]

_MOST = 2000  # Queued events per page; a page with more has stopped reading.
_MOST_BYTES = 64 * 1024 * 1024  # Bytes of the queued events of a page: as much as one result of a server may have.


class ConsoleEvents:
    """Delivers events to all open pages."""

    def __init__(self) -> None:
        """Start without pages."""
        self._pages: set[PageEvents] = set()

    @property
    def watched(self) -> bool:
        """Whether a page is open; otherwise there is no need to create events."""
        return bool(self._pages)

    def publish(self, type: str, **members: Any) -> None:
        """Send an event to all pages: a JSON object with the type and the given members."""
        if not self._pages:
            return
        event = {"type": type, **members}
        size = len(msgspec.json.encode(event))
        for page in self._pages:
            page.put(event, size)

    def stream(self) -> PageEvents:
        """Subscribe a page: ``hello``, then all events from now on; the caller closes the stream."""
        page = PageEvents(self._pages.discard)
        self._pages.add(page)
        page.put({"type": "hello"})
        return page


class PageEvents:
    """The queued events of one page, as an async iterator."""

    def __init__(self, on_close: Callable[[PageEvents], None]) -> None:
        """Start with an empty queue."""
        self._events: deque[tuple[dict[str, Any], int]] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._on_close = on_close

    def put(self, event: dict[str, Any], size: int = 0) -> None:
        """Queue an event of so many bytes; if the queue is full, replace it by ``missed``."""
        if len(self._events) >= _MOST or (self._events and self._bytes + size > _MOST_BYTES):
            self._events.clear()
            self._bytes = size = 0
            event = {"type": "missed"}
        self._events.append((event, size))
        self._bytes += size
        self._arrived.set()

    def __aiter__(self) -> PageEvents:
        return self

    async def __anext__(self) -> dict[str, Any]:
        while not self._events:
            self._arrived.clear()
            await self._arrived.wait()
        event, size = self._events.popleft()
        self._bytes -= size
        return event

    async def aclose(self) -> None:
        """Unsubscribe."""
        self._on_close(self)
