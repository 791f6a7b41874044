"""Subscriptions through the gateway: the resources of upstream servers that clients of the gateway are subscribed to.

The complete set of watched resources is passed again whenever a subscriber comes or goes, so there are no counters that
could leak. One task subscribes to each server; it is restarted when the set changes or the server is lost. Each change
goes to the gateway's hub under its gateway URI. For a session with dedicated connections the subscription is made on
those: the changes that its calls make happen in that process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from trunkline.client.client import Client
from trunkline.errors import MissingCapability, TrunklineError
from trunkline.host.core import HostCore
from trunkline.host.session import HostSession
from trunkline.host.upstreams.catalog.names import inner_uri, outer_uri
from trunkline.host.upstreams.routing.channels import ConnectionNeeds, allowed_needs, prefers_handshake
from trunkline.host.upstreams.routing.connection_pool import DedicatedConnection
from trunkline.host.upstreams.supervision.upstream import Upstream
from trunkline.protocol.caller import Caller, Session
from trunkline.protocol.revisions import NEWEST, find_revision
from trunkline.server.subscriptions import ChangeHub, ChangeListener, ChangeNotice

__all__ = ["GatewayHub", "GatewaySubscriptions", "SubscriptionOwner", "UpstreamSubscriptions", "WatchedResource"]

log = logging.getLogger("trunkline.host")
_SUBSCRIBE_SECONDS = 5.0  # The client waits meanwhile; the subscription at the server may still succeed later.
_FIRST_PAUSE = 0.5  # Pause before a lost upstream subscription is renewed; it doubles each time.
_LONGEST_PAUSE = 60.0  # A server that comes back is subscribed to within a minute.


class GatewayHub(ChangeHub):
    """Delivers changes to the gateway's clients, and reports when one leaves."""

    __slots__ = ("_on_leave", "_unread", "_waiting", "is_shared", "on_join")

    def __init__(self, on_leave: Callable[[ChangeListener], None]) -> None:
        """Start empty; ``on_leave`` is called when a sink is detached."""
        super().__init__()
        self._on_leave = on_leave
        #: The kinds of lists that each handshake session has not read yet.
        self._unread: dict[Session | None, set[str]] = {}
        #: The sessions whose list requests wait for servers.
        self._waiting: list[Session] = []
        #: Whether other workers serve the same clients.
        self.is_shared: bool = False
        #: Called when a listener is attached.
        self.on_join: Callable[[ChangeListener], None] = lambda listener: None

    def attach(self, listener: ChangeListener) -> None:
        """Attach a listener, and report it."""
        super().attach(listener)
        session = getattr(listener, "session", None)
        if session is not None and not self.is_shared:
            # With several workers the session's lists may be read at another one.
            self._unread[session] = {"tools", "prompts", "resources"}
        self.on_join(listener)

    def detach(self, sink: ChangeListener) -> None:
        """Detach a sink, and report it."""
        known = sink in self._listeners
        super().detach(sink)
        self._unread.pop(getattr(sink, "session", None), None)
        if known:
            self._on_leave(sink)

    @contextmanager
    def waiting(self, session: Session | None, kind: str) -> Iterator[None]:
        """Notify a client of no changes of lists that it has not read while its list request waits for servers.

        The list that it gets has them. Some clients (Semantic Kernel) load a changed list before they read on, and so
        never read the response to their own list request.
        """
        if session is None or session not in self._unread:
            yield
            return
        self._waiting.append(session)
        try:
            yield
            # What changed until now is in the list, which is built next.
            self._deliver()
            for relay in self.relays():
                relay.flush()
            self._unread.get(session, set()).discard(kind)
        finally:
            self._waiting.remove(session)

    def listeners(self, notice: ChangeNotice | None = None) -> tuple[ChangeListener, ...]:
        """Return the current listeners; with a notice, those that are notified of it."""
        return tuple(sink for sink in self._listeners if notice is None or self.hears(sink, notice))

    def hears(self, listener: ChangeListener, notice: ChangeNotice) -> bool:
        """Return whether a listener is notified of a change: not if its client waits for that very list."""
        session = getattr(listener, "session", None)
        return session not in self._waiting or notice[0] not in self._unread.get(session, ())


class SubscriptionOwner(NamedTuple):
    """The session on whose connection a subscription is made."""

    session: HostSession
    needs: ConnectionNeeds
    #: Whether it is the session of a handshake client.
    is_handshake: bool = False

    def needs_at(self, upstream: Upstream) -> ConnectionNeeds:
        """Return what its calls to a server need now; a client may set a log level after it subscribed."""
        needs = replace(self.needs, logs=self.session.log_level is not None)
        return allowed_needs(upstream.entry.settings, needs, upstream.offering)


class WatchedResource(NamedTuple):
    """A resource to watch: the server, its own URI, and the owner of the connection; None for the shared one."""

    server: str
    uri: str
    owner: SubscriptionOwner | None = None


#: A server, and the owner of the connection.
_WatchKey: TypeAlias = tuple[str, SubscriptionOwner | None]


class UpstreamSubscriptions:
    """The subscriptions at upstream servers."""

    def __init__(self, core: HostCore, tell: Callable[[str], None]) -> None:
        """Watch servers of a host; ``tell`` is called with the gateway URI of each changed resource."""
        self._core = core
        self._tell = tell
        self._watched: dict[_WatchKey, tuple[frozenset[str], asyncio.Task[None]]] = {}
        #: Set while the subscription at a server is active.
        self._active: dict[_WatchKey, asyncio.Event] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def resolve(self, server: str, uri: str, owner: SubscriptionOwner) -> WatchedResource | None:
        """Return the resource to watch, on the connection that the owner's calls use; None if there is no server."""
        upstream = self._core.supervisor.upstreams.get(server)
        if upstream is None:
            return None
        needs = owner.needs_at(upstream)
        revision = find_revision("" if upstream.offering is None else upstream.offering.revision) or NEWEST
        handshake = revision.handshake or (owner.is_handshake and prefers_handshake(upstream, needs))
        is_dedicated = self._core.router.needs_dedicated(upstream, needs, handshake=handshake)
        return WatchedResource(server, uri, owner if is_dedicated else None)

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
        while (upstream := self._core.supervisor.upstreams.get(server)) is not None:
            try:
                with upstream.track_call():
                    async with (
                        self._client(upstream, owner) as client,
                        client.listen(uris=sorted(uris)) as changes,
                    ):
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

    @asynccontextmanager
    async def _client(self, upstream: Upstream, owner: SubscriptionOwner | None) -> AsyncIterator[Client]:
        """Open the client that the owner's calls use: the changes that they make are announced there."""
        connection = None if owner is None else await self._dedicated(upstream, owner)
        if owner is None or connection is None:
            yield await upstream.connected_client()
            return
        with connection.hold_open():
            yield await self._core.router.open_connection(owner.session, connection)

    async def _dedicated(self, upstream: Upstream, owner: SubscriptionOwner) -> DedicatedConnection | None:
        """Return the connection of the owner's calls; None if the server refuses the handshake and they share one."""
        router, needs = self._core.router, owner.needs_at(upstream)
        if owner.is_handshake and prefers_handshake(upstream, needs):
            connection = await router.find_handshake(owner.session, upstream, needs)
            if connection is not None or not router.needs_dedicated(upstream, needs, handshake=False):
                return connection
        return router.find_dedicated(owner.session, upstream, needs)


class GatewaySubscriptions:
    """What each client of the gateway is subscribed to; keeps the subscriptions at the servers up to date."""

    def __init__(self, core: HostCore, *, serves: Callable[[str], bool], notify: Callable[[str], None]) -> None:
        """Start empty; ``serves`` returns whether a server is served here, ``notify`` reports a changed gateway URI."""
        self._core = core
        self._serves = serves
        self._upstream = UpstreamSubscriptions(core, notify)
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
        needs = ConnectionNeeds.of(caller.capabilities, logs=False)
        owner = SubscriptionOwner(session, needs, caller.revision.handshake)
        self._subscribers[subscriber] = (owner, uris)
        self._follow()
        await self._upstream.wait_until_active(self._watched(owner, added), _SUBSCRIBE_SECONDS)

    async def refresh(self, subscriber: object) -> None:
        """Called when the calls of a subscriber may use another connection; wait until its subscriptions do, too."""
        if (entry := self._subscribers.get(subscriber)) is not None:
            owner, uris = entry
            self._follow()
            await self._upstream.wait_until_active(self._watched(owner, uris()), _SUBSCRIBE_SECONDS)

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
        """Yield the resources behind these gateway URIs; unknown and unserved ones are skipped."""
        for pair in (inner_uri(uri, self._core.catalog.parts) for uri in uris):
            if pair is not None and self._serves(pair[0]) and (watched := self._upstream.resolve(*pair, owner)):
                yield watched
