"""The options of a gateway or of one of its profiles.

The sessions of the gateway's clients: one per handshake session, and one per principal for stateless clients.

A stateless client identifies itself with each request; what outlives a request (session grants, connections to servers)
then belongs to its principal. Opening more sessions does not increase a budget: it belongs to the principal.

Subscriptions through the gateway: the resources of upstream servers that clients of the gateway are subscribed to.

The complete set of watched resources is passed again whenever a subscriber comes or goes, so there are no counters that
could leak. One task subscribes to each server; it is restarted when the set changes or the server is lost. Each change
goes to the gateway's hub under its gateway URI. For a session with dedicated connections the subscription is made on
those: the changes that its calls make happen in that process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

import trunkline.types as t
from trunkline.client.client import Client
from trunkline.connection import Connection, Exchange
from trunkline.errors import MissingCapability, TrunklineError
from trunkline.host.authorization.approval import ApprovalMode
from trunkline.host.config.model import NO_FILTERS, Filters
from trunkline.host.core import HostCore
from trunkline.host.session import CallBudget, HostSession
from trunkline.host.upstreams.catalog.names import outer_uri
from trunkline.host.upstreams.routing.channels import log_wanted
from trunkline.host.upstreams.routing.dedicated_connection import ConnectionNeeds, OnLog, prefers_handshake
from trunkline.host.upstreams.routing.router import user_credentials
from trunkline.host.upstreams.supervision.upstream import Upstream
from trunkline.protocol.caller import Caller, Session
from trunkline.server.subscriptions import ChangeHub, ChangeListener

__all__ = [
    "GatewayHub",
    "GatewayOptions",
    "GatewaySessions",
    "SubscriptionOwner",
    "UpstreamSubscriptions",
    "WatchedResource",
]


class GatewayOptions(Struct, frozen=True, kw_only=True):
    """The options of a gateway or of one of its profiles."""

    name: str = "trunkline"
    #: The profile: a virtual server with some of the servers, its own filters and its own policy.
    profile: str | None = None
    servers: frozenset[str] | None = None
    tools: Filters = NO_FILTERS
    #: Who asks the user before a call: the client, the gateway, or no one (``authorization/approval.py``).
    approval: ApprovalMode = "ask"
    #: Limits of one principal: calls per minute, and concurrent calls.
    per_minute: float | None = None
    concurrent: int = 256
    #: Whether a large catalog is replaced by tools to search it.
    search: str = "auto"
    #: For ``auto``: the size of the model's context window, and the share of it above which tools are searched.
    window_tokens: int = 200_000
    share: float = 0.10
    #: All callers are the user's own (loopback and one token), so that answers may outlive the session. Over stdio
    #: this is known without it.
    own_user: bool = False


class GatewaySessions:
    """The host sessions and budgets of the gateway's clients."""

    def __init__(self, core: HostCore, options: GatewayOptions, *, notify: Callable[[Session, str, Any], None]) -> None:
        """Start without sessions; ``notify`` sends a handshake session a notification outside of any request."""
        self._core = core
        self._options = options
        self._notify = notify
        self._sessions: OrderedDict[Any, HostSession] = OrderedDict()
        self._budgets: OrderedDict[Any, CallBudget] = OrderedDict()
        self._leaving: set[asyncio.Task[None]] = set()

    def session(self, exchange: Exchange) -> HostSession:
        """Return the session that a request belongs to."""
        caller: Caller = exchange.admitted.caller
        who = None if caller.principal is None else caller.principal.identity
        key: Any = caller.session
        if key is None:
            # Anonymous callers are told apart by connection; over HTTP all anonymous callers share one session.
            key = (who, None if caller.origin.transport == "http" or who is not None else exchange.connection)
        found = self._sessions.get(key)
        if found is None:
            found = self._sessions[key] = self._core.open_session(
                HostSession(
                    now=time.monotonic,
                    principal=caller.principal,
                    profile=self._options.profile,
                    budget=self._budget(who if who is not None or caller.session is None else key),
                    credentials=user_credentials(self._core.folder, caller.principal),
                    # Without a session there may be many conversations: text in one would taint acts of another.
                    conversation=caller.session is not None,
                )
            )
            found.connections.on_log = self._logger(found, caller.session)
            if len(self._sessions) > self._core.limits.sessions:
                _, oldest = self._sessions.popitem(last=False)
                self._end(oldest)
        else:
            self._sessions.move_to_end(key)
        return found

    def find(self, caller: Caller) -> HostSession | None:
        """Return the session of a caller, found without its connection; None if there is none."""
        if caller.session is not None:
            return self._sessions.get(caller.session)
        return self._sessions.get((None if caller.principal is None else caller.principal.identity, None))

    def _logger(self, own: HostSession, session: Session | None) -> OnLog:
        """Return the callback for log messages that belong to no call; it sends nothing to a stateless client."""

        def log(message: t.LoggingMessageNotificationParams) -> None:
            if session is not None and log_wanted(message.level, own.log_level, unasked=True):
                self._notify(session, "notifications/message", message)

        return log

    def session_ended(self, session: Session | None) -> None:
        """Called when a handshake session ends."""
        found = None if session is None else self._sessions.pop(session, None)
        if found is not None:
            self._end(found)

    def disconnected(self, connection: Connection) -> None:
        """End the session of an anonymous stateless client that had this connection to itself."""
        found = self._sessions.pop((None, connection), None)
        if found is not None:
            self._spawn(self._core.abandon_session(found))

    async def aclose(self) -> None:
        """Close all sessions."""
        sessions, self._sessions = list(self._sessions.values()), OrderedDict()
        await asyncio.gather(*map(self._core.close_session, sessions))
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _budget(self, who: Any) -> CallBudget:
        budget = self._budgets.get(who)
        if budget is None:
            budget = self._budgets[who] = CallBudget(
                time.monotonic, per_minute=self._options.per_minute, concurrent=self._options.concurrent
            )
            if len(self._budgets) > self._core.limits.sessions:
                self._budgets.popitem(last=False)
        return budget

    def _end(self, session: HostSession) -> None:
        self._spawn(self._core.close_session(session))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


log = logging.getLogger("trunkline.host")
_FIRST_PAUSE = 0.5  # Pause before a lost upstream subscription is renewed; it doubles each time.
_LONGEST_PAUSE = 60.0  # A server that comes back is subscribed to within a minute.


class GatewayHub(ChangeHub):
    """Delivers changes to the gateway's clients, and reports when one leaves."""

    __slots__ = ("_on_leave",)

    def __init__(self, on_leave: Callable[[ChangeListener], None]) -> None:
        """Start empty; ``on_leave`` is called when a sink is detached."""
        super().__init__()
        self._on_leave = on_leave

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
        self._heard: dict[_WatchKey, asyncio.Event] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def follow(self, resources: Iterable[WatchedResource]) -> None:
        """Replace the set of watched resources."""
        by_key: dict[_WatchKey, set[str]] = {}
        for watched in resources:
            by_key.setdefault((watched.server, watched.owner), set()).add(watched.uri)
        for key in [key for key in self._watched if key not in by_key]:
            self._watched.pop(key)[1].cancel()
            self._heard.pop(key, None)
        for key, wants in by_key.items():
            uris, before = self._watched.get(key, (frozenset(), None))
            if uris != wants:
                self._begin(key, frozenset(wants), before)

    def _begin(self, key: _WatchKey, uris: frozenset[str], before: asyncio.Task[None] | None) -> None:
        """Subscribe at a server; the previous task runs until the new one is active, so that no change is missed."""
        heard = self._heard[key] = asyncio.Event()
        if before is not None:
            self._leaving.add(before)
            before.add_done_callback(self._leaving.discard)
        task = asyncio.get_running_loop().create_task(self._watch(key, uris, heard, before))
        self._watched[key] = (uris, task)
        if before is not None:
            task.add_done_callback(lambda done: before.cancel())

    async def wait_until_active(self, resources: Iterable[WatchedResource], seconds: float) -> None:
        """Wait until the subscriptions are active, for a bounded time: a failing server must not block the client."""
        keys = {(watched.server, watched.owner) for watched in resources}
        waits = [heard.wait() for key in keys if (heard := self._heard.get(key)) is not None]
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
        self, key: _WatchKey, uris: frozenset[str], heard: asyncio.Event, before: asyncio.Task[None] | None
    ) -> None:
        server, owner = key
        pause = _FIRST_PAUSE
        while (upstream := self._upstreams().get(server)) is not None:
            try:
                client, kept = await _client(upstream, owner)
                with upstream.track_call(), kept:
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


async def _client(upstream: Upstream, owner: SubscriptionOwner | None) -> tuple[Client, AbstractContextManager[object]]:
    """Return the client to subscribe on, and a context manager that keeps it open meanwhile."""
    if owner is None:
        return await upstream.connected_client(), nullcontext()
    roots, needs = upstream.entry.settings.roots, owner.needs.within(upstream.entry.settings.asks)
    own = None if roots is None else lambda: list(roots)
    if owner.is_handshake and prefers_handshake(upstream, needs):
        shaken = await owner.session.connections.find_handshake(upstream, needs, roots=own)
        if shaken is not None:
            return await shaken.open(), shaken.hold_open()
        if upstream.entry.settings.share != "session" and not needs.logs:
            return await upstream.connected_client(), nullcontext()
    connection = owner.session.connections.find(upstream, needs, roots=own)
    return await connection.open(), connection.hold_open()
