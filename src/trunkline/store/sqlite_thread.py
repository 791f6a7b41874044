"""The thread that writes to the SQLite file of a store: all operations that wait are done in one transaction.

An event loop submits operations and gets their outcomes back in one call for each transaction. An operation that fails
undoes nothing of its neighbours: the transaction is rolled back, and each of them is done again in one of its own. The
lock of another process is waited for until the deadline of an operation; appends wait for room on a full disk, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import queue
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from trunkline.errors import ConfigError, StoreUnavailable
from trunkline.store.sqlite_file import SqliteFile, is_busy, is_full
from trunkline.store.sqlite_tables import Tables
from trunkline.store.stats import StoreStats

__all__ = ["POLLING", "LoopOperations", "Operation", "SqliteThread", "socket_address"]

log = logging.getLogger("trunkline.store")

#: Operations in one transaction: other processes wait for it.
_MOST_OPERATIONS = 256
#: Seconds between two attempts to get the lock; doubled up to the second. Most transactions are as short as the first.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0001, 0.005
#: Seconds between two attempts to write to a full disk.
_FULL_PAUSE = 0.1
#: Seconds that an operation has besides those that it may wait for the lock; then the disk hangs.
_GRACE = 2.0
#: Operations of one event loop that may wait at once: each takes some memory.
_MOST_WAITING = 100_000
_CLOSE_SECONDS = 5.0  # For the checkpoint of a slow disk.
#: The name of a listener that has no socket begins so: it looks for messages by itself.
POLLING = "polling-"
#: The kernel takes 108 bytes for the address of a socket, on macOS 104.
_MOST_ADDRESS_BYTES = 100


class Operation:
    """Work for the thread, and the caller that waits for it."""

    __slots__ = ("future", "log", "outcome", "owner", "seconds", "submitted", "work")

    def __init__(
        self, owner: LoopOperations, work: Callable[[Tables], Any], *, seconds: float, log: str | None = None
    ) -> None:
        """Prepare work that waits for a lock for so many seconds; an append to ``log`` waits for room, too."""
        self.owner = owner
        self.work = work
        self.seconds = seconds
        self.submitted = time.monotonic()
        self.log = log
        self.future: asyncio.Future[Any] = owner.loop.create_future()
        #: What is returned or raised.
        self.outcome: Any = None


class LoopOperations:
    """The operations of one event loop that have not ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, progress: Callable[[], float]) -> None:
        """Start without any; ``progress`` returns when the thread did something the last time."""
        self.loop = loop
        self._progress = progress
        self._waiting: set[Operation] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, operation: Operation) -> None:
        """Add an operation that is about to be submitted.

        Raises:
            StoreUnavailable: too many wait.
        """
        if len(self._waiting) >= _MOST_WAITING:
            raise StoreUnavailable("too many operations of the store wait for the disk; try again")
        self._waiting.add(operation)
        if self._timer is None:
            self._timer = self.loop.call_later(_GRACE, self._check)

    def deliver_soon(self, operations: list[Operation]) -> None:
        """Return outcomes to the callers; called in the thread."""
        # The loop was closed, and nobody waits.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._deliver, operations)

    def _deliver(self, operations: list[Operation]) -> None:
        for operation in operations:
            self._waiting.discard(operation)
            if operation.future.done():
                continue
            if isinstance(operation.outcome, Exception):
                operation.future.set_exception(operation.outcome)
            else:
                operation.future.set_result(operation.outcome)

    def _check(self) -> None:
        """End what the thread did not end in time: one timer for all is cheaper than a timeout for each.

        Only if it does nothing at all: the disk hangs. To wait for others in a long queue is no failure.
        """
        self._timer = None
        now, progress = time.monotonic(), self._progress()
        for operation in tuple(self._waiting):
            if now - max(operation.submitted, progress) > operation.seconds + _GRACE:
                self._waiting.discard(operation)
                if not operation.future.done():
                    operation.future.set_exception(StoreUnavailable("the disk of the store does not answer; try again"))
        if self._waiting:
            self._timer = self.loop.call_later(_GRACE, self._check)


class SqliteThread:
    """One thread, and its connection to a file."""

    def __init__(self, file: SqliteFile, stats: StoreStats, *, prefix: str, now: Callable[[], float]) -> None:
        """Prepare to open a file; the thread is started by the first operation."""
        self._file = file
        self._stats = stats
        self._prefix = prefix
        self._now = now
        self._queue: queue.SimpleQueue[Operation | None] = queue.SimpleQueue()
        #: Appends that wait for room on the disk.
        self._waiting_for_room: list[Operation] = []
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._connection: sqlite3.Connection | None = None
        self._tables: Tables | None = None
        self._sender: socket.socket | None = None
        self._sockets: dict[int, str] = {}
        self._folder = -1
        #: The file that is open, by its identity, and its generation; None and empty before that.
        self.identity: tuple[int, int] | None = None
        self._beside: dict[str, tuple[int, int] | None] = {}
        self.generation = ""
        #: Whether the last transaction succeeded.
        self.available = False
        #: When the thread ended an operation, or waited for a lock, the last time.
        self.progress = 0.0
        #: Listeners whose process was found to be gone; their ids are not used again.
        self.gone: set[int] = set()

    def submit(self, operation: Operation) -> None:
        """Do an operation; called in the event loop."""
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="trunkline-sqlite", daemon=True)
                    self._thread.start()
        operation.owner.add(operation)
        self._queue.put(operation)

    def stop(self) -> None:
        """Finish what was submitted and close the file; called once, from any thread."""
        self._stopped = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(_CLOSE_SECONDS)

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopped or not self._queue.empty():
                batch = self._next_batch()
                if batch:
                    self._perform(batch)
            self._finish(self._waiting_for_room, StoreUnavailable("the store is closed"))
        finally:
            self._close()

    def _next_batch(self) -> list[Operation]:
        """Wait for operations; return all that wait."""
        batch, self._waiting_for_room = self._waiting_for_room, []
        try:
            first = self._queue.get(timeout=_FULL_PAUSE if batch else None)
        except queue.Empty:
            return batch
        if first is not None:
            batch.append(first)
        self._take_more(batch)
        return batch

    def _take_more(self, batch: list[Operation]) -> None:
        with contextlib.suppress(queue.Empty):
            while len(batch) < _MOST_OPERATIONS:
                operation = self._queue.get_nowait()
                if operation is not None:
                    batch.append(operation)

    def _perform(self, batch: list[Operation]) -> None:
        """Do operations in one transaction, or each in its own if that fails."""
        if not self._begin(batch):
            return
        try:
            wakeups = self._transact(batch)
        except Exception as error:  # noqa: BLE001 - the outcome of the operation that failed
            self._roll_back(error)
            if len(batch) == 1:
                self._failed(batch[0], error)
                return
            blocked: set[str] = set()
            for operation in batch:
                if operation.log in blocked:
                    self._waiting_for_room.append(operation)
                    continue
                self._perform([operation])
                blocked.update(late.log for late in self._waiting_for_room if late.log is not None)
            return
        if not self.available:
            self._stats.reconnects += bool(self._stats.last_success)
            self.available = True
        self._wake(wakeups)
        self._deliver(batch)

    def _transact(self, batch: list[Operation]) -> set[int]:
        """Do operations in the transaction that has begun, and commit; return the listeners to wake."""
        assert self._tables is not None
        assert self._connection is not None
        tables = self._tables
        tables.begin(self._now())
        for operation in batch:
            operation.outcome = operation.work(tables)
        tables.finish(len(batch))
        self._connection.execute("COMMIT")
        return tables.wakeups

    def _begin(self, batch: list[Operation]) -> bool:
        """Open the file and get its lock; return False if no operation is left to do."""
        pause, began = _FIRST_PAUSE, time.monotonic()
        while True:
            self.progress = time.monotonic()
            try:
                self._open()
                assert self._connection is not None
                self._connection.execute("BEGIN IMMEDIATE")
                return True
            except (sqlite3.Error, ConfigError, StoreUnavailable) as error:
                if not is_busy(error):
                    self._roll_back(error)
                    self._finish(batch, error)
                    return False
                self._finish_late(batch, began, error)
                if not batch:
                    return False
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            # What came meanwhile has its own deadline.
            self._take_more(batch)

    def _finish_late(self, batch: list[Operation], began: float, error: Exception) -> None:
        """End operations that have waited for the lock for long enough; it is waited for since ``began``."""
        now = float("inf") if self._stopped else time.monotonic()
        late = [operation for operation in batch if max(operation.submitted, began) + operation.seconds <= now]
        if late:
            batch[:] = [operation for operation in batch if operation not in late]
            self._finish(late, error)

    def _failed(self, operation: Operation, error: Exception) -> None:
        if is_full(error) and operation.log is not None and operation.submitted + operation.seconds > time.monotonic():
            self._waiting_for_room.append(operation)
        else:
            self._finish([operation], error)

    def _finish(self, batch: list[Operation], error: Exception) -> None:
        """End operations with an error."""
        is_of_file = isinstance(error, sqlite3.Error | ConfigError | StoreUnavailable)
        if is_of_file and not self._stopped:
            if self.available:
                log.warning("%s", self._file.message(error))
            self.available = False
        for operation in batch:
            operation.outcome = self._file.unavailable(error) if isinstance(error, sqlite3.Error) else error
        self._deliver(batch)

    @staticmethod
    def _deliver(batch: Iterable[Operation]) -> None:
        by_owner: dict[LoopOperations, list[Operation]] = {}
        for operation in batch:
            by_owner.setdefault(operation.owner, []).append(operation)
        for owner, operations in by_owner.items():
            owner.deliver_soon(operations)

    # --- the connection ----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the file, unless it is open.

        Raises:
            ConfigError: it cannot be used.
            StoreUnavailable: the file that was open is not there any more; the next call opens the one in its place.
            sqlite3.Error: another process has the lock.
        """
        if self._connection is not None:
            if self._file.identity() == self.identity:
                return
            self._close()
            self._file.remove_beside(self._beside)
            raise StoreUnavailable(
                f"the store {self._file.path} was deleted or replaced while it was in use: what it held is gone"
            )
        connection = self._file.open()
        tables = Tables(connection, self._prefix)
        self.generation = tables.generation()
        self.identity, self._beside = self._file.identity(), self._file.beside()
        self._connection, self._tables = connection, tables

    def _roll_back(self, error: Exception) -> None:
        if self._connection is None:
            return
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            # The next operation finds out what is left of the file.
            usable = not isinstance(error, sqlite3.DatabaseError) or is_full(error) or is_busy(error)
        except sqlite3.Error:
            usable = False
        if not usable:
            self._close()

    def _close(self) -> None:
        connection, self._connection, self._tables = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1
        self._sockets.clear()

    # --- other processes ---------------------------------------------------------------------------------------------

    def _wake(self, listeners: set[int]) -> None:
        """Wake listeners that have new messages; those that are gone are removed."""
        gone = [listener for listener in listeners if not self._wake_one(listener)]
        if gone:
            self.gone.update(gone)
            assert self._connection is not None
            assert self._tables is not None
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                self._tables.remove_listeners(gone)
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                # They are found again by the next message.
                self._roll_back(error)

    def _wake_one(self, listener: int) -> bool:
        """Send a datagram; return False if the process of the listener is gone."""
        name = self._sockets.get(listener)
        if name is None:
            assert self._tables is not None
            name = self._tables.socket_of(listener)
            if name is None:
                return False
            self._sockets[listener] = name
        if name.startswith(POLLING):
            return True
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
            self._folder = os.open(self._file.folder, os.O_RDONLY)
        try:
            self._sender.sendto(b"m", socket_address(self._file.folder, self._folder, name))
        except (ConnectionRefusedError, FileNotFoundError):
            self._sockets.pop(listener, None)
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._file.folder, name))
            return False
        except OSError as error:
            # A buffer that is full has datagrams which the listener has not read: it will read all messages.
            if error.errno not in (errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS):
                log.debug("a listener of the store %s was not woken", self._file.path, exc_info=True)
        return True


def socket_address(folder: str, descriptor: int, name: str) -> str:
    """Return the address of a socket in a folder, which is also open; the kernel takes about 100 bytes."""
    path = os.path.join(folder, name)
    if len(os.fsencode(path)) <= _MOST_ADDRESS_BYTES or not os.path.isdir("/proc/self/fd"):
        return path
    return f"/proc/self/fd/{descriptor}/{name}"
