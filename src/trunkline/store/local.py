"""A store for the workers of one machine: a `MemoryContents` in one process, used by others through a local socket.

The process with the store calls `serve_store` for each connection, or `serve_stores` for all of a socket; a worker
opens a `LocalEngine`. What the store holds ends with its process. A worker that was disconnected connects again, and
its subscribers learn that messages may be missing; a store that was started again has another generation.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from trunkline.errors import LinkError, StoreUnavailable
from trunkline.store.interface import Appended, Delivery, Entry, FullIndex, IndexLimits, Subscription
from trunkline.store.memory import MemoryContents, MemoryEngine
from trunkline.store.stats import StoreStats

__all__ = [
    "STORE_BYTES",
    "SWEEP_SECONDS",
    "LocalEngine",
    "OpenStream",
    "is_own_peer",
    "pack_frame",
    "read_frame",
    "serve_store",
    "serve_stores",
]

log = logging.getLogger("trunkline")

#: Opens a connection to the process with the contents.
OpenStream = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

#: The largest message: a value or event of the largest message of the protocol, with its envelope.
_MOST_BYTES = 128 * 1024 * 1024
#: Bytes that wait to be read by a worker before it is disconnected: it has hung.
_MOST_UNREAD = 256 * 1024 * 1024
#: A local process answers at once; one that is stopped does not.
_TIMEOUT = 10.0
#: Seconds between two attempts to connect again to a store that is gone.
_AGAIN_SECONDS = 0.5
#: The most that a store holds: several times what the limits of one server allow for handles, states and tasks.
STORE_BYTES = 1024 * 1024 * 1024
SWEEP_SECONDS = 60.0  # How often expired entries are forgotten.
_LENGTH = struct.Struct(">I")
_GONE = "the process that holds the shared state has ended"
_VERBS = frozenset(
    """admit append delete enqueue finish get index members publish put read release renew replace
    take""".split()  # noqa: SIM905  a line each would hide it
)


def pack_frame(message: object) -> bytes:
    """Return a message as a length and bytes."""
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader, kind: Any = Any) -> Any:
    """Read the next message, as a value of this type.

    Raises:
        ConnectionError, asyncio.IncompleteReadError: there is none, or it is too large.
    """
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if size > _MOST_BYTES:
        raise ConnectionError(f"a message of {size} bytes")
    return msgspec.msgpack.decode(await reader.readexactly(size), type=kind)


# --- the process with the store --------------------------------------------------------------------------------------


async def serve_store(contents: MemoryContents, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one worker until it disconnects; its subscriptions end with it."""
    store = MemoryEngine(contents)
    open_subscriptions: dict[int, Subscription] = {}

    def send(message: object) -> None:
        if writer.transport.get_write_buffer_size() > _MOST_UNREAD:
            writer.transport.abort()
        elif not writer.is_closing():
            writer.write(pack_frame(message))

    def deliver(number: int, data: bytes) -> None:
        send([0, number, data])

    try:
        send([0, 0, store.generation])
        while True:
            number, verb, arguments = await read_frame(reader)
            try:
                result: Any = None
                if verb == "subscribe":
                    receive = partial(deliver, number)
                    open_subscriptions[number] = await store.subscribe(arguments["channel"], receive)
                elif verb == "unsubscribe":
                    subscription = open_subscriptions.pop(arguments["number"], None)
                    if subscription is not None:
                        await subscription.close()
                elif verb in _VERBS:
                    positional = arguments.pop("*", [])
                    if verb == "index":
                        arguments["into"] = {name: IndexLimits(*limits) for name, limits in arguments["into"].items()}
                    result = await getattr(store, verb)(*positional, **arguments)
                else:
                    raise ConnectionError(f"an unknown verb {verb!r}")
            except StoreUnavailable as error:
                send([number, 1, error.message])
                continue
            send([number, 0, result])
    except (asyncio.IncompleteReadError, ConnectionError, OSError, msgspec.DecodeError):
        log.debug("a worker disconnected from the shared state", exc_info=True)
    finally:
        await store.aclose()
        writer.close()


async def serve_stores(contents: MemoryContents, listener: socket.socket) -> None:
    """Serve the workers that connect to a socket of this user, until cancelled."""
    loop, serving = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    def serve(work: Coroutine[Any, Any, None]) -> None:
        task = loop.create_task(work)
        serving.add(task)
        task.add_done_callback(serving.discard)

    listener.setblocking(False)
    serve(_sweep(contents))
    try:
        while True:
            connection, _ = await loop.sock_accept(listener)
            if is_own_peer(connection):
                serve(_serve_connection(contents, connection))
            else:
                connection.close()
    finally:
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _serve_connection(contents: MemoryContents, connection: socket.socket) -> None:
    await serve_store(contents, *await asyncio.open_unix_connection(sock=connection))


async def _sweep(contents: MemoryContents) -> None:
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        contents.sweep()


def is_own_peer(connection: socket.socket) -> bool:
    """Return True if the process at the other end belongs to this user, as far as the kernel tells."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None or sys.platform == "win32":
        # The permissions of the folder protect the socket.
        return True
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return bool(uid == os.geteuid())


# --- a worker --------------------------------------------------------------------------------------------------------


class _LocalSubscription:
    __slots__ = ("_number", "_store", "channel", "missed", "receive")

    def __init__(
        self,
        store: LocalEngine,
        number: int,
        channel: str,
        receive: Callable[[bytes], None],
        missed: Callable[[], None] | None,
    ) -> None:
        self._store = store
        self._number = number
        self.channel = channel
        self.receive = receive
        self.missed = missed

    async def close(self) -> None:
        await self._store.unsubscribe(self._number)


class LocalEngine:
    """One worker's access to the store of another process; see `Store` for the methods."""

    def __init__(self, open_stream: OpenStream, *, name: str) -> None:
        """Prepare to connect; ``name`` is that of the server, whose keys no other server sees."""
        self._open_stream = open_stream
        self._prefix = f"{name}:"
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._subscriptions: dict[int, _LocalSubscription] = {}
        self._callbacks: list[Callable[[str], None]] = []
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()
        self._generation = ""
        self._closed = False
        self.stats: StoreStats = StoreStats()

    # --- values ------------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        """Return a value."""
        found: bytes | None = await self._call("get", self._prefix + key)
        return found

    async def put(self, key: str, value: bytes, *, ttl: float, only_if_absent: bool = False) -> bool:
        """Set a value."""
        return bool(await self._call("put", self._prefix + key, value, ttl=ttl, only_if_absent=only_if_absent))

    async def replace(self, key: str, old: bytes, new: bytes, *, ttl: float) -> bool:
        """Set a value if it is ``old`` now."""
        return bool(await self._call("replace", self._prefix + key, old, new, ttl=ttl))

    async def delete(self, *keys: str) -> None:
        """Delete values and logs."""
        await self._call("delete", *(self._prefix + key for key in keys))

    # --- logs --------------------------------------------------------------------------------------------------------

    async def append(
        self,
        log: str,
        data: bytes,
        *,
        ttl: float,
        max_entries: int,
        max_bytes: int,
        announce: str | None = None,
        patience: float | None = None,
    ) -> Appended:
        """Add an entry."""
        channel = None if announce is None else self._prefix + announce
        limits: dict[str, Any] = {"ttl": ttl, "max_entries": max_entries, "max_bytes": max_bytes}
        return Appended(*await self._call("append", self._prefix + log, data, announce=channel, **limits))

    async def read(
        self, log: str, *, after: str = "", limit: int = 1000, inclusive: bool = False
    ) -> list[Entry] | None:
        """Return the entries after an id."""
        found = await self._call("read", self._prefix + log, after=after, limit=limit, inclusive=inclusive)
        return None if found is None else [Entry(*each) for each in found]

    # --- channels ----------------------------------------------------------------------------------------------------

    async def publish(self, channel: str, data: bytes) -> int:
        """Send a message."""
        return int(await self._call("publish", self._prefix + channel, data))

    async def subscribe(
        self, channel: str, receive: Callable[[bytes], None], *, missed: Callable[[], None] | None = None
    ) -> Subscription:
        """Call ``receive`` with each message, and ``missed`` after a lost connection."""
        # Connecting subscribes to all that is registered; this one must not be subscribed twice.
        await self.connect()
        number = next(self._numbers)
        subscription = _LocalSubscription(self, number, self._prefix + channel, receive, missed)
        self._subscriptions[number] = subscription
        try:
            await self._call("subscribe", number=number, channel=subscription.channel)
        except BaseException:
            self._subscriptions.pop(number, None)
            raise
        return subscription

    async def unsubscribe(self, number: int) -> None:
        """End a subscription."""
        if self._subscriptions.pop(number, None) is not None and self._writer is not None:
            try:
                await self._call("unsubscribe", arguments={"number": number})
            except StoreUnavailable:
                log.debug("the shared state is gone, and the subscription with it")

    # --- limits and queues -------------------------------------------------------------------------------------------

    async def admit(self, key: str, *, rate: float, burst: int, cost: int = 1) -> float:
        """Count events against a rate."""
        return float(await self._call("admit", self._prefix + key, rate=rate, burst=burst, cost=cost))

    async def enqueue(self, queue: str, data: bytes, *, holder: str = "") -> str:
        """Add an entry to a queue."""
        return str(await self._call("enqueue", self._prefix + queue, data, holder=holder))

    async def take(self, queue: str, holder: str, *, lease: float, limit: int = 1) -> list[Delivery]:
        """Lease entries to a holder."""
        found = await self._call("take", self._prefix + queue, holder, lease=lease, limit=limit)
        return [Delivery(*each) for each in found]

    async def renew(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """Renew leases."""
        return list(await self._call("renew", self._prefix + queue, holder, list(ids)))

    async def finish(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """Remove entries that the holder still has."""
        return list(await self._call("finish", self._prefix + queue, holder, list(ids)))

    async def release(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """End leases that the holder still has."""
        return list(await self._call("release", self._prefix + queue, holder, list(ids)))

    # --- indexes -----------------------------------------------------------------------------------------------------

    async def index(
        self, member: str, *, into: Mapping[str, IndexLimits], out_of: Sequence[str] = (), weight: int = 0, ttl: float
    ) -> FullIndex | None:
        """Add a member to indexes, and remove it from others."""
        names = {self._prefix + name: list(limits) for name, limits in into.items()}
        others = [self._prefix + name for name in out_of]
        full = await self._call("index", member, into=names, out_of=others, weight=weight, ttl=ttl)
        return None if full is None else FullIndex(full[0].removeprefix(self._prefix), full[1])

    async def members(self, index: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """Return the members of an index after a text."""
        return list(await self._call("members", self._prefix + index, after=after, limit=limit))

    # --- its own life ------------------------------------------------------------------------------------------------

    @property
    def available(self) -> bool:
        """Whether it is connected."""
        return self._writer is not None

    @property
    def generation(self) -> str:
        """The generation of the contents."""
        return self._generation

    def on_new_generation(self, callback: Callable[[str], None]) -> None:
        """Register a callback; a store has one generation, and another one is another contents."""
        self._callbacks.append(callback)

    async def connect(self) -> None:
        """Connect to the process with the contents."""
        try:
            # With the wait for another attempt: however many calls wait, each ends in time.
            async with asyncio.timeout(_TIMEOUT), self._connecting:
                if self._writer is not None:
                    return
                if self._closed:
                    raise StoreUnavailable("the store is closed")
                reader, writer = await self._open_stream()
                try:
                    before = await self._join(reader, writer)
                except BaseException:
                    self._lost()
                    writer.close()
                    raise
        except (OSError, TimeoutError, LinkError, asyncio.IncompleteReadError) as error:
            raise StoreUnavailable(_GONE) from error
        for subscription in tuple(self._subscriptions.values()):
            if subscription.missed is not None:
                self._report(subscription.missed)
        if before and before != self._generation:
            for callback in self._callbacks:
                self._report(callback, self._generation)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Read the generation of the store and subscribe again; return the previous generation."""
        _, _, generation = await read_frame(reader)
        before, self._generation = self._generation, generation
        self.stats.last_success = time.time()
        self.stats.reconnects += bool(before)
        self._writer = writer
        self._reading = asyncio.get_running_loop().create_task(self._read(reader), name="trunkline-store")
        for number, subscription in tuple(self._subscriptions.items()):
            await self._call("subscribe", number=number, channel=subscription.channel)
        return before

    async def aclose(self) -> None:
        """Disconnect; calls that come later fail instead of connecting again."""
        self._closed = True
        self._subscriptions.clear()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        self._lost()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                number, code, result = await read_frame(reader)
                if number == 0:
                    subscription = self._subscriptions.get(code)
                    if subscription is not None:
                        self._report(subscription.receive, result)
                    continue
                waiting = self._waiting.pop(number, None)
                if waiting is None or waiting.done():
                    continue
                if code:
                    waiting.set_exception(StoreUnavailable(str(result)))
                else:
                    waiting.set_result(result)
        except (asyncio.IncompleteReadError, ConnectionError, OSError, msgspec.DecodeError):
            self._lost()
            await self._connect_again()

    async def _connect_again(self) -> None:
        """Connect to the contents, or to the one that is started in its place, however long that takes."""
        told = False
        while not self._closed:
            try:
                await self.connect()
            except StoreUnavailable as error:
                if not told:
                    log.error("%s", error.message)
                told = True
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                return

    def _report(self, callback: Callable[..., None], *args: object) -> None:
        try:
            callback(*args)
        except Exception:
            log.exception("a subscriber of the shared state failed")

    def _lost(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            if not each.done():
                each.set_exception(StoreUnavailable(_GONE))

    async def _call(
        self,
        verb: str,
        *positional: Any,
        number: int | None = None,
        arguments: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> Any:
        with self.stats.operation():
            if self._writer is None:
                await self.connect()
            assert self._writer is not None
            number = next(self._numbers) if number is None else number
            given = {**named, **(arguments or {}), **({"*": positional} if positional else {})}
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._waiting[number] = answer
            self._writer.write(pack_frame([number, verb, given]))
            try:
                async with asyncio.timeout(_TIMEOUT):
                    return await answer
            except TimeoutError as error:
                raise StoreUnavailable("the process that holds the shared state does not answer") from error
            finally:
                self._waiting.pop(number, None)
