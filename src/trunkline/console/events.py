"""Events for the pages of the console; every open page gets all of them.

Publishing never blocks. The queue of a page that falls behind is replaced by one ``missed`` event; the page then loads
everything again, as after a reconnect. So events need neither ids nor replay.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["ConsoleEvents", "PageEvents"]

_MOST = 2000  # Queued events per page; a page with more has stopped reading.


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
        event = {"type": type, **members}
        for page in self._pages:
            page.put(event)

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
        self._events: deque[dict[str, Any]] = deque()
        self._arrived = asyncio.Event()
        self._on_close = on_close

    def put(self, event: dict[str, Any]) -> None:
        """Queue an event; if the queue is full, replace it by ``missed``."""
        if len(self._events) >= _MOST:
            self._events.clear()
            event = {"type": "missed"}
        self._events.append(event)
        self._arrived.set()

    def __aiter__(self) -> PageEvents:
        return self

    async def __anext__(self) -> dict[str, Any]:
        while not self._events:
            self._arrived.clear()
            await self._arrived.wait()
        return self._events.popleft()

    async def aclose(self) -> None:
        """Unsubscribe."""
        self._on_close(self)
