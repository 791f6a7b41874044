"""The subscriptions of one process to Redis channels, over one connection.

The connection is made again when it breaks; then all channels are subscribed again, and each subscriber learns that
messages may be missing. A subscription that is made meanwhile waits for it. Only this module reads from the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any

from redis.exceptions import RedisError

from trunkline.errors import StoreUnavailable
from trunkline.store.redis_connection import RedisAddress, is_cancelled, reason
from trunkline.store.stats import StoreStats

__all__ = ["RedisChannels"]

log = logging.getLogger("trunkline.store")

#: Seconds between two attempts to connect again; doubled after each, up to the second.
_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
#: How many channels are subscribed by one command.
_GROUP = 500
#: AttributeError, RuntimeError: redis-py, when the connection is dropped while it is used.
_FAILURES = (RedisError, OSError, TimeoutError, AttributeError, RuntimeError)


class _ChannelSubscription:
    __slots__ = ("_channels", "_name", "missed", "receive")

    def __init__(
        self, channels: RedisChannels, name: str, receive: Callable[[bytes], None], missed: Callable[[], None] | None
    ) -> None:
        self._channels = channels
        self._name = name
        self.receive = receive
        self.missed = missed

    async def close(self) -> None:
        await self._channels.unsubscribe(self._name, self)


class RedisChannels:
    """The channels that a process listens on."""

    def __init__(
        self,
        address: RedisAddress,
        *,
        prefix: str,
        own: str,
        timeout: float,
        stats: StoreStats,
        before_missed: Callable[[], Awaitable[None]],
    ) -> None:
        """Use an address; ``own`` is a channel that is always subscribed.

        ``before_missed`` is awaited before subscribers learn that messages may be missing: they read at once what they
        missed, for which commands must work.
        """
        self._address = address
        self._before_missed = before_missed
        self._prefix = prefix
        self._own = own
        #: When a message to itself was sent since which nothing has arrived; None if something has.
        self._sent_at: float | None = None
        self._timeout = timeout
        self._connection: Any = None
        self._task: asyncio.Task[None] | None = None
        self._by_name: dict[str, list[_ChannelSubscription]] = {own: []}
        #: Resolved when Redis has confirmed the subscription to a channel.
        self._confirmations: dict[str, asyncio.Future[None]] = {}
        self._stats = stats
        self._connected = asyncio.Event()
        self._try_now = asyncio.Event()
        self._starting = asyncio.Lock()
        #: Whether the last attempt to connect succeeded: a connection that has just broken is not lost yet.
        self.reachable: bool = False

    @property
    def connected(self) -> bool:
        """Whether all channels are subscribed."""
        return self._connected.is_set()

    @property
    def started(self) -> bool:
        """Whether `start` was called, which keeps trying."""
        return self._task is not None

    def sending_to_itself(self) -> object | None:
        """Called before this process publishes on its own channel; return the connection that must deliver it."""
        if self._sent_at is None:
            self._sent_at = asyncio.get_running_loop().time()
        return self._connection if self.connected else None

    def is_connected_by(self, connection: object | None) -> bool:
        """Return whether all channels are subscribed by this connection: another one may have missed the message."""
        return connection is not None and connection is self._connection and self.connected

    def not_sent_to_itself(self) -> None:
        """Called when that failed: no message is expected."""
        self._sent_at = None

    @property
    def silent(self) -> bool:
        """Whether nothing arrived since a message to itself was sent: it seems to be open, and delivers nothing."""
        return self._sent_at is not None and asyncio.get_running_loop().time() - self._sent_at > self._timeout

    async def start(self) -> None:
        """Connect, unless that was done already; if it fails, it is tried again until it succeeds.

        Raises:
            StoreUnavailable: it failed.
        """
        # Several parts of a worker may start at once.
        async with self._starting:
            try:
                if self._task is not None:
                    self._try_now.set()
                    async with asyncio.timeout(self._timeout):
                        await self._connected.wait()
                    return
                try:
                    await self._connect()
                finally:
                    self._task = asyncio.get_running_loop().create_task(self._run(), name="trunkline-channels")
            except _FAILURES as error:
                raise StoreUnavailable(f"Redis cannot be reached: {reason(error)}") from error

    def try_now(self) -> None:
        """Connect at once if the connection is lost; called when Redis answers again."""
        self._try_now.set()

    async def subscribe(
        self, name: str, receive: Callable[[bytes], None], missed: Callable[[], None] | None
    ) -> _ChannelSubscription:
        """Subscribe, and wait until Redis has confirmed it; `fail_pending` ends the wait.

        Raises:
            StoreUnavailable: it did not.
        """
        subscription = _ChannelSubscription(self, name, receive, missed)
        is_new = name not in self._by_name
        self._by_name.setdefault(name, []).append(subscription)
        try:
            confirmation = self._confirmations.get(name)
            if confirmation is None and (is_new or not self.connected):
                confirmation = self._confirmations[name] = asyncio.get_running_loop().create_future()
                if self.connected:
                    async with asyncio.timeout(self._timeout):
                        await self._connection.send_command("SUBSCRIBE", self._prefix + name)
            if confirmation is not None:
                await asyncio.shield(confirmation)
        except (*_FAILURES, StoreUnavailable) as error:
            await self.unsubscribe(name, subscription)
            raise StoreUnavailable(f"Redis cannot be reached: {reason(error)}") from error
        except asyncio.CancelledError:
            await self.unsubscribe(name, subscription)
            raise
        return subscription

    async def unsubscribe(self, name: str, subscription: _ChannelSubscription) -> None:
        """Remove a subscription."""
        others = self._by_name.get(name, [])
        if subscription not in others:
            return
        others.remove(subscription)
        if not others:
            del self._by_name[name]
            if (confirmation := self._confirmations.pop(name, None)) is not None and not confirmation.done():
                confirmation.cancel()
            if self.connected:
                with contextlib.suppress(*_FAILURES):
                    async with asyncio.timeout(self._timeout):
                        await self._connection.send_command("UNSUBSCRIBE", self._prefix + name)

    async def drop(self) -> None:
        """Break the connection, which no longer delivers; it is made again."""
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)

    def fail_pending(self) -> None:
        """Let every subscription fail that waits for Redis."""
        pending, self._confirmations = self._confirmations, {}
        for confirmation in pending.values():
            if not confirmation.done():
                confirmation.set_exception(StoreUnavailable("it does not answer"))
                confirmation.exception()

    async def aclose(self) -> None:
        """Disconnect."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._connected.clear()
        self.reachable = False
        self.fail_pending()
        self._by_name.clear()
        await self.drop()

    # --- the connection ----------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        connection: Any = self._address.connection()
        loop = asyncio.get_running_loop()
        # A dict as a set that keeps its order.
        subscribed: dict[str, None] = {}
        try:
            async with asyncio.timeout(self._timeout) as deadline:
                await connection.connect()
                # Channels may be added and removed while it waits.
                while added := tuple(islice((name for name in self._by_name if name not in subscribed), _GROUP)):
                    await connection.send_command("SUBSCRIBE", *(self._prefix + name for name in added))
                    subscribed.update(dict.fromkeys(added))
                    confirmed = 0
                    while confirmed < len(added):
                        # Messages in between are missed, as those before them.
                        confirmed += (await connection.read_response())[0] == b"subscribe"
                    # Thousands may take longer than one answer.
                    deadline.reschedule(loop.time() + self._timeout)
                if removed := [name for name in subscribed if name not in self._by_name]:
                    await connection.send_command("UNSUBSCRIBE", *(self._prefix + name for name in removed))
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._connection = connection
        self._sent_at = None
        self._connected.set()
        self.reachable = True
        for name in tuple(self._confirmations):
            self._confirm(name)

    async def _run(self) -> None:
        while not is_cancelled():
            try:
                if not self.connected:
                    await self._connect_again()
                while not is_cancelled():
                    self._received(await self._connection.read_response(disconnect_on_error=False))
            except _FAILURES as error:
                log.warning("the connection for channels of the store broke: %s", reason(error))
            except Exception:
                # Whatever it is: channels that are not connected again would be silent for ever.
                log.exception("the connection for channels of the store failed")
            self._connected.clear()
            with contextlib.suppress(*_FAILURES):
                await self.drop()

    async def _connect_again(self) -> None:
        pause = _PAUSE
        while not is_cancelled():
            self._try_now.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._try_now.wait()
            try:
                await self._connect()
            except _FAILURES:
                self.reachable = False
                self.fail_pending()
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            break
        self._stats.reconnects += 1
        await self._before_missed()
        for subscription in [each for subscribed in self._by_name.values() for each in subscribed]:
            if subscription.missed is not None:
                _call(subscription.missed)

    def _confirm(self, name: str) -> None:
        confirmation = self._confirmations.pop(name, None)
        if confirmation is not None and not confirmation.done():
            confirmation.set_result(None)

    def _received(self, response: Any) -> None:
        kind, channel = response[0], response[1].decode()[len(self._prefix) :]
        self._sent_at = None
        if kind == b"message":
            for subscription in tuple(self._by_name.get(channel, ())):
                _call(subscription.receive, response[2])
        elif kind == b"subscribe":
            self._confirm(channel)


def _call(callback: Callable[..., None], *args: object) -> None:
    try:
        callback(*args)
    except Exception:
        log.exception("a subscriber of the store failed")
