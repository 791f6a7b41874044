"""One connection to Redis over which all commands of a process go.

Commands do not wait for each other: those of one turn of the event loop leave in one write, and replies are matched in
order. Only so many are under way at once; the others wait in a queue that is bounded in commands and bytes, not in
time. A Redis that is slow under load is no lost one: the connection counts as lost when it breaks, or when not a single
reply came for the timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from redis.asyncio import ConnectionPool, Sentinel
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from trunkline.errors import StoreUnavailable

__all__ = ["CommandConnection", "RedisAddress", "Request", "is_cancelled", "reason"]

#: How many commands, and of how many bytes, are under way at once; more of them would only wait in Redis, where the
#: time that a reply takes would no longer say whether it is there.
_WINDOW, _WINDOW_BYTES = 256, 4 * 1024 * 1024
#: How many commands and bytes may wait: a process that wants more than Redis can do must get an error.
_WAITING, _WAITING_BYTES = 50_000, 64 * 1024 * 1024
#: After so many replies other tasks run.
_TURN = 64
#: The timeout is counted in looks: a loop that stood still has looked once, and then reads what has arrived.
_LOOKS = 4
#: AttributeError, RuntimeError: redis-py, when the connection is dropped while it is used. IndexError: a reply that
#: nothing waits for.
_FAILURES = (RedisError, OSError, TimeoutError, AttributeError, RuntimeError, IndexError)

#: Sends commands before all others, and returns the reply to each; an error is returned too.
Request: TypeAlias = "Callable[[Sequence[tuple[Any, ...]]], Awaitable[list[Any]]]"


def is_cancelled() -> bool:
    """Return whether the current task was cancelled; before Python 3.12 ``asyncio.wait_for`` swallows some of this."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def reason(error: BaseException) -> str:
    """Return what an error says, or its type if it says nothing, as a timeout does."""
    return str(error) or type(error).__name__


class RedisAddress:
    """Where Redis is: at one address, or wherever Sentinel says that the master is."""

    def __init__(self, url: str, *, timeout: float) -> None:
        """Parse a URL: ``redis://``, ``rediss://``, ``unix://`` or ``redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB``.

        The user and the password of the last, and TLS (``rediss+sentinel://``), are those of Redis; those of Sentinel
        are ``?sentinel_username=…&sentinel_password=…``.

        Raises:
            ValueError: the URL is not valid.
        """
        settings: dict[str, Any] = {
            "socket_connect_timeout": timeout,
            "socket_timeout": None,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "client_name": "trunkline",
        }
        self._sentinel: Sentinel | None = None
        self._pool: ConnectionPool
        if url.partition("://")[0] in ("redis+sentinel", "rediss+sentinel"):
            self._sentinel, self._pool = _sentinel_pool(url, settings, timeout)
        else:
            self._pool = ConnectionPool.from_url(url, **settings)

    @property
    def is_fixed(self) -> bool:
        """Whether it is one address."""
        return self._sentinel is None

    def connection(self) -> Any:
        """Return a new connection, which is not connected yet."""
        return self._pool.make_connection()  # type: ignore[no-untyped-call]

    async def aclose(self) -> None:
        """Close the connections to Sentinel."""
        if self._sentinel is not None:
            for client in self._sentinel.sentinels:
                await client.aclose()


def _sentinel_pool(url: str, settings: dict[str, Any], timeout: float) -> tuple[Sentinel, SentinelConnectionPool]:
    parts = urlsplit(url)
    userinfo, _, hosts = parts.netloc.rpartition("@")
    service, _, database = parts.path.strip("/").partition("/")
    if not service or not hosts:
        raise ValueError("a Sentinel URL names its hosts and the service")
    addresses = []
    for address in hosts.split(","):
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "26379")
        addresses.append((host.strip("[]"), int(port)))
    username, colon, password = userinfo.partition(":")
    if userinfo:
        settings |= {"username": unquote(username) or None, "password": unquote(password) if colon else None}
    settings["db"] = int(database or 0)
    if parts.scheme.startswith("rediss"):
        settings["ssl"] = True
    options = {name: values[0] for name, values in parse_qs(parts.query).items()}
    # All of them may be asked, one after another, within the time for one connection.
    share = timeout / (2 * len(addresses))
    sentinel_settings = {
        "socket_connect_timeout": share,
        "socket_timeout": share,
        "retry": Retry(NoBackoff(), 0),
        "username": options.get("sentinel_username"),
        "password": options.get("sentinel_password"),
    }
    sentinel = Sentinel(addresses, sentinel_kwargs=sentinel_settings)  # type: ignore[no-untyped-call]
    pool = SentinelConnectionPool(unquote(service), sentinel, **settings)  # type: ignore[no-untyped-call]
    return sentinel, pool


class _Call:
    __slots__ = ("chunks", "future", "looks", "repeatable", "size")

    def __init__(self, chunks: list[bytes], future: asyncio.Future[Any], repeatable: bool) -> None:
        self.chunks = chunks
        self.size = sum(map(len, chunks))
        self.future = future
        self.repeatable = repeatable
        #: The number of the look before which it was sent.
        self.looks = 0

    def fail(self, message: str) -> None:
        if not self.future.done():
            self.future.set_exception(StoreUnavailable(message))
            # Retrieved here, so that asyncio does not report it if nothing awaits it any more.
            self.future.exception()


class CommandConnection:
    """The commands of one process, and the connection that they go over."""

    def __init__(self, address: RedisAddress, *, timeout: float, on_lost: Callable[[BaseException], None]) -> None:
        """Use an address; ``on_lost`` is called when the connection is lost, not if it is closed."""
        self._connection = address.connection()
        self._timeout = timeout
        self._on_lost = on_lost
        self._waiting: deque[_Call] = deque()
        self._waiting_bytes = 0
        self._under_way: deque[_Call] = deque()
        self._bytes_under_way = 0
        self._writable = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._looks = 0
        #: How many looks found that commands are under way, and no reply came.
        self._silent_looks = 0
        self._has_replied = False
        self.connected: bool = False

    def call(self, *command: Any, repeatable: bool = False) -> asyncio.Future[Any]:
        """Send a command; the future has its reply, an error reply as the exception.

        It waits while there is no connection, until `fail_waiting`. One that is ``repeatable`` is sent again if the
        connection breaks meanwhile.

        Raises:
            StoreUnavailable: too many wait already.
        """
        if len(self._waiting) >= _WAITING or self._waiting_bytes >= _WAITING_BYTES:
            raise StoreUnavailable("Redis is too slow: too many commands wait for it")
        call = _Call(self._connection.pack_command(*command), asyncio.get_running_loop().create_future(), repeatable)
        self._waiting.append(call)
        self._waiting_bytes += call.size
        if len(self._under_way) < _WINDOW:
            self._writable.set()
        return call.future

    async def open(self, prepare: Callable[[Request], Awaitable[None]]) -> None:
        """Connect, prepare the connection, then send what waits; all but the last for a bounded time.

        Raises:
            RedisError, OSError, TimeoutError: that failed.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await self._disconnect()
                await self._connection.connect()
                await prepare(self._request)
        except BaseException:
            await self._disconnect()
            raise
        loop = asyncio.get_running_loop()
        self.connected = self._has_replied = True
        self._silent_looks = 0
        self._writable.set()
        self._tasks = [
            loop.create_task(self._guard(self._write), name="trunkline-redis-write"),
            loop.create_task(self._guard(self._read), name="trunkline-redis-read"),
        ]
        self._timer = loop.call_later(self._timeout / _LOOKS, self._look)

    def drop(self, error: BaseException) -> None:
        """Drop the connection, as if it had broken: this Redis cannot serve commands."""
        self._lose(error, repeat=False)

    def fail_waiting(self, message: str) -> None:
        """Let every command fail that was not sent."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        for call in waiting:
            call.fail(message)

    async def aclose(self) -> None:
        """Disconnect; what has no reply fails."""
        self._stop("the store was closed", repeat=False)
        self.fail_waiting("the store was closed")
        await self._disconnect(nowait=False)

    # --- the connection ----------------------------------------------------------------------------------------------

    async def _request(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        await self._connection.send_packed_command(self._connection.pack_commands(commands), check_health=False)
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await self._connection.read_response())
            except ResponseError as error:
                replies.append(error)
        return replies

    async def _disconnect(self, *, nowait: bool = True) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        with contextlib.suppress(RedisError, OSError):
            await self._connection.disconnect(nowait=nowait)

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except _FAILURES as error:
            self._lose(error, repeat=True)

    async def _write(self) -> None:
        while not is_cancelled():
            await self._writable.wait()
            self._writable.clear()
            if chunks := self._next_chunks():
                await self._connection.send_packed_command(chunks, check_health=False)

    def _next_chunks(self) -> list[bytes]:
        """Return what is to be written next: as many commands as the window has room for, at least one."""
        chunks: list[bytes] = []
        while self._waiting and len(self._under_way) < _WINDOW and self._bytes_under_way < _WINDOW_BYTES:
            call = self._waiting.popleft()
            self._waiting_bytes -= call.size
            if call.future.done():
                # Its caller was cancelled.
                continue
            call.looks = self._looks
            self._under_way.append(call)
            self._bytes_under_way += call.size
            chunks += call.chunks
        return chunks

    async def _read(self) -> None:
        count = 0
        while not is_cancelled():
            reply: Any
            try:
                reply = await self._connection.read_response(disconnect_on_error=False)
            except ResponseError as error:
                reply = error
            self._received(reply)
            count += 1
            if count % _TURN == 0:
                await asyncio.sleep(0)

    def _received(self, reply: Any) -> None:
        call = self._under_way.popleft()
        self._bytes_under_way -= call.size
        self._has_replied = True
        if not call.future.done():
            if isinstance(reply, ResponseError):
                call.future.set_exception(reply)
                call.future.exception()
            else:
                call.future.set_result(reply)
        # Not after each reply: under load that would be a write for each command.
        if self._waiting and len(self._under_way) <= _WINDOW // 2:
            self._writable.set()

    # --- failures ----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Look whether replies come."""
        self._looks += 1
        self._silent_looks = self._silent_looks + 1 if self._under_way and not self._has_replied else 0
        self._has_replied = False
        if self._silent_looks > _LOOKS:
            self._lose(TimeoutError(f"no reply for {self._timeout:g} seconds"), repeat=False)
            return
        for call in self._under_way:
            if self._silent_looks or self._looks - call.looks <= _LOOKS:
                break
            # Others get theirs: the connection is there.
            call.fail(f"Redis did not answer in {self._timeout:g} seconds")
        self._timer = asyncio.get_running_loop().call_later(self._timeout / _LOOKS, self._look)

    def _lose(self, error: BaseException, *, repeat: bool) -> None:
        if self.connected:
            self._stop(f"Redis did not answer: {reason(error)}", repeat=repeat)
            self._on_lost(error)

    def _stop(self, message: str, *, repeat: bool) -> None:
        self.connected = False
        if self._timer is not None:
            self._timer.cancel()
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        under_way, self._under_way, self._bytes_under_way = self._under_way, deque(), 0
        for call in reversed(under_way):
            if repeat and call.repeatable and not call.future.done():
                self._waiting.appendleft(call)
                self._waiting_bytes += call.size
            else:
                call.fail(message)
