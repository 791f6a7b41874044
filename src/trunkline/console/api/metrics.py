"""The metrics part of the API: calls, errors, latency and tokens of each server over time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from trunkline.console.console import Console, ConsolePart
from trunkline.console.metrics import LONGEST_WINDOW, Metrics
from trunkline.console.routing import ApiError, ApiRequest, Route
from trunkline.host.events import ActCompleted, EventSubscription

__all__ = ["MetricsPart"]

_WINDOW = "3600"


class MetricsPart(ConsolePart):
    """Counts the calls of the host while the console is open."""

    def __init__(self, console: Console) -> None:
        """Start without calls."""
        super().__init__(console)
        self.metrics: Metrics = Metrics()
        self._subscription: EventSubscription | None = None
        self._task: asyncio.Task[None] | None = None

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API."""
        return (Route("GET", "/metrics", self._report),)

    async def start(self) -> None:
        """Subscribe to the events of the host."""
        self._subscription = self.console.host.events()
        self._task = asyncio.get_running_loop().create_task(self._count(self._subscription))

    async def aclose(self) -> None:
        """Unsubscribe."""
        if self._subscription is not None:
            self._subscription.close()
        if self._task is not None:
            # The end of the subscription ends the task.
            await asyncio.wait([self._task])

    async def _count(self, events: EventSubscription) -> None:
        async for event in events:
            if isinstance(event, ActCompleted):
                self.metrics.add(event)

    async def _report(self, request: ApiRequest) -> dict[str, Any]:
        window = request.query.get("window", _WINDOW)
        if not window.isdecimal() or not 0 < int(window) <= LONGEST_WINDOW:
            raise ApiError(400, "invalid_request", f"window must be a number of seconds, up to {LONGEST_WINDOW}.")
        core = self.console.core
        report = self.metrics.report(int(window), core.supervisor.upstreams)
        sizes = Counter[str]()
        for tool in core.catalog.tools.values():
            sizes[tool.server] += tool.tokens
        for server in report["servers"]:
            # The tokens of a server's definitions, which are part of every request to a model.
            server["totals"]["catalog_tokens"] = sizes[server["name"]]
        return report
