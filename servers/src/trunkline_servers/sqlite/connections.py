"""Connections to one SQLite file: how they are opened, their limits, and the pool of reading connections.

Reading connections are opened with ``mode=ro``, so that not even a mistake in the authorizer could change the file.
Opening one costs more than most queries, since SQLite reads the whole schema: a few are kept. A kept connection holds
no lock, no transaction and no compiled statement: the next statement is compiled under its own authorizer. It is kept
only while its file is still the one at the path and was not written to, since SQLite mistakes a file copied over it for
the old one if their change counters are equal; and not while there is a write-ahead log, which would stay as long as
the connection does.
"""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from trunkline_servers.sqlite.authorizer import StatementKind

__all__ = ["ConnectionPool", "OpenConnection", "StatementLimits"]

#: Most connections in the pool, each with up to two megabytes of cached pages.
_MOST_KEPT = 4
#: Only where an open file can be replaced; elsewhere a kept connection would block that.
_KEEPS = os.name == "posix"
#: Within this time after a write, the next write may leave the same timestamps.
_SETTLED_NS = 50_000_000
#: Longest wait for another writer, unless the statement timeout is shorter.
_BUSY_SECONDS = 5.0
_LIMITS = (
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 100),
    (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 500),
    (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000),
    (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 262_144),
    (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 50),
    (sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 100),
    (sqlite3.SQLITE_LIMIT_VDBE_OP, 5_000_000),
    (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
)
_LONGEST_VALUE = 16 * 1024 * 1024
_RTREES = "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%rtree%' LIMIT 100"


class StatementLimits(Struct, frozen=True, kw_only=True):
    """The limits of one statement: rows and bytes of its result, and seconds."""

    max_rows: int = 1000
    max_bytes: int = 1024 * 1024
    seconds: float = 10.0


class _FileState(Struct, frozen=True):
    """The identity of a file, and the values that change when it is written."""

    device: int
    number: int
    size: int
    written_ns: int
    changed_ns: int

    @property
    def is_settled(self) -> bool:
        """Whether a later write would be noticed."""
        return time.time_ns() - self.written_ns > _SETTLED_NS


class OpenConnection(Struct, frozen=True):
    """A connection, and the state of its file when it was opened, if known for certain."""

    connection: sqlite3.Connection
    file: _FileState | None = None
    #: The path of its write-ahead log: beside the real file, even if the path is a link.
    log: str = ""


class ConnectionPool:
    """Opens connections to a database file and pools reading ones."""

    def __init__(self, path: Path, bounds: StatementLimits) -> None:
        """Initialize with the file and the statement limits; does not connect yet."""
        self.path = path
        self._bounds = bounds
        self._kept: deque[OpenConnection] = deque()
        weakref.finalize(self, _close_all, self._kept)

    def acquire(self) -> OpenConnection | None:
        """Return a pooled reading connection to the unchanged file; None if there is none."""
        file = self._file() if self._kept else None
        while True:
            try:
                # Last in, first out, so that an idle server uses one only; another thread may be faster.
                opened = self._kept.pop()
            except IndexError:
                return None
            if opened.file == file:
                return opened
            opened.connection.close()

    def release(self, opened: OpenConnection) -> None:
        """Return an idle connection to the pool, or close it."""
        if opened.file is None or len(self._kept) >= _MOST_KEPT or os.path.exists(opened.log):
            opened.connection.close()
        else:
            self._kept.append(opened)

    def open(self, kind: StatementKind, *, hold: Callable[[sqlite3.Connection], None]) -> OpenConnection:
        """Open a connection for one kind of statement; ``hold`` receives it first, to interrupt slow work.

        Raises:
            sqlite3.Error: it cannot be opened, or is not a database.
        """
        reads = kind == "read"
        file = self._file() if reads and _KEEPS else None
        keeps = file is not None and file.is_settled
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={'ro' if reads else 'rw'}",
            uri=True,
            timeout=min(_BUSY_SECONDS, self._bounds.seconds),
            isolation_level=None,
            check_same_thread=False,
            cached_statements=0,
        )
        try:
            hold(connection)
            self._bound(connection)
        except BaseException:
            connection.close()
            raise
        # The file may have been replaced meanwhile.
        known = file if keeps and file == self._file() else None
        return OpenConnection(connection, known, f"{os.path.realpath(self.path)}-wal")

    def _file(self) -> _FileState | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return _FileState(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def _bound(self, connection: sqlite3.Connection) -> None:
        # No reference to self: otherwise this object could not be collected while a connection is pooled.
        connection.text_factory = partial(_text, most=self._bounds.max_bytes + 1)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        if (configure := getattr(connection, "setconfig", None)) is not None:
            # Protects the shadow tables of full-text indexes; before Python 3.12 see ``check_shadow_tables``.
            configure(getattr(sqlite3, "SQLITE_DBCONFIG_DEFENSIVE"), True)  # noqa: B009
        # Views and triggers of an untrusted database may call only functions without side effects.
        connection.execute("PRAGMA trusted_schema = OFF")
        # The schema is read before the limits apply: a view beyond them must not block the other tables.
        # An R-Tree prepares its write statements on first use, which the authorizer would deny to a reader.
        for (name,) in connection.execute(_RTREES).fetchall():
            with suppress(sqlite3.Error):
                connection.execute("SELECT 1 FROM pragma_table_info(?)", [name]).fetchone()
        for limit, value in _LIMITS:
            connection.setlimit(limit, value)


def _text(raw: bytes, *, most: int) -> str:
    """Decode a text; invalid bytes are escaped, not rejected: one bad value must not hide a table."""
    # A longer value never fits into a result.
    return raw[:most].decode("utf-8", "backslashreplace")


def _close_all(kept: deque[OpenConnection]) -> None:
    while kept:
        kept.pop().connection.close()
