"""The subscriptions of one process to Redis channels, over one connection.

The connection is made again when it breaks; then all channels are subscribed again, and each subscriber learns that
messages may be missing. Only this module reads from the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from redis.asyncio import ConnectionPool
from redis.exceptions import RedisError

from trunkline.errors import StoreUnavailable
from trunkline.store.stats import StoreStats

__all__ = ["Channels", "is_cancelled", "reason"]

log = logging.getLogger("trunkline.store")

#: Seconds between two attempts to connect again; doubled after each, up to the second.
_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
#: AttributeError, RuntimeError: redis-py, when the connection is dropped while it is used.
_FAILURES = (RedisError, OSError, TimeoutError, AttributeError, RuntimeError)


def is_cancelled() -> bool:
    """Return whether the current task was cancelled; before Python 3.12 ``asyncio.wait_for`` swallows some of this."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def reason(error: BaseException) -> str:
    """Return what an error says, or its type if it says nothing, as a timeout does."""
    return str(error) or type(error).__name__


class _ChannelSubscription:
    __slots__ = ("_channels", "_name", "missed", "receive")

    def __init__(
        self, channels: Channels, name: str, receive: Callable[[bytes], None], missed: Callable[[], None] | None
    ) -> None:
        self._channels = channels
        self._name = name
        self.receive = receive
        self.missed = missed

    async def close(self) -> None:
        await self._channels.unsubscribe(self._name, self)


class Channels:
    """The channels that a process listens on."""

    def __init__(
        self, pool: ConnectionPool, *, prefix: str, own: str, timeout: float, stats: StoreStats | None = None
    ) -> None:
        """Use the settings of a pool; ``own`` is a channel that is always subscribed."""
        self._pool = pool
        self._prefix = prefix
        self._own = own
        #: When the oldest message to itself was sent that has not arrived; None if all have.
        self._sent_at: float | None = None
        self._timeout = timeout
        self._connection: Any = None
        self._task: asyncio.Task[None] | None = None
        self._by_name: dict[str, list[_ChannelSubscription]] = {own: []}
        #: Resolved when Redis has confirmed the subscription to a channel.
        self._confirmations: dict[str, asyncio.Future[None]] = {}
        self._stats = StoreStats() if stats is None else stats
        self._connected = asyncio.Event()
        self._starting = asyncio.Lock()

    @property
    def connected(self) -> bool:
        """Whether all channels are subscribed."""
        return self._connected.is_set()

    def sending_to_itself(self) -> None:
        """Called before this process publishes on its own channel."""
        if self._sent_at is None:
            self._sent_at = asyncio.get_running_loop().time()

    def not_sent_to_itself(self) -> None:
        """Called when that failed: no message is expected."""
        self._sent_at = None

    @property
    def silent(self) -> bool:
        """Whether a message to itself did not arrive in time: the connection seems open, and delivers nothing."""
        return self._sent_at is not None and asyncio.get_running_loop().time() - self._sent_at > self._timeout

    async def start(self) -> None:
        """Connect, unless that was done already.

        Raises:
            StoreUnavailable: that failed.
        """
        # Several parts of a worker may start at once.
        async with self._starting:
            if self._task is not None:
                return
            try:
                await self._connect()
            except (RedisError, OSError, TimeoutError) as error:
                raise StoreUnavailable(f"Redis cannot be reached: {reason(error)}") from error
            self._task = asyncio.get_running_loop().create_task(self._run(), name="trunkline-channels")

    async def subscribe(
        self, name: str, receive: Callable[[bytes], None], missed: Callable[[], None] | None
    ) -> _ChannelSubscription:
        """Subscribe, and wait until Redis has confirmed it.

        Raises:
            StoreUnavailable: it did not.
        """
        subscription = _ChannelSubscription(self, name, receive, missed)
        known = name in self._by_name
        self._by_name.setdefault(name, []).append(subscription)
        try:
            if not self.connected:
                raise StoreUnavailable("Redis cannot be reached")
            confirmed = self._confirmations.get(name)
            if not known or (confirmed is not None and confirmed.done() and confirmed.exception() is not None):
                confirmed = self._confirmations[name] = asyncio.get_running_loop().create_future()
                async with asyncio.timeout(self._timeout):
                    await self._connection.send_command("SUBSCRIBE", self._prefix + name)
            if confirmed is not None:
                async with asyncio.timeout(self._timeout):
                    await asyncio.shield(confirmed)
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

    async def aclose(self) -> None:
        """Disconnect."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._disconnected()
        self._by_name.clear()
        await self.drop()

    # --- the connection ----------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        connection: Any = self._pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(self._timeout):
                await connection.connect()
                wanted = [self._prefix + name for name in self._by_name]
                await connection.send_command("SUBSCRIBE", *wanted)
                for _ in wanted:
                    await connection.read_response()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._connection = connection
        self._sent_at = None
        self._connected.set()

    async def _run(self) -> None:
        while not is_cancelled():
            try:
                while not is_cancelled():
                    self._received(await self._connection.read_response(disconnect_on_error=False))
            except _FAILURES as error:
                log.warning("the connection for channels of the store broke: %s", reason(error))
            self._disconnected()
            await self.drop()
            await self._connect_again()

    async def _connect_again(self) -> None:
        pause = _PAUSE
        while not is_cancelled():
            await asyncio.sleep(pause)
            # Channels may be added while this waits; those are not subscribed yet, and their subscribers got an error.
            try:
                await self._connect()
            except (RedisError, OSError, TimeoutError):
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            break
        self._stats.reconnects += 1
        for subscription in [each for found in self._by_name.values() for each in found]:
            if subscription.missed is not None:
                _call(subscription.missed)

    def _disconnected(self) -> None:
        self._connected.clear()
        for confirmation in self._confirmations.values():
            if not confirmation.done():
                confirmation.set_exception(StoreUnavailable("Redis cannot be reached"))
                confirmation.exception()
        self._confirmations.clear()

    def _received(self, response: Any) -> None:
        kind, channel = response[0], response[1].decode()[len(self._prefix) :]
        if kind == b"message":
            if channel == self._own:
                self._sent_at = None
            for subscription in tuple(self._by_name.get(channel, ())):
                _call(subscription.receive, response[2])
        elif kind == b"subscribe":
            confirmation = self._confirmations.get(channel)
            if confirmation is not None and not confirmation.done():
                confirmation.set_result(None)


def _call(callback: Callable[..., None], *args: object) -> None:
    try:
        callback(*args)
    except Exception:
        log.exception("a subscriber of the store failed")
