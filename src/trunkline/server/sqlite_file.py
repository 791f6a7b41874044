"""An SQLite file with its own thread, for use from an event loop.

It knows nothing of the stored data. The thread opens the file on first use and runs one transaction after another, so a
slow disk, or another process that holds the file's lock, never blocks the event loop. Several processes may use one
file.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from trunkline.errors import ConfigError
from trunkline.sqlite_wal import enter_wal_mode

__all__ = ["SqliteFile"]

T = TypeVar("T")

#: Timeout for the lock of another process; the default of Python's ``sqlite3``.
_BUSY_SECONDS = 5.0
#: Only the owner may read what is stored. SQLite gives the files beside it (``-wal``, ``-shm``) the same mode.
_MODE = 0o600


class SqliteFile:
    """An SQLite file and its worker thread; file, folder and schema are created if they do not exist."""

    __slots__ = ("_connection", "_path", "_schema", "_thread")

    def __init__(self, path: str | os.PathLike[str], *, schema: str) -> None:
        """Set the path; ``schema`` runs each time the file is opened, so it must be idempotent."""
        self._path = os.path.expanduser(path)
        self._schema = schema
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trunkline-sqlite")

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function that only reads, in one transaction, and return its value.

        Raises:
            ConfigError: the file cannot be opened.
            sqlite3.Error: the transaction failed.
        """
        return await self._run("BEGIN", work)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in one transaction, which is rolled back if it raises, and return its value.

        If the caller is cancelled, a transaction that has begun still completes, before any later one.

        Raises:
            ConfigError: the file cannot be opened.
            sqlite3.Error: the transaction failed.
        """
        # Lock at the start: a transaction that reads first and writes later could fail in between.
        return await self._run("BEGIN IMMEDIATE", work)

    def close(self) -> None:
        """Close the file after the transactions that have begun; it cannot be used again."""
        # After the first call there is no thread.
        with suppress(RuntimeError):
            self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    async def _run(self, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transact, begin, work)

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _transact(self, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            self._connection = self._open()
        connection = self._connection
        connection.execute(begin)
        try:
            value = work(connection)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        return value

    def _open(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = None
        try:
            os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, _MODE))
            # Transactions are begun by hand.
            connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
            # Readers do not wait for a writer, and a commit does not wait for the disk: after a power failure the last
            # transactions may be missing, but the file is whole.
            enter_wal_mode(connection, seconds=_BUSY_SECONDS)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(self._schema)
        except (OSError, sqlite3.Error) as error:
            if connection is not None:
                connection.close()
            raise ConfigError(
                f"the SQLite file {self._path} cannot be opened: {error}. Use a path in a writable folder that is "
                "not another kind of file"
            ) from error
        return connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
