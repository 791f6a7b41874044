"""The state that a page loads first, and the stream of events after that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from trunkline import __version__
from trunkline.console.console import ConsolePart
from trunkline.console.routing import ApiRequest, EventStream, Route
from trunkline.host.assembly import policy_file
from trunkline.host.events import CatalogChanged, EventsMissed, Reloaded

__all__ = ["StatePart"]


class StatePart(ConsolePart):
    """The state of the whole console, and its events."""

    _task: asyncio.Task[None] | None = None

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API."""
        return (Route("GET", "/state", self._state), Route("GET", "/events", self._events))

    def state(self) -> dict[str, Any]:
        """Return the version, and the files in use."""
        host, rules = self.console.host, policy_file(self.console.assembly.options)
        return {
            "version": __version__,
            "configuration": {"files": [str(file.path) for file in host.configuration.files]},
            "policy": {"file": None if rules is None else str(rules)},
        }

    async def start(self) -> None:
        """Subscribe to the events of the host."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def aclose(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _state(self, request: ApiRequest) -> Any:
        return self.console.state()

    async def _events(self, request: ApiRequest) -> EventStream:
        return EventStream(self.console.events.stream())

    async def _follow(self) -> None:
        """Publish reloads and other changes of the whole host."""
        events = self.console.events
        async with self.console.host.events() as changes:
            async for event in changes:
                if isinstance(event, CatalogChanged):
                    events.publish("catalog", counter=event.counter, counts=self._counts())
                elif isinstance(event, Reloaded):
                    events.publish("reloaded", problem=event.problem)
                    if event.policy:
                        events.publish("policy")
                elif isinstance(event, EventsMissed):
                    # Any of them may have been among the missed ones.
                    events.publish("catalog", counter=self.console.core.catalog.counter, counts=self._counts())
                    events.publish("policy")

    def _counts(self) -> dict[str, int]:
        from trunkline.console.api.catalog import CatalogPart

        return self.console.part(CatalogPart).counts()
