"""Events of a host, and their delivery to any number of subscribers.

Each subscriber has a bounded queue; one that falls behind loses the oldest events and receives their number. Publishing
never blocks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Literal, TypeAlias

from msgspec import Struct

__all__ = [
    "ActCompleted",
    "CatalogChanged",
    "ConsentAsked",
    "DefinitionInspected",
    "Event",
    "EventBus",
    "EventSubscription",
    "EventsMissed",
    "Reloaded",
    "ServerState",
    "ServerStateChanged",
]

#: The state of a server; ``upstreams/supervision/state.py`` draws the transitions.
ServerState: TypeAlias = Literal[
    "disabled",
    "misconfigured",
    "unapproved",
    "known",
    "starting",
    "ready",
    "partial",
    "needs login",
    "waiting",
    "broken",
    "stopped",
]


class ServerStateChanged(Struct, frozen=True, tag="server"):
    """The state of a server changed, with the reason."""

    server: str
    state: ServerState
    reason: str | None = None


class CatalogChanged(Struct, frozen=True, tag="catalog"):
    """The catalog changed; only the kinds of lists that differ are named."""

    kinds: tuple[str, ...]
    counter: int


class ConsentAsked(Struct, frozen=True, tag="asked"):
    """Approval was requested, with the outcome."""

    server: str
    name: str
    allowed: bool | None
    by: str | None = None


class ActCompleted(Struct, frozen=True, tag="acted"):
    """An operation was performed or denied."""

    server: str
    name: str
    kind: str
    outcome: str
    seconds: float
    #: The size of the raw result in bytes; None without one.
    bytes: int | None = None


class DefinitionInspected(Struct, frozen=True, tag="inspected"):
    """The inspection of a definition found something, before it could be used."""

    server: str
    #: ``tool``, ``prompt``, ``resource``, ``template`` or ``instructions``.
    kind: str
    name: str
    #: ``new``, ``renamed``, ``changed``, ``returned``, ``gone``; ``flagged`` or ``hidden`` by the scan; ``unlocked``
    #: if the lock file does not list it; ``closed`` if pins cannot be stored, so that nothing is served.
    what: str
    reason: str


class Reloaded(Struct, frozen=True, tag="reloaded"):
    """Configuration and policies were reloaded; either all of it took effect, or nothing did."""

    #: Whether the rules differ from before.
    policy: bool = False
    #: Why the reload failed and nothing changed; None if it succeeded.
    problem: str | None = None


class EventsMissed(Struct, frozen=True, tag="missed"):
    """A subscriber fell behind and lost this many events."""

    count: int


Event: TypeAlias = (
    ServerStateChanged | CatalogChanged | ConsentAsked | ActCompleted | DefinitionInspected | Reloaded | EventsMissed
)

_MOST = 1024  # A subscriber that is this far behind has stopped reading.


class EventBus:
    """Delivers each event to all subscribers."""

    def __init__(self) -> None:
        """Start without subscribers."""
        #: The open subscriptions; without one, an event need not be created.
        self.subscriptions: set[EventSubscription] = set()

    def publish(self, event: Event) -> None:
        """Publish an event to all subscribers."""
        for follower in self.subscriptions:
            follower.put(event)

    def subscribe(self) -> EventSubscription:
        """Subscribe from now on; iterate with ``async for``, and close it."""
        follower = EventSubscription(self.subscriptions.discard)
        self.subscriptions.add(follower)
        return follower

    def end(self) -> None:
        """End all subscriptions, after their queued events."""
        for follower in tuple(self.subscriptions):
            follower.end()


class EventSubscription:
    """One subscriber's queue of events."""

    def __init__(self, on_close: Any) -> None:
        """Start with an empty queue."""
        self._waiting: deque[Event] = deque()
        self._lost = 0
        self._ended = False
        self._wake: asyncio.Future[None] | None = None
        self._on_close = on_close

    def put(self, event: Event) -> None:
        """Queue an event."""
        if len(self._waiting) >= _MOST:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(event)
        self._wake_reader()

    def end(self) -> None:
        """End the iteration once the queue is empty."""
        self._ended = True
        self._wake_reader()

    def close(self) -> None:
        """Unsubscribe."""
        self._on_close(self)
        self.end()

    def __aiter__(self) -> EventSubscription:
        return self

    async def __anext__(self) -> Event:
        """Wait for the next event."""
        while not self._waiting:
            if self._ended:
                self._on_close(self)
                raise StopAsyncIteration
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        if self._lost:
            lost, self._lost = self._lost, 0
            return EventsMissed(lost)
        return self._waiting.popleft()

    async def __aenter__(self) -> EventSubscription:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def _wake_reader(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
