"""The subscriptions of one event loop to the channels of an SQLite store.

Messages are rows of a table, so their order is that of the transactions. After each transaction the process that
published wakes the listeners of its channels by a datagram to their sockets, which lie beside the file; they read the
table. A wake-up that is lost costs no message: a listener looks once a second by itself, and finds out then if it was
taken for dead. Where there are no such sockets it looks every few milliseconds whether the file has changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sqlite3
import time
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, TypeVar

from trunkline.errors import StoreUnavailable
from trunkline.store.sqlite_tables import Message, Messages, Tables
from trunkline.store.sqlite_thread import POLLING, socket_address

__all__ = ["SqliteChannels"]

log = logging.getLogger("trunkline.store")

T = TypeVar("T")

#: Seconds after which a listener looks for messages by itself: with a socket, and without one.
_CHECK_SECONDS, _POLL_SECONDS = 1.0, 0.01
#: A listener without a socket is taken for dead after so many seconds, and renews itself in time.
_POLLING_LEASE, _RENEW_SECONDS = 15.0, 5.0
#: Messages that are read at once; other work of the loop goes on in between.
_PAGE = 200

Submit = Callable[[Callable[[Tables], Any]], Awaitable[Any]]


class _Subscription:
    __slots__ = ("_channels", "channel", "early", "missed", "receive", "since")

    def __init__(
        self,
        channels: SqliteChannels,
        channel: str,
        receive: Callable[[bytes], None],
        missed: Callable[[], None] | None,
    ) -> None:
        self._channels = channels
        self.channel = channel
        self.receive = receive
        self.missed = missed
        #: The last message before the subscription; None until that is known.
        self.since: int | None = None
        #: What arrived until then.
        self.early: list[Message] = []

    async def close(self) -> None:
        await self._channels.unsubscribe(self)

    def deliver(self, message: Message) -> None:
        if self.since is None:
            self.early.append(message)
        elif message.id > self.since:
            _call(self.receive, message.data)

    def begin(self, since: int) -> None:
        """Deliver from now on, first what has arrived since the subscription."""
        self.since = since
        early, self.early = self.early, []
        for message in early:
            self.deliver(message)


class SqliteChannels:
    """The channels that an event loop listens on."""

    def __init__(
        self, path: str, *, submit: Submit, read: Callable[[Callable[[Tables], Messages | None]], Messages | None]
    ) -> None:
        """Use the store in a file; ``submit`` runs work in a transaction, ``read`` at once, without writing."""
        self._folder, self._name = os.path.split(path)
        self._submit = submit
        self._read = read
        self._loop = asyncio.get_running_loop()
        self._by_channel: dict[str, list[_Subscription]] = {}
        #: Channels whose end could not be written.
        self._not_ended: set[str] = set()
        self._socket: socket.socket | None = None
        self._descriptor = -1
        self._listener_name = ""
        self._listener: int | None = None
        self._seen = 0
        self._timer: asyncio.TimerHandle | None = None
        self._renewed_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def subscribe(
        self, channel: str, receive: Callable[[bytes], None], missed: Callable[[], None] | None
    ) -> _Subscription:
        """Subscribe, so that every message of later transactions arrives.

        Raises:
            StoreUnavailable: that could not be written.
        """
        if not self._listener_name:
            self._listen()
        subscription = _Subscription(self, channel, receive, missed)
        self._by_channel.setdefault(channel, []).append(subscription)
        self._not_ended.discard(channel)
        try:
            subscription.begin(await self._register([channel]))
        except BaseException:
            await self.unsubscribe(subscription)
            raise
        return subscription

    async def unsubscribe(self, subscription: _Subscription) -> None:
        """Remove a subscription; never raises for a store that cannot be reached."""
        others = self._by_channel.get(subscription.channel, [])
        if subscription not in others:
            return
        others.remove(subscription)
        if not others:
            del self._by_channel[subscription.channel]
            if self._by_channel:
                await self._end([subscription.channel])
            else:
                await self._stop_listening()

    async def aclose(self) -> None:
        """End all subscriptions."""
        self._closed = True
        self._by_channel.clear()
        await self._stop_listening()

    def close(self) -> None:
        """Stop at once; the process that publishes next finds out and removes the listener."""
        self._closed = True
        self._by_channel.clear()
        self._close_socket()

    def replaced(self) -> None:
        """Called when another file has taken the place of the one that was open."""
        self._listener = None
        self._register_again()

    # --- the listener ------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Open a socket beside the file; without one, poll."""
        random = os.urandom(6).hex()
        try:
            self._descriptor = os.open(self._folder, os.O_RDONLY)
            name = f"{self._name}-wake-{random}"
            opened = self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            opened.setblocking(False)
            address = socket_address(self._folder, self._descriptor, name)
            opened.bind(address)
            os.chmod(address, 0o600)
            self._listener_name = name
            self._loop.add_reader(opened.fileno(), self._woken)
        except (OSError, AttributeError, NotImplementedError):
            # No sockets in the file system, or an event loop that cannot watch them.
            log.debug("the store in %s has no socket beside it, and is polled", self._folder, exc_info=True)
            self._close_socket()
            self._listener_name = f"{POLLING}{random}"
        self._check_later()

    async def _stop_listening(self) -> None:
        listener = self._listener
        self._close_socket()
        if listener is not None:
            with contextlib.suppress(StoreUnavailable):
                await self._submit(lambda tables: tables.remove_listeners([listener]))

    def _close_socket(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        if self._socket is not None:
            if self._socket.fileno() >= 0:
                with contextlib.suppress(NotImplementedError):
                    self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._folder, self._listener_name))
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._not_ended.clear()
        self._listener, self._listener_name = None, ""

    @property
    def _polls(self) -> bool:
        return self._socket is None

    async def _register(self, channels: list[str]) -> int:
        """Write subscriptions; return the id of the last message before them."""
        until = time.time() + _POLLING_LEASE if self._polls else inf
        self._renewed_at = time.monotonic()
        listener, last = await self._submit(lambda tables: tables.subscribe(self._listener_name, channels, until))
        if self._listener != listener:
            self._listener, self._seen = listener, last
        # A message may have arrived before its listener was known here.
        self._read_messages()
        return int(last)

    async def _end(self, channels: list[str]) -> None:
        listener = self._listener
        # One may have been subscribed again before this task began.
        channels = [channel for channel in channels if channel not in self._by_channel]
        if listener is None or not channels:
            return
        try:
            await self._submit(lambda tables: tables.unsubscribe(listener, channels))
        except StoreUnavailable:
            self._not_ended.update(channel for channel in channels if channel not in self._by_channel)

    # --- messages ----------------------------------------------------------------------------------------------------

    def _woken(self) -> None:
        assert self._socket is not None
        with contextlib.suppress(BlockingIOError, InterruptedError):
            while self._socket.recv(16):
                pass
        self._read_messages()

    def _read_messages(self) -> None:
        listener, seen = self._listener, self._seen
        if listener is None or self._closed:
            return
        try:
            found = self._read(lambda tables: tables.messages(listener, seen, _PAGE))
        except sqlite3.Error:
            # Tried again by the next check; the thread finds out what is wrong with the file.
            if not self._tasks:
                self._spawn(self._probe())
            return
        if found is None:
            self._listener = None
            self._register_again()
            return
        self._seen = found.last
        if found.missed:
            self._report_missed()
        for message in found.messages:
            for subscription in tuple(self._by_channel.get(message.channel, ())):
                subscription.deliver(message)
        if len(found.messages) == _PAGE:
            self._loop.call_soon(self._read_messages)

    def _report_missed(self) -> None:
        for subscription in [each for several in self._by_channel.values() for each in several]:
            if subscription.missed is not None:
                _call(subscription.missed)

    def _register_again(self) -> None:
        """Subscribe to all channels after this listener was taken for dead, or the file was replaced."""

        async def register() -> None:
            with contextlib.suppress(StoreUnavailable):
                await self._register([*self._by_channel])
                self._report_missed()

        if self._by_channel and not self._closed:
            self._spawn(register())

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work, name="trunkline-channels")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- checks ------------------------------------------------------------------------------------------------------

    def _check_later(self) -> None:
        self._timer = self._loop.call_later(_POLL_SECONDS if self._polls else _CHECK_SECONDS, self._check)

    def _check(self) -> None:
        if self._closed:
            return
        if self._listener is None and not self._tasks:
            self._register_again()
        elif self._polls and time.monotonic() - self._renewed_at > _RENEW_SECONDS and not self._tasks:
            self._spawn(self._renew())
        if self._not_ended and not self._tasks:
            channels, self._not_ended = [*self._not_ended], set()
            self._spawn(self._end(channels))
        self._read_messages()
        self._check_later()

    async def _probe(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self._submit(Tables.generation)

    async def _renew(self) -> None:
        listener, until = self._listener, time.time() + _POLLING_LEASE
        self._renewed_at = time.monotonic()
        if listener is not None:
            with contextlib.suppress(StoreUnavailable):
                await self._submit(lambda tables: tables.renew_listener(listener, until))


def _call(callback: Callable[..., None], *args: object) -> None:
    try:
        callback(*args)
    except Exception:
        log.exception("a subscriber of the store failed")
