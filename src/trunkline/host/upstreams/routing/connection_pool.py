"""Dedicated connections of one session, to servers that send requests or log messages.

On a shared connection, a server's question does not identify the call it belongs to. So a caller that can answer
requests, or wants log messages, has connections that no other session uses. On a dedicated connection a question goes
to the call in progress there, or to the one that started last.

They are found by what they declare, bounded in number, and closed when idle. A session uses one connection to a server
for all of its calls with the same needs: the state that a server keeps in its process is state of the session, so there
is no second process.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.client import Client
from trunkline.client.notifications import CHANGE_KINDS
from trunkline.client.options import ClientState
from trunkline.errors import (
    InvalidParams,
    PolicyDenied,
    RequestFailed,
    ServerUnavailable,
    TooManyRequests,
    TrunklineError,
)
from trunkline.host.config.model import ServerEntry
from trunkline.host.upstreams.catalog.items import Offering
from trunkline.host.upstreams.routing.active_calls import ActiveCall, CallEnded
from trunkline.host.upstreams.routing.channels import CallerChannel, ConnectionNeeds, log_wanted
from trunkline.host.upstreams.supervision.clients import ALL_LISTS, can_send_requests, is_first_client, requires_login
from trunkline.host.upstreams.supervision.upstream import Upstream

__all__ = [
    "ConnectionPool",
    "ConnectionRegistry",
    "Credentials",
    "DedicatedConnection",
    "OnLog",
    "roots_digest",
]

log = logging.getLogger("trunkline.host")
T = TypeVar("T")
#: How long the first call on a new connection waits at most for its lists.
_MEET_SECONDS = 5.0
_QUIET_SECONDS = 0.1  # Servers that list changes one by one send them within milliseconds.
_APART_SECONDS = 1.0  # A server that keeps sending changes is listed once a second at most.
#: Returns the client options that authenticate the caller to a server.
Credentials = Callable[[ServerEntry], Awaitable[Mapping[str, Any]]]
#: Called with a log message that belongs to no call.
OnLog = Callable[[t.LoggingMessageNotificationParams], None]


class ConnectionRegistry(Protocol):
    """What the connections of all sessions share: the limit per server, and what servers list on them."""

    def all(self) -> Collection[ConnectionPool]:
        """Return the connection pools of all sessions."""

    def needs_listing(self, connection: DedicatedConnection) -> bool:
        """Return True if it is unknown what a server lists on a connection with these needs."""

    async def record_listing(self, upstream: Upstream, needs: ConnectionNeeds, listed: Offering) -> None:
        """Record what a server lists on a new connection that declares these needs."""

    def relisted(self, connection: DedicatedConnection, before: Offering | None) -> None:
        """Called when a connection was listed again after a change."""

    def closed(self, connection: DedicatedConnection) -> None:
        """Called when a connection was closed."""

    def updated(self, connection: DedicatedConnection, uri: str) -> None:
        """Called when a server announces that a resource changed."""


class DedicatedConnection:
    """One dedicated connection, and the calls in progress on it."""

    #: Whether it counts for the limit of connections to a server.
    has_process: ClassVar[bool] = True

    def __init__(
        self,
        upstream: Upstream,
        needs: ConnectionNeeds,
        *,
        roots: Callable[[], Any] | None,
        credentials: Credentials | None,
        on_log: OnLog | None = None,
        on_notification: Callable[[str, dict[str, Any], CallerChannel | None], None] | None = None,
        registry: ConnectionRegistry | None = None,
        key: str | None = None,
    ) -> None:
        """Prepare a connection; ``roots`` answers in place of the caller, ``on_log`` gets messages between calls.

        ``key`` names the process that the workers of a gateway use for this session.
        """
        self.upstream = upstream
        self._key = key
        self.needs: ConnectionNeeds = replace(needs, logs=True)
        #: Its calls, and the connection of each: sessions that adopt the shared connection have one dict together.
        self.calls: dict[ActiveCall, DedicatedConnection] = {}
        #: The callers of requests to a stateless server, which sends nothing on its own but log messages.
        self._rounds: dict[CallerChannel, None] = {}
        #: The roots of the client whose calls use this connection, once known.
        self._folders: list[t.Root] | None = None
        #: The number of users that wait for it to open, or listen on it.
        self.holders: int = 0
        self.used_at: float = 0.0
        self._level: t.LoggingLevel | None = None
        options: dict[str, Any] = {}
        if needs.sampling:
            options |= {"sampling": self._sample, "sampling_tools": needs.sampling_tools}
        if needs.elicitation:
            options |= {"elicitation": self._elicit, "elicitation_urls": needs.elicitation_urls}
        if roots is not None or needs.roots:
            options["roots"] = roots or self._roots
        if needs.apps:
            options["apps"] = True
        self._options = {**options, "logging": self._logged, "on_notification": self._on_notification}
        self._credentials = credentials
        self._on_log = on_log
        self._on_custom = on_notification
        self._registry = registry
        #: What the server lists on this connection, once it announced a change here; None before.
        self.offering: Offering | None = None
        #: The kinds of lists that changed, and the task that lists them again.
        self._changed: set[str] = set()
        self._listing: asyncio.Task[None] | None = None
        self._client: Client | None = None
        #: The task that checks, after a call timed out, whether the server responds; no call is sent meanwhile.
        self.responsiveness_check: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[Client] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether its client was closed, as on a stop or restart of the server, or its process exited."""
        if self._client is None:
            return False
        state = self._client.state
        return state is ClientState.TERMINATED or (
            state is ClientState.FAILED and self.upstream.entry.command is not None
        )

    def matches(self, needs: ConnectionNeeds) -> bool:
        """Return True if a call with these needs may use it; every dedicated connection receives log messages."""
        return not self.is_closed and self.responsiveness_check is None and replace(needs, logs=True) == self.needs

    @property
    def busy(self) -> bool:
        """Whether the connection is in use."""
        return bool(self.calls or self._rounds or self.holders)

    @contextmanager
    def hold_open(self) -> Iterator[None]:
        """Keep the connection open inside the ``with`` block."""
        self.holders += 1
        try:
            yield
        finally:
            self.holders -= 1

    @contextmanager
    def attach(self, channel: CallerChannel) -> Iterator[None]:
        """Attach the caller of a request to a stateless server, for log messages; keeps the connection open."""
        self._rounds[channel] = None
        try:
            yield
        finally:
            del self._rounds[channel]

    async def open(self) -> Client:
        """Connect once; concurrent callers wait for the same attempt."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.get_running_loop().create_task(self._connect())
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._opening)

    async def _connect(self) -> Client:
        await self.upstream.verify_trust()
        options = self._options
        if self._credentials is not None:
            options = {**options, **await self._credentials(self.upstream.launch)}
        if self.needs.handshake:
            # The era memory belongs to the shared connection, which uses the newest revision.
            options = {**options, "revision": "handshake", "era_memory": None}
        self._client = self.upstream.make_client(key=self._key, **options)
        client = await self._client.__aenter__()
        if self._registry is not None and is_first_client(client) and self._registry.needs_listing(self):
            await self._list_new(self._registry, client)
        return client

    async def is_hanging(self) -> bool:
        """Return True if the process is unresponsive, and no call on this connection is within its deadline."""
        return self._client is not None and await self.upstream.is_hanging(self._client)

    def give_up(self) -> None:
        """Called when the process hangs: no worker uses it any more."""
        if self._key is not None:
            self.upstream.end_process(self._key)

    async def set_log_level(self, client: Client, level: t.LoggingLevel | None) -> None:
        """Set the level of log messages that the server sends."""
        if level is not None and level != self._level and "logging" in client.server_capabilities:
            self._level = level
            await client.set_logging_level(level)

    async def aclose(self) -> None:
        """Close the connection, and cancel the calls on it."""
        if self.responsiveness_check is not None and self.responsiveness_check is not asyncio.current_task():
            self.responsiveness_check.cancel()
            await asyncio.wait([self.responsiveness_check])
        for call, connection in tuple(self.calls.items()):
            if connection is self:
                call.cancel()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait([self._listing])
        if self._client is not None:
            await self._client.aclose()
        if self._registry is not None:
            self._registry.closed(self)

    # --- what the server lists ---------------------------------------------------------------------------------------

    async def _list_new(self, registry: ConnectionRegistry, client: Client) -> None:
        """List a new connection before its first call: what calls add later belongs to this session alone."""
        try:
            async with asyncio.timeout(_MEET_SECONDS):
                await registry.record_listing(self.upstream, self.needs, await self.upstream.list_on(client))
        except (TimeoutError, TrunklineError) as error:
            log.debug("a connection to %s cannot be listed: %s", self.upstream.entry.name, error)

    def _list_soon(self, kind: str) -> None:
        """Schedule a refresh of the changed lists: the session's calls use this connection, not the shared one."""
        self._changed.add(kind)
        if self._registry is not None and (self._listing is None or self._listing.done()):
            self._listing = asyncio.get_running_loop().create_task(self._list_again())
            self._listing.add_done_callback(_log_failure)

    async def _list_again(self) -> None:
        while self._changed and self._registry is not None:
            # Changes come in bursts; a server that announces them endlessly is listed once a second.
            await asyncio.sleep(_QUIET_SECONDS)
            client, before = await self.open(), self.offering
            kinds, self._changed = frozenset(self._changed), set()
            found = await self.upstream.list_on(client, before, ALL_LISTS if before is None else kinds)
            if before is not None or not found.failures:
                self.offering = found
                self._registry.relisted(self, before)
            if self._changed:
                await asyncio.sleep(_APART_SECONDS)

    # --- requests of the server --------------------------------------------------------------------------------------

    def _call_asked(self) -> ActiveCall:
        """Return the call that a question belongs to: the one in progress, or the one that started last."""
        # A call that waits for a slot was not sent yet, so the server does not know it.
        calls = [call for call in self.calls if call.slot is not None] or list(self.calls)
        waiting = [call for call in calls if not call.pending] or calls
        if not waiting:
            raise RequestFailed("There is no call in progress that this request could belong to")
        return waiting[-1]

    async def _sample(self, params: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        return await self._answer("sampling/createMessage", params, t.CreateMessageResult)

    async def _elicit(self, params: t.ElicitRequestParams) -> t.ElicitResult:
        return await self._answer("elicitation/create", params, t.ElicitResult)

    async def _roots(self) -> list[t.Root]:
        self.upstream.asks_roots = True
        if self._folders is not None:
            return self._folders
        call = self._call_asked()
        roots = (await self._answer("roots/list", t.RequestParams(), t.ListRootsResult, call)).roots
        if call.channel is not None and call.channel.parks:
            # The server now knows the roots of one client; calls of another client must not use this connection.
            self.needs = replace(self.needs, roots_digest=roots_digest(roots))
            self._folders = roots
        return roots

    async def set_roots(self, folders: list[t.Root]) -> None:
        """Set the roots of the client whose calls follow, and notify the server, which knows none yet."""
        self.needs = replace(self.needs, roots_digest=roots_digest(folders))
        self._folders = folders
        if self._client is not None and self._client.state is ClientState.ACTIVE:
            await self._client.notify_roots_changed()

    async def _answer(self, method: str, params: Any, kind: type[T], call: ActiveCall | None = None) -> T:
        try:
            raw = await self._ask(method, params, call)
        except PolicyDenied as denial:
            # The code that sampling defines for a rejection by the user; the rule is not disclosed to the server.
            raise RequestFailed(f"The user does not allow {method}", code=-1) from denial
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidParams(f"The answer to {method} cannot be read: {error}") from error

    async def _ask(self, method: str, params: Any, call: ActiveCall | None) -> Raw:
        """Ask a question through a call; if that call ends first, the question belonged to another: try the next."""
        while True:
            asked = call or self._call_asked()
            try:
                return await asked.ask(method, params)
            except CallEnded:
                if call is not None or not any(each is not asked for each in self.calls):
                    raise
                self.calls.pop(asked, None)

    def _on_notification(self, method: str, params: dict[str, Any]) -> None:
        if (kind := CHANGE_KINDS.get(method)) in ALL_LISTS:
            # A handshake server may announce a change only on the connection that caused it.
            self.upstream.changed({kind})
            self._list_soon(kind)
        elif kind == "resource" and isinstance(params.get("uri"), str) and self._registry is not None:
            self._registry.updated(self, params["uri"])
        elif method == "notifications/elicitation/complete" and isinstance(params.get("elicitationId"), str):
            channel = self._channel()
            if channel is not None:
                channel.elicitation_completed(params["elicitationId"])
        elif self._on_custom is not None:
            self._on_custom(method, params, self._channel())

    def _channel(self) -> CallerChannel | None:
        """Return the channel for notifications: that of the call that started last."""
        channels = (*(call.channel for call in self.calls), *self._rounds)
        return next((each for each in reversed(channels) if each is not None and each.open), None)

    def _logged(self, message: t.LoggingMessageNotificationParams) -> None:
        channel = self._channel()
        if channel is None:
            # Between calls: the connection belongs to one session.
            if self._on_log is not None:
                self._on_log(message)
        # No level can be set on a server that does not declare logging, and it may log nevertheless.
        elif log_wanted(message.level, channel.log_level, unasked=channel.receives_logs):
            channel.log(message)


class ConnectionPool:
    """The dedicated connections of one session."""

    def __init__(self, now: Callable[[], float], credentials: Credentials | None = None) -> None:
        """Start without connections; ``credentials`` are those of the principal of the session."""
        self._connections: list[DedicatedConnection] = []
        self._now = now
        self._credentials = credentials
        #: Names the process for certain needs at every worker of a gateway; ``own_roots``: its roots are the host's.
        self.process_key: Callable[[ConnectionNeeds, bool], str | None] = lambda needs, own_roots: None
        #: Whether the session has ended: no connection is opened any more.
        self.ended: bool = False
        #: Returns whether the user of the session is there: its connections are then not closed when idle.
        self.in_use: Callable[[], bool] = bool
        #: Makes the shared connection to a server one of this session, see ``AdoptedConnection``; None: it is not.
        self.adopt: Callable[[Upstream, ConnectionNeeds, OnLog], DedicatedConnection] | None = None
        #: Whether its client has left, and only calls that wait for an answer remain.
        self.abandoned = False
        #: What the connections of all sessions share.
        self.registry: ConnectionRegistry | None = None
        self._closing: set[asyncio.Task[None]] = set()
        #: Called with log messages on these connections between calls.
        self.on_log: OnLog | None = None
        #: Called with notifications that are not part of the protocol: the server, method and params.
        self.on_notification: Callable[..., None] | None = None

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._connections)

    def connections_to(self, upstream: Upstream) -> list[DedicatedConnection]:
        """Return the connections to one server."""
        return [connection for connection in self._connections if connection.upstream is upstream]

    def find(
        self, upstream: Upstream, needs: ConnectionNeeds, *, roots: Callable[[], Any] | None, adopts: bool = False
    ) -> DedicatedConnection:
        """Return the connection for a call: one for all calls of the session with the same needs.

        ``adopts``: it may be the shared one, if the session adopts connections.

        Raises:
            TooManyRequests: the server has as many connections as allowed, and all of them are in use.
            ServerUnavailable: the session has ended.
        """
        connection = next((c for c in self._connections if c.upstream is upstream and c.matches(needs)), None)
        if connection is None:
            if self.ended:
                raise ServerUnavailable(f"{upstream.entry.name}: the session that wanted a connection has ended")
            if adopts and self.adopt is not None:
                connection = self.adopt(upstream, needs, self._logged)
            else:
                self._make_room(upstream)
                connection = self._create(upstream, needs, roots)
            self._connections.append(connection)
        connection.used_at = self._now()
        return connection

    def _create(
        self, upstream: Upstream, needs: ConnectionNeeds, roots: Callable[[], Any] | None
    ) -> DedicatedConnection:
        return DedicatedConnection(
            upstream,
            needs,
            roots=roots,
            credentials=self._credentials if upstream.entry.settings.per_user else None,
            on_log=self._logged,
            on_notification=self._notifier(upstream.entry.name),
            registry=self.registry,
            key=self.process_key(needs, roots is not None),
        )

    async def find_with_roots(
        self, upstream: Upstream, needs: ConnectionNeeds, roots: list[t.Root]
    ) -> DedicatedConnection:
        """Return the connection for a client with these roots: one that has them, or has none yet."""
        unnamed = replace(needs, roots_digest=None)
        for connection in self._connections:
            if connection.upstream is upstream and connection.matches(needs):
                break
        else:
            connection = self.find(upstream, unnamed, roots=None)
            await connection.set_roots(roots)
        connection.used_at = self._now()
        return connection

    async def find_handshake(
        self, upstream: Upstream, needs: ConnectionNeeds, *, roots: Callable[[], Any] | None
    ) -> DedicatedConnection | None:
        """Return an open connection with a handshake, on which a server of both eras can ask; None if refused.

        The outcome is remembered: a server that refuses the handshake is not tried again.

        Raises:
            ServerUnavailable: the server may not be started, or the session has ended.
            AuthError, HttpError, RequestFailed: the server requires a login.
        """
        try:
            connection = self.find(upstream, replace(needs, handshake=True), roots=roots)
        except TooManyRequests:
            # The shared connection has room, and serves every call without server requests.
            return None
        with connection.hold_open():
            shook = await self._opens_with_handshake(connection)
        if shook:
            upstream.supports_handshake = True
            return connection
        if upstream.supports_handshake is None:
            upstream.supports_handshake = False
        if not connection.busy:
            await self.drop(connection)
        return None

    async def _opens_with_handshake(self, connection: DedicatedConnection) -> bool:
        try:
            return can_send_requests(await connection.open())
        except TrunklineError as error:
            if isinstance(error, ServerUnavailable) or requires_login(error):
                if connection.holders <= 1 and not connection.calls:
                    await self.drop(connection)
                raise
            log.info("%s is used without a handshake: %s", connection.upstream.entry.name, error)
            return False

    def _logged(self, message: t.LoggingMessageNotificationParams) -> None:
        if self.on_log is not None:
            self.on_log(message)

    def _notifier(self, server: str) -> Callable[[str, dict[str, Any], CallerChannel | None], None]:
        """Return the callback for custom notifications on a connection to a server."""

        def notified(method: str, params: dict[str, Any], channel: CallerChannel | None) -> None:
            if self.on_notification is not None:
                self.on_notification(server, method, params, channel=channel)

        return notified

    def used(self, connection: DedicatedConnection) -> None:
        """Record that a connection was in use until now."""
        connection.used_at = self._now()

    async def drop(self, connection: DedicatedConnection) -> None:
        """Close a connection and remove it from the pool."""
        if connection in self._connections:
            self._connections.remove(connection)
            await _close(connection)

    def check_responsive(self, connection: DedicatedConnection) -> None:
        """Called when a call timed out: check the connection, and close it if its process hangs."""
        if connection.responsiveness_check is None and connection in self._connections:
            connection.responsiveness_check = asyncio.get_running_loop().create_task(self._examine(connection))

    async def _examine(self, connection: DedicatedConnection) -> None:
        hangs = False
        try:
            hangs = await connection.is_hanging()
            if hangs:
                log.info("a connection to %s is unresponsive and is closed", connection.upstream.entry.name)
                connection.give_up()
                await self.drop(connection)
        finally:
            if not hangs:
                connection.responsiveness_check = None

    def _make_room(self, upstream: Upstream) -> None:
        """Close the longest idle connection, of any session, if the server is at its limit.

        Raises:
            TooManyRequests: all of them are in use.
        """
        most = upstream.entry.settings.dedicated_most
        every = (self,) if self.registry is None else self.registry.all()
        there = [(pool, connection) for pool in every for connection in pool.connections_to(upstream)]
        there = [pair for pair in there if pair[1].has_process]
        if len(there) < most:
            return
        idle = [pair for pair in there if not pair[1].busy]
        if not idle:
            raise TooManyRequests(
                f"{upstream.entry.name} has {most} connections for single sessions, all of them in use; try again "
                "later, or raise dedicatedMost in its entry",
                data={"limit": "dedicatedMost", "allowed": most, "retryAfter": 5},
            )
        pool, oldest = min(idle, key=lambda pair: pair[1].used_at)
        pool._evict(oldest)

    def _evict(self, connection: DedicatedConnection) -> None:
        self._connections.remove(connection)
        task = asyncio.get_running_loop().create_task(_close(connection))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def sweep(self, idle: float | None, keeps: Callable[[Upstream], bool]) -> None:
        """Close the connections that were idle for ``idle`` seconds, and those of servers that were removed.

        Without a number of seconds, the setting of each server counts.
        """
        now = self._now()
        if self.in_use():
            # Idle from now on: a page that is loaded again is gone for a moment.
            for connection in self._connections:
                connection.used_at = now

        def is_over(connection: DedicatedConnection) -> bool:
            usual = -1.0 if self.abandoned else connection.upstream.entry.settings.dedicated_idle
            seconds = usual if idle is None else idle
            return (
                connection.is_closed
                or not keeps(connection.upstream)
                or (not connection.busy and connection.used_at < now - seconds)
            )

        over = [connection for connection in self._connections if is_over(connection)]
        self._connections = [connection for connection in self._connections if connection not in over]
        await asyncio.gather(*map(_close, over))

    async def aclose(self) -> None:
        """Close all connections."""
        self.ended = True
        connections, self._connections = self._connections, []
        await asyncio.gather(*map(_close, connections), *self._closing)


async def _close(connection: DedicatedConnection) -> None:
    try:
        await connection.aclose()
    except TrunklineError as error:
        log.debug("closing a connection to %s: %s", connection.upstream.entry.name, error)


def roots_digest(roots: list[t.Root]) -> str:
    """Return a digest of a list of roots."""
    return hashlib.sha256(msgspec.json.encode(roots)).hexdigest()


def _log_failure(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, TrunklineError):
        log.debug("a connection of a session cannot be listed: %s", error)
    elif error is not None:
        log.error("listing a connection of a session failed", exc_info=error)
