"""Connections to one SQLite file: how they are opened, their limits, and the pool of reading connections.

A statement is compiled under an authorizer, whose callbacks decide what it may do; in addition, no statement may write
to the shadow tables of an index.

Reading connections are opened with ``mode=ro``, so that not even a mistake in the authorizer could change the file.
Opening one costs more than most queries, since SQLite reads the whole schema: a few are kept. A kept connection holds
no lock, no transaction and no compiled statement: the next statement is compiled under its own authorizer. It is kept
only while its file is still the one at the path and was not written to, since SQLite mistakes a file copied over it for
the old one if their change counters are equal; and not while there is a write-ahead log, which would stay as long as
the connection does.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from trunkline_servers.sql import StatementLimits

__all__ = [
    "OpenConnection",
    "SqlitePool",
    "StatementAuthorizer",
    "StatementKind",
    "check_shadow_tables",
]

StatementKind = str

#: Functions that reach outside the database, in some builds of SQLite.
_UNSAFE_FUNCTIONS = frozenset({"edit", "fts3_tokenizer", "load_extension", "readfile", "writefile", "zipfile"})
#: Pragmas that only read the schema; SELECT uses them as pragma_table_info(...), full-text search the first one.
_READ_PRAGMAS = frozenset(
    {
        "data_version",
        "foreign_key_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "table_info",
        "table_list",
        "table_xinfo",
    }
)
#: Internal tables that change with the schema; others, such as sqlite_dbpage, are the file itself.
_OWN = frozenset({"sqlite_master", "sqlite_schema", "sqlite_sequence", "sqlite_temp_master"})

_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_CHANGING = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
_CREATING = frozenset({sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_CREATE_INDEX, sqlite3.SQLITE_REINDEX})
_DEFINING = frozenset(
    {
        sqlite3.SQLITE_ALTER_TABLE,
        sqlite3.SQLITE_CREATE_TRIGGER,
        sqlite3.SQLITE_CREATE_VIEW,
        sqlite3.SQLITE_DROP_INDEX,
        sqlite3.SQLITE_DROP_TABLE,
        sqlite3.SQLITE_DROP_TRIGGER,
        sqlite3.SQLITE_DROP_VIEW,
    }
)
_ALLOWED = MappingProxyType(
    {
        "read": _READING,
        # CREATE TABLE AS SELECT also inserts rows.
        "create": _READING | {sqlite3.SQLITE_INSERT} | _CREATING,
        "write": _READING | _CHANGING | _CREATING | _DEFINING,
    }
)
_ALTERING = _ALLOWED["write"] - _READING
_MAKING = _CREATING | _DEFINING
_NAMES = MappingProxyType(
    {
        getattr(sqlite3, name): name.removeprefix("SQLITE_").replace("_", " ")
        for name in dir(sqlite3)
        if name.startswith(
            ("SQLITE_CREATE", "SQLITE_DROP", "SQLITE_ALTER", "SQLITE_ANALYZE", "SQLITE_ATTACH", "SQLITE_DETACH")
        )
        or name in ("SQLITE_DELETE", "SQLITE_INSERT", "SQLITE_UPDATE", "SQLITE_PRAGMA", "SQLITE_REINDEX")
        or name in ("SQLITE_SAVEPOINT", "SQLITE_TRANSACTION")
    }
)


class StatementAuthorizer:
    """The authorizer of one statement; ``refused`` names the first denied action."""

    __slots__ = ("_allowed", "_shadows", "kind", "only_reads", "refused")

    def __init__(self, kind: StatementKind, *, shadows: frozenset[str] = frozenset()) -> None:
        """Allow ``read``, ``create`` (of tables) or ``write``, but no changes of the ``shadows`` tables."""
        self.kind = kind
        self._allowed = _ALLOWED[kind]
        self._shadows = shadows
        self.refused: str | None = None
        #: Whether all actions so far only read.
        self.only_reads = True

    def __call__(
        self, action: int, first: str | None, second: str | None, database: str | None, inside: str | None
    ) -> int:
        """Return SQLITE_OK or SQLITE_DENY for an action; called by SQLite."""
        # Temporary objects vanish with the connection, whatever the result says.
        is_lost = database == "temp" and action in _MAKING
        if not is_lost and self._allows(action, first or "", second or ""):
            self.only_reads = self.only_reads and action not in _ALTERING
            return sqlite3.SQLITE_OK
        self.refused = self.refused or _action_name(action, first, second) + (" in temp" if is_lost else "")
        return sqlite3.SQLITE_DENY

    def _allows(self, action: int, first: str, second: str) -> bool:
        if action == sqlite3.SQLITE_FUNCTION:
            return second.lower() not in _UNSAFE_FUNCTIONS
        if action == sqlite3.SQLITE_PRAGMA:
            return first.lower() in _READ_PRAGMAS
        if action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
            # Reported when a virtual table is opened, even for reading; SQLite itself rejects an explicit update.
            return True
        if action not in self._allowed:
            return False
        if self._shadows and action in _ALTERING:
            # The second name is a column for an update, and the table for an index, trigger or rename.
            names = {first.lower()} if action in _CHANGING else {first.lower(), second.lower()}
            if names & self._shadows:
                return False
        return action not in _CHANGING or not first.lower().startswith("sqlite_") or first.lower() in _OWN


def _action_name(action: int, first: str | None, second: str | None) -> str:
    if action == sqlite3.SQLITE_FUNCTION:
        return f"the function {second}()"
    name = _NAMES.get(action, f"action {action}")
    return f"{name} {first}" if first and action == sqlite3.SQLITE_PRAGMA else name


_SHADOWS = "SELECT name FROM pragma_table_list WHERE type = 'shadow'"
#: The first version of SQLite that lists shadow tables.
_LISTS_SHADOWS_SINCE = (3, 37)
_EXPLAINS = re.compile(r"\s*explain\b", re.IGNORECASE)


def check_shadow_tables(connection: sqlite3.Connection, access: StatementAuthorizer, sql: str) -> None:
    """Check that a statement does not write to shadow tables; call it inside the transaction.

    Raises:
        sqlite3.Error: it does, which ``access`` then reports, or it cannot be compiled.
    """
    if hasattr(connection, "setconfig") or sqlite3.sqlite_version_info < _LISTS_SHADOWS_SINCE or _EXPLAINS.match(sql):
        return
    shadows = frozenset(str(name).lower() for (name,) in connection.execute(_SHADOWS))
    if not shadows:
        return
    strict = StatementAuthorizer(access.kind, shadows=shadows)
    connection.set_authorizer(strict)
    try:
        connection.execute(f"EXPLAIN {sql}").close()
    finally:
        connection.set_authorizer(None)
        access.refused = strict.refused


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


class SqlitePool:
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
