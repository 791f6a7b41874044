"""What happens in a host, as events that any number of readers follow.

Each reader has a bounded queue; one that stays behind loses the oldest and is told how many. Telling never waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Literal, TypeAlias

from msgspec import Struct

__all__ = [
    "Acted",
    "Asked",
    "CatalogChanged",
    "Event",
    "Events",
    "Follower",
    "Inspected",
    "Missed",
    "Reloaded",
    "ServerState",
    "ServerStateChanged",
]

#: Where a server is in its life; ``host/supervision/supervisor.py`` draws the moves.
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
    """A server's state changed, and why."""

    server: str
    state: ServerState
    reason: str | None = None


class CatalogChanged(Struct, frozen=True, tag="catalog"):
    """What the servers offer together changed; only kinds that differ are named."""

    kinds: tuple[str, ...]
    counter: int


class Asked(Struct, frozen=True, tag="asked"):
    """Somebody was asked for consent, and what came of it."""

    server: str
    name: str
    allowed: bool | None
    by: str | None = None


class Acted(Struct, frozen=True, tag="acted"):
    """Something was done, or refused."""

    server: str
    name: str
    kind: str
    outcome: str
    seconds: float


class Inspected(Struct, frozen=True, tag="inspected"):
    """Something about a definition was noticed before anybody could use it."""

    server: str
    #: ``tool``, ``prompt``, ``resource``, ``template`` or ``instructions``.
    kind: str
    name: str
    #: ``new``, ``renamed``, ``changed``, ``returned``, ``gone``; ``flagged`` or ``hidden`` by the scan; ``unlocked``
    #: for what a lock file does not have; ``closed`` if pins cannot be kept, so that nothing is served.
    what: str
    reason: str


class Reloaded(Struct, frozen=True, tag="reloaded"):
    """Configuration and policies were read again; all of it counts now, or nothing does."""

    #: Whether other rules hold now than before.
    policy: bool = False
    #: Why all of it stayed as it was; None if it was taken.
    problem: str | None = None


class Missed(Struct, frozen=True, tag="missed"):
    """A reader stayed behind: so many events are lost to it."""

    count: int


Event: TypeAlias = ServerStateChanged | CatalogChanged | Asked | Acted | Inspected | Reloaded | Missed

_MOST = 1024


class Events:
    """Brings each event to everyone who follows."""

    def __init__(self) -> None:
        """Start with nobody following."""
        self._followers: set[Follower] = set()

    def tell(self, event: Event) -> None:
        """Tell all followers."""
        for follower in self._followers:
            follower.take(event)

    def follow(self) -> Follower:
        """Follow from now on; ``async for`` over it, and close it."""
        follower = Follower(self._followers.discard)
        self._followers.add(follower)
        return follower

    def end(self) -> None:
        """End all followers, after what they have not read yet."""
        for follower in tuple(self._followers):
            follower.end()


class Follower:
    """One reader of events."""

    def __init__(self, on_close: Any) -> None:
        """Start with nothing to read."""
        self._waiting: deque[Event] = deque()
        self._lost = 0
        self._ended = False
        self._wake: asyncio.Future[None] | None = None
        self._on_close = on_close

    def take(self, event: Event) -> None:
        """Queue an event."""
        if len(self._waiting) >= _MOST:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(event)
        self._rouse()

    def end(self) -> None:
        """Let the reader end once it has read all."""
        self._ended = True
        self._rouse()

    def close(self) -> None:
        """Follow no more."""
        self._on_close(self)
        self.end()

    def __aiter__(self) -> Follower:
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
            return Missed(lost)
        return self._waiting.popleft()

    async def __aenter__(self) -> Follower:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
