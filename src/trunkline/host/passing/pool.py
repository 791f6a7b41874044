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
from trunkline.host.passing.lanes import Credentials, House, Lane, Needs, OnLog
from trunkline.host.supervision.clients import may_ask, wants_login
from trunkline.host.supervision.upstream import Upstream

__all__ = ["Lanes"]

log = logging.getLogger("trunkline.host")


class Lanes:
    """The dedicated connections of one session."""

    def __init__(self, now: Callable[[], float], credentials: Credentials | None = None) -> None:
        """Start without connections; ``credentials`` are those of the principal of the session."""
        self._lanes: list[Lane] = []
        self._now = now
        self._credentials = credentials
        #: Whether the session has ended: no connection is opened any more.
        self.ended = False
        #: Whether its client has left, and only calls that wait for an answer remain.
        self.abandoned = False
        #: What the connections of all sessions share.
        self.house: House | None = None
        self._closing: set[asyncio.Task[None]] = set()
        #: Called with log messages on these connections between calls.
        self.on_log: OnLog | None = None

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._lanes)

    def to(self, upstream: Upstream) -> list[Lane]:
        """Return the connections to one server."""
        return [lane for lane in self._lanes if lane.upstream is upstream]

    def find(self, upstream: Upstream, needs: Needs, *, roots: Callable[[], Any] | None) -> Lane:
        """Return the connection for a call: one for all calls of the session with the same needs.

        The state that a server keeps in its process is state of the session, so there is no second process.

        Raises:
            TooManyRequests: the server has as many connections as allowed, and all of them are in use.
            ServerUnavailable: the session has ended.
        """
        fitting = (lane for lane in self._lanes if lane.upstream is upstream and lane.fits(needs))
        lane = next(fitting, None)
        if lane is None:
            if self.ended:
                raise ServerUnavailable(f"{upstream.entry.name}: the session that wanted a connection has ended")
            self._make_room(upstream)
            own = self._credentials if upstream.entry.settings.per_user else None
            lane = Lane(upstream, needs, roots=roots, credentials=own, on_log=self._logged, house=self.house)
            self._lanes.append(lane)
        lane.used_at = self._now()
        return lane

    async def find_for(self, upstream: Upstream, needs: Needs, folders: list[t.Root]) -> Lane:
        """Return the connection for a client with these roots: one that has them, or has none yet."""
        unnamed = replace(needs, folders=None)
        for lane in self._lanes:
            if lane.upstream is upstream and lane.fits(needs):
                break
        else:
            lane = self.find(upstream, unnamed, roots=None)
            await lane.adopt(folders)
        lane.used_at = self._now()
        return lane

    async def find_shaken(self, upstream: Upstream, needs: Needs, *, roots: Callable[[], Any] | None) -> Lane | None:
        """Return an open connection with a handshake, on which a server of both eras can ask; None if refused.

        The outcome is remembered: a server that refuses the handshake is not tried again.

        Raises:
            ServerUnavailable: the server may not be started, or the session has ended.
            AuthError, HttpError, RequestFailed: the server requires a login.
        """
        try:
            lane = self.find(upstream, replace(needs, handshake=True), roots=roots)
        except TooManyRequests:
            # The shared connection has room, and serves every call without server requests.
            return None
        with lane.kept():
            shook = await self._shakes(lane)
        if shook:
            upstream.shakes = True
            return lane
        if upstream.shakes is None:
            upstream.shakes = False
        if not lane.busy:
            await self.drop(lane)
        return None

    async def _shakes(self, lane: Lane) -> bool:
        try:
            return may_ask(await lane.open())
        except TrunklineError as error:
            if isinstance(error, ServerUnavailable) or wants_login(error):
                if lane.keepers <= 1 and not lane.calls:
                    await self.drop(lane)
                raise
            log.info("%s is used without a handshake: %s", lane.upstream.entry.name, error)
            return False

    def _logged(self, message: t.LoggingMessageNotificationParams) -> None:
        if self.on_log is not None:
            self.on_log(message)

    def used(self, lane: Lane) -> None:
        """Record that a connection was in use until now."""
        lane.used_at = self._now()

    async def drop(self, lane: Lane) -> None:
        """Close a connection and remove it from the pool."""
        if lane in self._lanes:
            self._lanes.remove(lane)
            await _close(lane)

    def doubt(self, lane: Lane) -> None:
        """Called when a call timed out: check the connection, and close it if its process hangs."""
        if lane.doubted is None and lane in self._lanes:
            lane.doubted = asyncio.get_running_loop().create_task(self._examine(lane))

    async def _examine(self, lane: Lane) -> None:
        hangs = False
        try:
            hangs = await lane.hangs()
            if hangs:
                log.info("a connection to %s is unresponsive and is closed", lane.upstream.entry.name)
                await self.drop(lane)
        finally:
            if not hangs:
                lane.doubted = None

    def _make_room(self, upstream: Upstream) -> None:
        """Close the longest idle connection, of any session, if the server is at its limit.

        Raises:
            TooManyRequests: all of them are in use.
        """
        most = upstream.entry.settings.dedicated_most
        every = (self,) if self.house is None else self.house.all()
        there = [(lanes, lane) for lanes in every for lane in lanes.to(upstream)]
        if len(there) < most:
            return
        idle = [(lanes, lane) for lanes, lane in there if not lane.busy]
        if not idle:
            raise TooManyRequests(
                f"{upstream.entry.name} has {most} connections for single sessions, all of them in use; try again "
                "later, or raise dedicatedMost in its entry",
                data={"limit": "dedicatedMost", "allowed": most, "retryAfter": 5},
            )
        lanes, oldest = min(idle, key=lambda pair: pair[1].used_at)
        lanes._evict(oldest)

    def _evict(self, lane: Lane) -> None:
        self._lanes.remove(lane)
        task = asyncio.get_running_loop().create_task(_close(lane))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def sweep(self, idle: float | None, keeps: Callable[[Upstream], bool]) -> None:
        """Close the connections that were idle for ``idle`` seconds, and those of servers that were removed.

        Without a number of seconds, the setting of each server counts.
        """
        now = self._now()

        def is_over(lane: Lane) -> bool:
            usual = -1.0 if self.abandoned else lane.upstream.entry.settings.dedicated_idle
            seconds = usual if idle is None else idle
            return lane.over or not keeps(lane.upstream) or (not lane.busy and lane.used_at < now - seconds)

        over = [lane for lane in self._lanes if is_over(lane)]
        self._lanes = [lane for lane in self._lanes if lane not in over]
        await asyncio.gather(*map(_close, over))

    async def aclose(self) -> None:
        """Close all connections."""
        self.ended = True
        lanes, self._lanes = self._lanes, []
        await asyncio.gather(*map(_close, lanes), *self._closing)


async def _close(lane: Lane) -> None:
    try:
        await lane.aclose()
    except TrunklineError as error:
        log.debug("closing a connection to %s: %s", lane.upstream.entry.name, error)
