"""Subscriptions through the gateway: the resources of upstream servers that clients of the gateway are subscribed to.

The complete set of watched resources is passed again whenever a subscriber comes or goes, so there are no counters that
could leak. One task subscribes to each server; it is restarted when the set changes or the server is lost. Each change
goes to the gateway's hub under its gateway URI. For a session with dedicated connections the subscription is made on
those: the changes that its calls make happen in that process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, TypeAlias

from trunkline.client.client import Client
from trunkline.errors import MissingCapability, TrunklineError
from trunkline.host.core import HostCore
from trunkline.host.session import HostSession
from trunkline.host.upstreams.catalog.names import inner_uri, outer_uri
from trunkline.host.upstreams.routing.channels import ConnectionNeeds
from trunkline.host.upstreams.routing.connection_pool import prefers_handshake
from trunkline.host.upstreams.supervision.upstream import Upstream
from trunkline.protocol.caller import Caller
from trunkline.protocol.revisions import NEWEST, find_revision
from trunkline.server.subscriptions import ChangeHub, ChangeListener

__all__ = ["GatewayHub", "GatewaySubscriptions", "SubscriptionOwner", "UpstreamSubscriptions", "WatchedResource"]

log = logging.getLogger("trunkline.host")
_SUBSCRIBE_SECONDS = 5.0  # The client waits meanwhile; the subscription at the server may still succeed later.
_FIRST_PAUSE = 0.5  # Pause before a lost upstream subscription is renewed; it doubles each time.
_LONGEST_PAUSE = 60.0  # A server that comes back is subscribed to within a minute.


class GatewayHub(ChangeHub):
    """Delivers changes to the gateway's clients, and reports when one leaves."""

    __slots__ = ("_on_leave", "on_join")

    def __init__(self, on_leave: Callable[[ChangeListener], None]) -> None:
        """Start empty; ``on_leave`` is called when a sink is detached."""
        super().__init__()
        self._on_leave = on_leave
        #: Called when a listener is attached.
        self.on_join: Callable[[ChangeListener], None] = lambda listener: None

    def attach(self, listener: ChangeListener) -> None:
        """Attach a listener, and report it."""
        super().attach(listener)
        self.on_join(listener)

    def detach(self, sink: ChangeListener) -> None:
        """Detach a sink, and report it."""
        known = sink in self._listeners
        super().detach(sink)
        if known:
            self._on_leave(sink)


class SubscriptionOwner(NamedTuple):
    """The session on whose connection a subscription is made."""

    session: HostSession
    needs: ConnectionNeeds
    #: Whether it is the session of a handshake client.
    is_handshake: bool = False


class WatchedResource(NamedTuple):
    """A resource to watch: the server, its own URI, and the owner of the connection; None for the shared one."""

    server: str
    uri: str
    owner: SubscriptionOwner | None = None


#: A server, and the owner of the connection.
_WatchKey: TypeAlias = tuple[str, SubscriptionOwner | None]


class UpstreamSubscriptions:
    """The subscriptions at upstream servers."""

    def __init__(self, upstreams: Callable[[], Mapping[str, Upstream]], tell: Callable[[str], None]) -> None:
        """Watch servers of ``upstreams``; ``tell`` is called with the gateway URI of each changed resource."""
        self._upstreams = upstreams
        self._tell = tell
        self._watched: dict[_WatchKey, tuple[frozenset[str], asyncio.Task[None]]] = {}
        #: Set while the subscription at a server is active.
        self._active: dict[_WatchKey, asyncio.Event] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def follow(self, resources: Iterable[WatchedResource]) -> None:
        """Replace the set of watched resources."""
        by_key: dict[_WatchKey, set[str]] = {}
        for watched in resources:
            by_key.setdefault((watched.server, watched.owner), set()).add(watched.uri)
        for key in [key for key in self._watched if key not in by_key]:
            self._watched.pop(key)[1].cancel()
            self._active.pop(key, None)
        for key, wants in by_key.items():
            uris, before = self._watched.get(key, (frozenset(), None))
            if uris != wants:
                self._begin(key, frozenset(wants), before)

    def _begin(self, key: _WatchKey, uris: frozenset[str], before: asyncio.Task[None] | None) -> None:
        """Subscribe at a server; the previous task runs until the new one is active, so that no change is missed."""
        active = self._active[key] = asyncio.Event()
        if before is not None:
            self._leaving.add(before)
            before.add_done_callback(self._leaving.discard)
        task = asyncio.get_running_loop().create_task(self._watch(key, uris, active, before))
        self._watched[key] = (uris, task)
        if before is not None:
            task.add_done_callback(lambda done: before.cancel())

    async def wait_until_active(self, resources: Iterable[WatchedResource], seconds: float) -> None:
        """Wait until the subscriptions are active, for a bounded time: a failing server must not block the client."""
        keys = {(watched.server, watched.owner) for watched in resources}
        waits = [active.wait() for key in keys if (active := self._active.get(key)) is not None]
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*waits)
        except TimeoutError:
            log.debug("not all subscriptions at %s are active yet", [server for server, _ in keys])

    async def aclose(self) -> None:
        """Cancel all subscriptions."""
        tasks = [*(task for _, task in self._watched.values()), *self._leaving]
        self._watched = {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _watch(
        self, key: _WatchKey, uris: frozenset[str], active: asyncio.Event, before: asyncio.Task[None] | None
    ) -> None:
        server, owner = key
        pause = _FIRST_PAUSE
        while (upstream := self._upstreams().get(server)) is not None:
            try:
                client, hold = await _client(upstream, owner)
                with upstream.track_call(), hold:
                    async with client.listen(uris=sorted(uris)) as changes:
                        active.set()
                        if before is not None:
                            before.cancel()
                        async for change in changes:
                            pause = _FIRST_PAUSE
                            for uri in uris if change.uri is None else (change.uri,):
                                self._tell(outer_uri(server, uri))
            except MissingCapability as error:
                # It may still send notifications: the host forwards those without a subscription, too.
                log.debug("no subscription at %s: %s", server, error)
                active.set()
                return
            except TrunklineError as error:
                log.debug("no subscription at %s: %s", server, error)
            active.clear()
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            # Changes during the gap are not known, so every watched resource is reported as changed.
            for uri in uris:
                self._tell(outer_uri(server, uri))


async def _client(upstream: Upstream, owner: SubscriptionOwner | None) -> tuple[Client, AbstractContextManager[object]]:
    """Return the client to subscribe on, and a context manager that keeps it open meanwhile."""
    if owner is None:
        return await upstream.connected_client(), nullcontext()
    roots, needs = upstream.entry.settings.roots, owner.needs.within(upstream.entry.settings.asks)
    own = None if roots is None else lambda: list(roots)
    if owner.is_handshake and prefers_handshake(upstream, needs):
        handshake_connection = await owner.session.connections.find_handshake(upstream, needs, roots=own)
        if handshake_connection is not None:
            return await handshake_connection.open(), handshake_connection.hold_open()
        if upstream.entry.settings.share != "session" and not needs.logs:
            return await upstream.connected_client(), nullcontext()
    connection = owner.session.connections.find(upstream, needs, roots=own)
    return await connection.open(), connection.hold_open()


class GatewaySubscriptions:
    """What each client of the gateway is subscribed to; keeps the subscriptions at the servers up to date."""

    def __init__(self, core: HostCore, *, serves: Callable[[str], bool], notify: Callable[[str], None]) -> None:
        """Start empty; ``serves`` returns whether a server is served here, ``notify`` reports a changed gateway URI."""
        self._core = core
        self._serves = serves
        self._upstream = UpstreamSubscriptions(lambda: core.supervisor.upstreams, notify)
        #: The URIs that each session and each listener is subscribed to, and on whose connection.
        self._subscribers: dict[object, tuple[SubscriptionOwner, Callable[[], Iterable[str]]]] = {}
        self._following = False

    async def subscribe(
        self,
        subscriber: object,
        session: HostSession,
        caller: Caller,
        *,
        uris: Callable[[], Iterable[str]],
        added: Iterable[str],
    ) -> None:
        """Subscribe at the servers to what ``uris`` returns, and wait until the ``added`` ones are active."""
        needs = ConnectionNeeds.of(caller.capabilities, logs=session.log_level is not None)
        owner = SubscriptionOwner(session, needs, caller.revision.handshake)
        self._subscribers[subscriber] = (owner, uris)
        self._follow()
        await self._upstream.wait_until_active(self._watched(owner, added), _SUBSCRIBE_SECONDS)

    def has(self, subscriber: object) -> bool:
        """Return whether a session or a listener is subscribed to anything here."""
        return subscriber in self._subscribers

    def remove(self, subscriber: object) -> None:
        """Remove a session or a listener, if it is subscribed to anything."""
        if self._subscribers.pop(subscriber, None) is not None:
            self.follow_soon()

    def follow_soon(self) -> None:
        """Update the subscriptions at the servers in the next iteration of the event loop."""
        if not self._following:
            self._following = True
            asyncio.get_running_loop().call_soon(self._follow)

    async def aclose(self) -> None:
        """Cancel all subscriptions."""
        await self._upstream.aclose()

    def _follow(self) -> None:
        self._following = False
        self._upstream.follow(
            watched for owner, uris in self._subscribers.values() for watched in self._watched(owner, uris())
        )

    def _watched(self, owner: SubscriptionOwner, uris: Iterable[str]) -> Iterator[WatchedResource]:
        """Yield the resources behind these gateway URIs; unknown and unserved ones are skipped.

        ``owner`` is set where the upstream needs a dedicated connection.
        """
        parts, upstreams = self._core.catalog.parts, self._core.supervisor.upstreams
        for pair in (inner_uri(uri, parts) for uri in uris):
            if pair is None or not self._serves(pair[0]) or pair[0] not in upstreams:
                continue
            revision = find_revision(parts[pair[0]].offering.revision) or NEWEST
            upstream = upstreams[pair[0]]
            needs = owner.needs.within(upstream.entry.settings.asks)
            handshake = revision.handshake or (owner.is_handshake and prefers_handshake(upstream, needs))
            alone = self._core.router.needs_dedicated(upstream, needs, handshake=handshake)
            yield WatchedResource(*pair, owner if alone else None)
