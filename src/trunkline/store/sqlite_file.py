"""An SQLite file as a store uses it: how it is opened, created and checked, and what its errors mean."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator

from trunkline.errors import ConfigError, StoreUnavailable
from trunkline.store.sqlite_schema import APPLICATION_ID, SCHEMA, SCHEMA_VERSION

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows, where a file that is in use cannot be replaced
    fcntl = None  # type: ignore[assignment]

__all__ = ["SqliteFile", "is_busy", "is_full"]

#: Only the owner may read what is stored. SQLite gives the files beside it (``-wal``, ``-shm``) the same mode.
_MODE = 0o600
_PRIMARY = 0xFF  # The bits of an error code without its details.
_CACHE_KIBIBYTES = 16 * 1024  # The inner pages of the trees of some hundred thousand rows.
#: The write-ahead log is cut to this after a checkpoint.
_WAL_BYTES = 16 * 1024 * 1024
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NO_ACCESS = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & _PRIMARY


def is_busy(error: Exception) -> bool:
    """Return whether another connection holds the lock."""
    return isinstance(error, sqlite3.Error) and _code(error) in _BUSY


def is_full(error: Exception) -> bool:
    """Return whether there is no room for a write."""
    return isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_FULL


class SqliteFile:
    """The path of a store, and how connections to it are made."""

    def __init__(self, path: str | os.PathLike[str], *, max_bytes: int | None) -> None:
        """Set an absolute path, and how large the file may become; nothing is opened."""
        self.path = os.path.abspath(os.path.expanduser(os.fspath(path)))
        self.folder = os.path.dirname(self.path)
        self._max_bytes = max_bytes

    def identity(self) -> tuple[int, int] | None:
        """Return what tells this file from another one at its path; None if there is none."""
        return _identity(self.path)

    def beside(self) -> dict[str, tuple[int, int] | None]:
        """Return the identities of SQLite's files beside this one, by their paths."""
        return {path: _identity(path) for path in (f"{self.path}-wal", f"{self.path}-shm")}

    def remove_beside(self, files: dict[str, tuple[int, int] | None]) -> None:
        """Remove the files beside one that was replaced: SQLite would apply them to the file in its place."""
        with contextlib.suppress(OSError), self._creating():
            for path, identity in files.items():
                # Another process may have done it, and has opened the new file.
                if identity is not None and _identity(path) == identity:
                    os.unlink(path)

    def check_folder(self) -> None:
        """Check that the file can be there.

        Raises:
            ConfigError: its folder does not exist.
        """
        if not os.path.isdir(self.folder):
            raise ConfigError(f"the folder of the store {self.path} does not exist; create {self.folder} first")

    # --- opening -----------------------------------------------------------------------------------------------------

    def open(self) -> sqlite3.Connection:
        """Return a connection for writing; the file is created if there is none.

        Raises:
            ConfigError: the file cannot be used.
            sqlite3.Error: another connection holds the lock.
        """
        self.check_folder()
        try:
            if not os.path.exists(self.path):
                self._create()
            return self._open_existing()
        except OSError as error:
            raise ConfigError(
                f"the store {self.path} cannot be opened: {error.strerror or error}. Use a path in a folder that this "
                "user can write to"
            ) from error
        except sqlite3.Error as error:
            if is_busy(error):
                raise
            raise ConfigError(self.message(error)) from error

    def open_reader(self) -> sqlite3.Connection:
        """Return a connection that only reads, to a file that is open for writing in this process."""
        connection = self._connect()
        connection.execute("PRAGMA query_only = 1")
        return connection

    def _connect(self) -> sqlite3.Connection:
        # Transactions are begun by hand, and a lock is waited for by the caller, who knows for how long. A connection
        # is used by one thread at a time, but perhaps closed by another.
        connection = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIBIBYTES}")
        return connection

    def _open_existing(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            if self._is_new(connection):
                with self._creating():
                    self._initialise(connection)
            self._check_schema(connection)
            # Readers do not wait for a writer, and a commit does not wait for the disk: after a power failure the last
            # transactions may be missing, but the file is whole.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
            if self._max_bytes is not None:
                (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
                connection.execute(f"PRAGMA max_page_count = {max(1, self._max_bytes // page_bytes)}")
            # Fails now, and not at the first write, if the file is read-only.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE state SET last_entry = last_entry")
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _create(self) -> None:
        """Create the file, empty; only this user can read it."""
        with self._creating():
            if os.path.exists(self.path):
                return
            # A file that was deleted while it was in use leaves these. Its users still have them open: with a new file
            # they would be shared, and destroy it.
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path + suffix)
            # Never opened without O_EXCL: closing a file drops all locks of this process on it.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _MODE))

    @contextlib.contextmanager
    def _creating(self) -> Iterator[None]:
        """Keep other processes from creating the file at the same time."""
        if fcntl is None:
            yield
            return
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        """Return whether there is nothing in the file."""
        return self._header(connection) == (0, 0) and not _has_tables(connection)

    @staticmethod
    def _header(connection: sqlite3.Connection) -> tuple[int, int]:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return application, version

    def _initialise(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have done it meanwhile.
            if self._is_new(connection):
                for statement in SCHEMA:
                    connection.execute(statement)
                connection.execute("INSERT INTO state VALUES (?, 0, 0, 0)", (os.urandom(8).hex(),))
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        application, version = self._header(connection)
        if application != APPLICATION_ID:
            raise ConfigError(
                f"{self.path} is an SQLite file of another program, or of an earlier version of Trunkline; it was not "
                "changed. Use another path for the store"
            )
        if version > SCHEMA_VERSION:
            raise ConfigError(
                f"the store {self.path} was written by a newer version of Trunkline (schema {version}, this one knows "
                f"{SCHEMA_VERSION}); it was not changed. Update trunkline, or use another path"
            )
        if version < SCHEMA_VERSION:
            raise ConfigError(
                f"the store {self.path} was written by an older version of Trunkline (schema {version}, this one needs "
                f"{SCHEMA_VERSION}); it was not changed. Move it away to start with an empty one, or use that version"
            )

    # --- errors ------------------------------------------------------------------------------------------------------

    def unavailable(self, error: Exception) -> StoreUnavailable:
        """Return the error that a caller gets."""
        return StoreUnavailable(self.message(error))

    def message(self, error: Exception) -> str:
        """Return what is wrong with the file, and what to do about it."""
        if not isinstance(error, sqlite3.Error):
            return str(error)
        code = _code(error)
        if code in _BUSY:
            return f"the store {self.path} is in use by another process for too long; try again"
        if code == sqlite3.SQLITE_FULL:
            return f"the store {self.path} is full: free space on its disk, or raise its limit; nothing is lost"
        if code == sqlite3.SQLITE_NOTADB:
            return f"{self.path} is not an SQLite file; it was not changed. Use another path for the store"
        if code == sqlite3.SQLITE_CORRUPT:
            return (
                f"the store {self.path} is damaged ({error}). Stop the processes that use it, save a copy, and repair "
                "it with: sqlite3 FILE .recover; or move it away to start with an empty one"
            )
        if code in _NO_ACCESS:
            return f"the store {self.path} cannot be written ({error}). Make the file and its folder writable"
        return f"the store {self.path} failed: {error}"


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None
