"""Connections to one SQLite file: how they are opened, what bounds them, and those that are kept for reading again.

Reading connections are opened ``mode=ro``, so that not even a mistake in the authorizer could change the file. To open
one costs more than most queries, since SQLite reads the whole schema: a few are kept. One that is kept holds no lock,
no transaction and no compiled statement: the next is compiled under its own authorizer. It is kept only while its file
is the one at the path and nobody has written to it, since SQLite takes a file that was copied over it for the old one
if their counters are alike; and not while there is a write-ahead log, which would stay as long as the connection does.
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

from trunkline.servers.sqlite.access import Kind

__all__ = ["Bounds", "Connections", "Opened"]

#: How many connections are kept, each with up to two megabytes of pages.
_MOST_KEPT = 4
#: Where a file that is open can be replaced; elsewhere a connection that is kept would be in the way.
_KEEPS = os.name == "posix"
#: So long after a file was written its times may be those of the next write, too.
_SETTLED_NS = 50_000_000
#: How long a statement waits for another writer, if its own time is not shorter.
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


class Bounds(Struct, frozen=True, kw_only=True):
    """How much one statement may cost: rows and bytes of its answer, and seconds."""

    max_rows: int = 1000
    max_bytes: int = 1024 * 1024
    seconds: float = 10.0


class _File(Struct, frozen=True):
    """Which file it is, and what tells that somebody has written to it."""

    device: int
    number: int
    size: int
    written_ns: int
    changed_ns: int

    @property
    def is_settled(self) -> bool:
        """Whether a later write could be told from the last one."""
        return time.time_ns() - self.written_ns > _SETTLED_NS


class Opened(Struct, frozen=True):
    """A connection, and the file that it was opened to as it was then, if that is known for certain."""

    connection: sqlite3.Connection
    file: _File | None = None
    #: Where its write-ahead log would be: beside the file, also where the path is a link to it.
    log: str = ""


class Connections:
    """Opens connections to a database file, and keeps some."""

    def __init__(self, path: Path, bounds: Bounds) -> None:
        """Take the file and the bounds of each statement; nothing is opened."""
        self.path = path
        self._bounds = bounds
        self._kept: deque[Opened] = deque()
        weakref.finalize(self, _close_all, self._kept)

    def take(self) -> Opened | None:
        """Give a reading connection that is kept, if there is one to the file as it is now."""
        file = self._file() if self._kept else None
        while True:
            try:
                # The last one first, so that a server with little to do uses one alone; any thread may be quicker.
                opened = self._kept.pop()
            except IndexError:
                return None
            if opened.file == file:
                return opened
            opened.connection.close()

    def give_back(self, opened: Opened) -> None:
        """Keep a connection on which nothing is under way any more, or close it."""
        if opened.file is None or len(self._kept) >= _MOST_KEPT or os.path.exists(opened.log):
            opened.connection.close()
        else:
            self._kept.append(opened)

    def open(self, kind: Kind, *, hold: Callable[[sqlite3.Connection], None]) -> Opened:
        """Open a connection for one kind of statement; ``hold`` gets it first, to stop what takes too long.

        Raises:
            sqlite3.Error: it cannot be opened, or is no database.
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
        # Somebody may have put another file there meanwhile.
        known = file if keeps and file == self._file() else None
        return Opened(connection, known, f"{os.path.realpath(self.path)}-wal")

    def _file(self) -> _File | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return _File(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def _bound(self, connection: sqlite3.Connection) -> None:
        # It knows this object not, which else would not be forgotten as long as one of its connections is kept.
        connection.text_factory = partial(_text, most=self._bounds.max_bytes + 1)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        if (configure := getattr(connection, "setconfig", None)) is not None:
            # Nobody writes to the tables in which a full-text index keeps itself; before Python 3.12 see shadows.py.
            configure(getattr(sqlite3, "SQLITE_DBCONFIG_DEFENSIVE"), True)  # noqa: B009
        # A view or trigger of a database that came from elsewhere calls only functions without side effects.
        connection.execute("PRAGMA trusted_schema = OFF")
        # The schema is read before the limits of statements hold: a view past them must not lock up the other tables.
        # An R-Tree prepares what it would write when it is first looked at, which nobody who reads is allowed to.
        for (name,) in connection.execute(_RTREES).fetchall():
            with suppress(sqlite3.Error):
                connection.execute("SELECT 1 FROM pragma_table_info(?)", [name]).fetchone()
        for limit, value in _LIMITS:
            connection.setlimit(limit, value)


def _text(raw: bytes, *, most: int) -> str:
    """Read a text; bytes that are no text are shown, not refused: one bad value must not hide a table."""
    # No answer has more of it, nor shows it cut.
    return raw[:most].decode("utf-8", "backslashreplace")


def _close_all(kept: deque[Opened]) -> None:
    while kept:
        kept.pop().connection.close()
