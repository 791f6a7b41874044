"""A store in one SQLite file: for a durable server of one process, and for the worker processes of one machine.

Writes go through one thread (`sqlite_thread.py`), where all that wait share a transaction. Reads are done at once, in
the event loop, on a connection of their own: they take microseconds, and never wait for a writer. If one fails, it is
done again in the thread, which waits. Messages to other processes are rows too (`sqlite_channels.py`).

An engine may be used by several event loops, and after a fork: whatever was open stays with the parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, finalize

from trunkline.errors import ConfigError, StoreUnavailable
from trunkline.store.interface import Appended, Commit, Delivery, Entry, Step, Store, Subscription
from trunkline.store.sqlite_channels import SqliteChannels
from trunkline.store.sqlite_file import SqliteFile
from trunkline.store.sqlite_tables import Messages, Tables
from trunkline.store.sqlite_thread import LoopOperations, Operation, SqliteThread
from trunkline.store.stats import StoreStats

__all__ = ["SqliteEngine"]

log = logging.getLogger("trunkline.store")

T = TypeVar("T")

#: Seconds that a write waits for the lock of another process, or for the disk. A file is never away as a Redis can be:
#: what takes this long is a machine that stalls, and giving up earlier would only turn a slow answer into an error.
_TIMEOUT = 10.0


class _NotOpenError(sqlite3.Error):
    """The file is not open in this process, or another one is at its path: the thread finds out what to do."""


class _LoopConnection:
    """What belongs to one event loop: its operations in the thread, its connection for reading, its subscriptions."""

    def __init__(self, file: SqliteFile, thread: SqliteThread, prefix: str, now: Callable[[], float]) -> None:
        self.operations = LoopOperations(asyncio.get_running_loop(), lambda: thread.progress)
        self.channels: SqliteChannels | None = None
        self._file = file
        self._thread = thread
        self._prefix = prefix
        self._now = now
        self._connection: sqlite3.Connection | None = None
        self._tables: Tables | None = None
        self._identity: tuple[int, int] | None = None

    def read(self, work: Callable[[Tables], T]) -> T:
        """Run one statement that reads, at once.

        Raises:
            sqlite3.Error: it must be done in the thread.
        """
        identity = self._file.identity()
        if identity is None or identity != self._thread.identity:
            raise _NotOpenError
        if identity != self._identity:
            self.close()
            self._connection = self._file.open_reader()
            self._tables, self._identity = Tables(self._connection, self._prefix), identity
        assert self._tables is not None
        self._tables.now = self._now()
        return work(self._tables)

    def read_messages(self, work: Callable[[Tables], Messages | None]) -> Messages | None:
        """Run several statements that read, in one transaction."""

        def transact(tables: Tables) -> Messages | None:
            assert self._connection is not None
            self._connection.execute("BEGIN")
            try:
                return work(tables)
            finally:
                self._connection.execute("COMMIT")

        return self.read(transact)

    def __del__(self) -> None:
        # The event loop has ended without closing the engine, which others may use.
        self.close()

    def close(self) -> None:
        """Close the connection for reading."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._tables = self._identity = None


class SqliteEngine(Store):
    """What outlives the requests of a server, in one SQLite file; see `Store` for the methods."""

    private = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str = "",
        timeout: float = _TIMEOUT,
        durable: bool = True,
        max_bytes: int | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Use the file at a path for the server of this name; nothing is opened yet.

        Servers of different names share one file without seeing each other. The lock of another process is waited for
        at most ``timeout`` seconds. ``durable=False``: the file is removed when the server ends. With ``max_bytes``
        writes fail while the file has so many.

        Raises:
            ConfigError: the folder of the file does not exist.
        """
        self.durable = durable
        self.stats: StoreStats = StoreStats()
        self._file = SqliteFile(path, max_bytes=max_bytes)
        self._file.check_folder()
        self._prefix = f"{name}\x1f"
        self._timeout = timeout
        self._now = now
        self._callbacks: list[Callable[[str], None]] = []
        self._generation = ""
        self._closed = False
        #: What a parent process had open: closing it here would end locks that it holds.
        self._inherited: list[object] = []
        self._start()

    @property
    def path(self) -> str:
        """The absolute path of the file."""
        return self._file.path

    def _start(self) -> None:
        self._process = os.getpid()
        self._thread = SqliteThread(self._file, self.stats, prefix=self._prefix, now=self._now)
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopConnection] = WeakKeyDictionary()
        # The thread ends with the engine, or with the program.
        self._finalizer = finalize(self, self._thread.stop)

    # --- values ------------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        """Return a value."""
        return await self._read(lambda tables: tables.get(key))

    async def commit(self, *steps: Step) -> Commit:
        """Do all steps in one transaction, or none."""
        return await self._write(lambda tables: tables.commit(steps)) if steps else Commit(True)

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
        """Add an entry; a transaction was done or was not, so it is added exactly once."""
        limits: dict[str, Any] = {"ttl": ttl, "max_entries": max_entries, "max_bytes": max_bytes, "announce": announce}
        id, listeners = await self._write(lambda tables: tables.append(log, data, **limits), seconds=patience, log=log)
        return Appended(id, self._count(listeners))

    async def read(
        self, log: str, *, after: str = "", limit: int = 1000, inclusive: bool = False
    ) -> list[Entry] | None:
        """Return the entries after an id."""
        return await self._read(lambda tables: tables.read(log, after=after, limit=limit, inclusive=inclusive))

    # --- channels ----------------------------------------------------------------------------------------------------

    async def publish(self, channel: str, data: bytes) -> int:
        """Send a message; return how many event loops of all processes listen on the channel."""
        return self._count(await self._write(lambda tables: tables.publish(channel, data)))

    async def subscribe(
        self, channel: str, receive: Callable[[bytes], None], *, missed: Callable[[], None] | None = None
    ) -> Subscription:
        """Receive messages; ``missed`` is called when some were removed before they were read."""
        connection = self._connection()
        if connection.channels is None:
            connection.channels = SqliteChannels(
                self._file.path, submit=partial(self._write, quiet=True), read=connection.read_messages
            )
        return await connection.channels.subscribe(channel, receive, missed)

    def _count(self, listeners: Sequence[int]) -> int:
        return sum(listener not in self._thread.gone for listener in listeners)

    # --- limits ------------------------------------------------------------------------------------------------------

    async def admit(self, key: str, *, rate: float, burst: int, cost: int = 1) -> float:
        """Count events."""
        return await self._write(lambda tables: tables.admit(key, rate=rate, burst=burst, cost=cost))

    # --- queues ------------------------------------------------------------------------------------------------------

    async def take(self, queue: str, holder: str, *, lease: float, limit: int = 1) -> list[Delivery]:
        """Lease entries."""
        return await self._write(lambda tables: tables.take(queue, holder, lease=lease, limit=limit))

    async def renew(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """Renew leases."""
        return await self._write(lambda tables: tables.renew(queue, holder, ids))

    async def release(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """End leases."""
        return await self._write(lambda tables: tables.release(queue, holder, ids))

    # --- indexes -----------------------------------------------------------------------------------------------------

    async def members(self, index: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """Return members."""
        return await self._read(lambda tables: tables.members(index, after=after, limit=limit))

    # --- its own life ------------------------------------------------------------------------------------------------

    @property
    def available(self) -> bool:
        """Whether the last transaction succeeded."""
        return not self._closed and self._thread.available

    @property
    def generation(self) -> str:
        """The generation of the file; another one if the file was replaced."""
        return self._generation

    def on_new_generation(self, callback: Callable[[str], None]) -> None:
        """Register a callback, which is called in the event loop that notices."""
        self._callbacks.append(callback)

    async def connect(self) -> None:
        """Open the file, which is created if there is none; its folder must exist.

        Raises:
            ConfigError: it cannot be used, and the message says what to do.
            StoreUnavailable: another process has its lock.
        """
        await self._submit(Tables.generation, self._timeout, None)

    async def aclose(self) -> None:
        """Close the file; operations that come later fail."""
        if self._closed or self._process != os.getpid():
            self._closed = True
            return
        loop = asyncio.get_running_loop()
        for owner, connection in tuple(self._loops.items()):
            if owner is loop and connection.channels is not None:
                await connection.channels.aclose()
            elif connection.channels is not None:
                with contextlib.suppress(RuntimeError):
                    owner.call_soon_threadsafe(connection.channels.close)
            connection.close()
        self._closed = True
        self._finalizer.detach()
        await asyncio.to_thread(self._thread.stop)

    # --- operations --------------------------------------------------------------------------------------------------

    def _connection(self) -> _LoopConnection:
        """Return what belongs to the running event loop."""
        if self._process != os.getpid():
            # Forked: threads, locks and connections are those of the parent.
            self._finalizer.detach()
            self._inherited += [self._thread, self._loops]
            self._generation = ""
            self._start()
        if self._closed:
            raise StoreUnavailable("the store is closed")
        loop = asyncio.get_running_loop()
        connection = self._loops.get(loop)
        if connection is None:
            connection = self._loops[loop] = _LoopConnection(self._file, self._thread, self._prefix, self._now)
        return connection

    async def _read(self, work: Callable[[Tables], T]) -> T:
        with self.stats.operation():
            try:
                return self._connection().read(work)
            except sqlite3.Error:
                return await self._submit_or_unavailable(work, self._timeout, None)

    async def _write(
        self, work: Callable[[Tables], T], *, seconds: float | None = None, log: str | None = None, quiet: bool = False
    ) -> T:
        """Run work in a transaction; ``quiet`` for what is not counted as an operation."""
        seconds = self._timeout if seconds is None else seconds
        if quiet:
            return await self._submit_or_unavailable(work, seconds, log)
        with self.stats.operation():
            return await self._submit_or_unavailable(work, seconds, log)

    async def _submit_or_unavailable(self, work: Callable[[Tables], T], seconds: float, log: str | None) -> T:
        try:
            return await self._submit(work, seconds, log)
        except ConfigError as error:
            raise StoreUnavailable(str(error)) from error

    async def _submit(self, work: Callable[[Tables], T], seconds: float, log: str | None) -> T:
        connection = self._connection()
        operation = Operation(connection.operations, work, seconds=seconds, log=log)
        self._thread.submit(operation)
        result: T = await operation.future
        if self._thread.generation != self._generation:
            self._opened()
        return result

    def _opened(self) -> None:
        """Called when the file was opened that is at the path now."""
        before, self._generation = self._generation, self._thread.generation
        if not before:
            return
        log.error("the store %s was replaced: all sessions end, and handles are invalid", self._file.path)
        for connection in self._loops.values():
            if connection.channels is not None:
                connection.operations.loop.call_soon_threadsafe(connection.channels.replaced)
        for callback in self._callbacks:
            try:
                callback(self._generation)
            except Exception:
                log.exception("a subscriber of the store failed")
