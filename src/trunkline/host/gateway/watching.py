"""Subscriptions through the gateway: the resources of upstream servers that clients of the gateway are subscribed to.

The complete set of watched resources is passed again whenever a subscriber comes or goes, so there are no counters that
could leak. One task subscribes to each server; it is restarted when the set changes or the server is lost. Each change
goes to the gateway's hub under its gateway URI. For a session with dedicated connections the subscription is made on
those: the changes that its calls make happen in that process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, TypeAlias

from trunkline.client.client import Client
from trunkline.errors import MissingCapability, TrunklineError
from trunkline.host.catalog.names import outer_uri
from trunkline.host.passing.lanes import Needs, prefers_handshake
from trunkline.host.session import HostSession
from trunkline.host.supervision.upstream import Upstream
from trunkline.server.subscriptions import Hub, Sink

__all__ = ["Ear", "GatewayHub", "Watches", "Wish"]

log = logging.getLogger("trunkline.host")
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0


class GatewayHub(Hub):
    """Delivers changes to the gateway's clients, and reports when one leaves."""

    __slots__ = ("_on_leave",)

    def __init__(self, on_leave: Callable[[Sink], None]) -> None:
        """Start empty; ``on_leave`` is called when a sink is detached."""
        super().__init__()
        self._on_leave = on_leave

    def detach(self, sink: Sink) -> None:
        """Detach a sink, and report it."""
        known = sink in self._sinks
        super().detach(sink)
        if known:
            self._on_leave(sink)


class Ear(NamedTuple):
    """The session on whose connection a subscription is made."""

    session: HostSession
    needs: Needs
    #: Whether it is the session of a handshake client.
    shakes_hands: bool = False


class Wish(NamedTuple):
    """A resource to watch: the server, its own URI, and the owner of the connection; None for the shared one."""

    server: str
    uri: str
    ear: Ear | None = None


#: A server, and the owner of the connection.
_Place: TypeAlias = tuple[str, Ear | None]


class Watches:
    """The subscriptions at upstream servers."""

    def __init__(self, upstreams: Callable[[], Mapping[str, Upstream]], tell: Callable[[str], None]) -> None:
        """Watch servers of ``upstreams``; ``tell`` is called with the gateway URI of each changed resource."""
        self._upstreams = upstreams
        self._tell = tell
        self._watched: dict[_Place, tuple[frozenset[str], asyncio.Task[None]]] = {}
        #: Set while the subscription at a server is active.
        self._heard: dict[_Place, asyncio.Event] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def follow(self, wishes: Iterable[Wish]) -> None:
        """Replace the set of watched resources."""
        by_place: dict[_Place, set[str]] = {}
        for wish in wishes:
            by_place.setdefault((wish.server, wish.ear), set()).add(wish.uri)
        for place in [place for place in self._watched if place not in by_place]:
            self._watched.pop(place)[1].cancel()
            self._heard.pop(place, None)
        for place, wants in by_place.items():
            uris, before = self._watched.get(place, (frozenset(), None))
            if uris != wants:
                self._begin(place, frozenset(wants), before)

    def _begin(self, place: _Place, uris: frozenset[str], before: asyncio.Task[None] | None) -> None:
        """Subscribe at a server; the previous task runs until the new one is active, so that no change is missed."""
        heard = self._heard[place] = asyncio.Event()
        if before is not None:
            self._leaving.add(before)
            before.add_done_callback(self._leaving.discard)
        task = asyncio.get_running_loop().create_task(self._watch(place, uris, heard, before))
        self._watched[place] = (uris, task)
        if before is not None:
            task.add_done_callback(lambda done: before.cancel())

    async def settled(self, wishes: Iterable[Wish], seconds: float) -> None:
        """Wait until the subscriptions are active, for a bounded time: a failing server must not block the client."""
        places = {(wish.server, wish.ear) for wish in wishes}
        waits = [heard.wait() for place in places if (heard := self._heard.get(place)) is not None]
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*waits)
        except TimeoutError:
            log.debug("not all subscriptions at %s are active yet", [server for server, _ in places])

    async def aclose(self) -> None:
        """Cancel all subscriptions."""
        tasks = [*(task for _, task in self._watched.values()), *self._leaving]
        self._watched = {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _watch(
        self, place: _Place, uris: frozenset[str], heard: asyncio.Event, before: asyncio.Task[None] | None
    ) -> None:
        server, ear = place
        pause = _FIRST_PAUSE
        while (upstream := self._upstreams().get(server)) is not None:
            try:
                client, kept = await _client(upstream, ear)
                with upstream.using(), kept:
                    async with client.listen(uris=sorted(uris)) as changes:
                        heard.set()
                        if before is not None:
                            before.cancel()
                        async for change in changes:
                            pause = _FIRST_PAUSE
                            for uri in uris if change.uri is None else (change.uri,):
                                self._tell(outer_uri(server, uri))
            except MissingCapability as error:
                # It may still send notifications: the host forwards those without a subscription, too.
                log.debug("no subscription at %s: %s", server, error)
                heard.set()
                return
            except TrunklineError as error:
                log.debug("no subscription at %s: %s", server, error)
            heard.clear()
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            # Changes during the gap are not known, so every watched resource is reported as changed.
            for uri in uris:
                self._tell(outer_uri(server, uri))


async def _client(upstream: Upstream, ear: Ear | None) -> tuple[Client, AbstractContextManager[object]]:
    """Return the client to subscribe on, and a context manager that keeps it open meanwhile."""
    if ear is None:
        return await upstream.reach(), nullcontext()
    roots, needs = upstream.entry.settings.roots, ear.needs.within(upstream.entry.settings.asks)
    own = None if roots is None else lambda: list(roots)
    if ear.shakes_hands and prefers_handshake(upstream, needs):
        shaken = await ear.session.lanes.find_shaken(upstream, needs, roots=own)
        if shaken is not None:
            return await shaken.open(), shaken.kept()
        if upstream.entry.settings.share != "session" and not needs.logs:
            return await upstream.reach(), nullcontext()
    lane = ear.session.lanes.find(upstream, needs, roots=own)
    return await lane.open(), lane.kept()
