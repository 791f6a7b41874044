"""The dedicated connections of one session: found by what they declare, bounded in number, closed when idle.

A session uses one connection to a server for all of its calls with the same needs: the state that a server keeps in
its process is state of the session, so there is no second process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

import trunkline.types as t
from trunkline.errors import ServerUnavailable, TooManyRequests, TrunklineError
from trunkline.host.upstreams.routing.dedicated_connection import (
    ConnectionNeeds,
    ConnectionRegistry,
    Credentials,
    DedicatedConnection,
    OnLog,
)
from trunkline.host.upstreams.supervision.clients import can_send_requests, requires_login
from trunkline.host.upstreams.supervision.upstream import Upstream

__all__ = ["ConnectionPool"]

log = logging.getLogger("trunkline.host")


class ConnectionPool:
    """The dedicated connections of one session."""

    def __init__(self, now: Callable[[], float], credentials: Credentials | None = None) -> None:
        """Start without connections; ``credentials`` are those of the principal of the session."""
        self._connections: list[DedicatedConnection] = []
        self._now = now
        self._credentials = credentials
        #: Whether the session has ended: no connection is opened any more.
        self.ended: bool = False
        #: Whether its client has left, and only calls that wait for an answer remain.
        self.abandoned = False
        #: What the connections of all sessions share.
        self.registry: ConnectionRegistry | None = None
        self._closing: set[asyncio.Task[None]] = set()
        #: Called with log messages on these connections between calls.
        self.on_log: OnLog | None = None

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._connections)

    def connections_to(self, upstream: Upstream) -> list[DedicatedConnection]:
        """Return the connections to one server."""
        return [connection for connection in self._connections if connection.upstream is upstream]

    def find(
        self, upstream: Upstream, needs: ConnectionNeeds, *, roots: Callable[[], Any] | None
    ) -> DedicatedConnection:
        """Return the connection for a call: one for all calls of the session with the same needs.

        The state that a server keeps in its process is state of the session, so there is no second process.

        Raises:
            TooManyRequests: the server has as many connections as allowed, and all of them are in use.
            ServerUnavailable: the session has ended.
        """
        fitting = (
            connection
            for connection in self._connections
            if connection.upstream is upstream and connection.matches(needs)
        )
        connection = next(fitting, None)
        if connection is None:
            if self.ended:
                raise ServerUnavailable(f"{upstream.entry.name}: the session that wanted a connection has ended")
            self._make_room(upstream)
            own = self._credentials if upstream.entry.settings.per_user else None
            connection = DedicatedConnection(
                upstream, needs, roots=roots, credentials=own, on_log=self._logged, registry=self.registry
            )
            self._connections.append(connection)
        connection.used_at = self._now()
        return connection

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
        there = [
            (connections, connection) for connections in every for connection in connections.connections_to(upstream)
        ]
        if len(there) < most:
            return
        idle = [(connections, connection) for connections, connection in there if not connection.busy]
        if not idle:
            raise TooManyRequests(
                f"{upstream.entry.name} has {most} connections for single sessions, all of them in use; try again "
                "later, or raise dedicatedMost in its entry",
                data={"limit": "dedicatedMost", "allowed": most, "retryAfter": 5},
            )
        connections, oldest = min(idle, key=lambda pair: pair[1].used_at)
        connections._evict(oldest)

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
