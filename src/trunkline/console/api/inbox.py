"""The routes of the inbox: pending questions, and changed definitions that need a review."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from trunkline.console.console import Console, ConsolePart
from trunkline.console.pin_reviews import PinReviews
from trunkline.console.routing import ApiError, ApiRequest, Route
from trunkline.errors import ConfigError
from trunkline.host.events import CatalogChanged, DefinitionInspected, EventsMissed, Reloaded

__all__ = ["InboxPart"]

log = logging.getLogger("trunkline.http")


class InboxPart(ConsolePart):
    """Lists the open items and accepts answers."""

    def __init__(self, console: Console) -> None:
        """Create the part; ``start`` looks for changed definitions."""
        super().__init__(console)
        self._pins = PinReviews(console)
        self._task: asyncio.Task[None] | None = None
        self._due = False

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API."""
        return (
            Route("GET", "/inbox", self._list),
            Route("POST", "/inbox/{id}", self._answer),
            Route("POST", "/inbox/{id}/unblock", self._unblock),
        )

    def state(self) -> dict[str, Any]:
        """Return the open items, and the changed definitions that the user blocked."""
        return {"inbox": [*self.console.inbox.items(), *self._pins.items()], "blocked": self._pins.blocked()}

    async def start(self) -> None:
        """Check for changed definitions whenever the catalog changes."""
        self._refresh()
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def aclose(self) -> None:
        """Stop checking for changed definitions."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        async with self.console.host.events() as events:
            async for event in events:
                if isinstance(event, CatalogChanged | DefinitionInspected | EventsMissed | Reloaded) and not self._due:
                    # Events of one review arrive together.
                    self._due = True
                    asyncio.get_running_loop().call_soon(self._refresh)

    def _refresh(self) -> None:
        self._due = False
        try:
            self._pins.refresh()
        except ConfigError as error:
            log.warning("changed definitions cannot be shown: %s", error)

    async def _list(self, request: ApiRequest) -> Any:
        return self.state()

    async def _answer(self, request: ApiRequest) -> Any:
        id = request.params["id"]
        if not self._pins.answer(id, request.body, window=request.window):
            self.console.inbox.answer(id, request.body, window=request.window)
        return {}

    async def _unblock(self, request: ApiRequest) -> Any:
        if not self._pins.unblock(request.params["id"]):
            raise ApiError(404, "not_found", "This change is not blocked; it was accepted, or has changed again.")
        return {}
