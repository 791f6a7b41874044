"""The embedded store: one SQLite file with one table of expiring records.

It knows neither OAuth nor the meaning of the records: a record has a kind, a name, an expiry, and a flag that it was
used. Writes do not wait for the disk (WAL, ``synchronous=NORMAL``), so they are short enough for the event loop; after
a power loss the last moment may be missing, never more. Several processes may share the file.
"""

from __future__ import annotations

import os
import sqlite3
from typing import TypeVar

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError

__all__ = ["Store"]

T = TypeVar("T", bound=Struct)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    kind TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL, until REAL NOT NULL, used INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS records_until ON records (until);
"""
_SWEEP_SECONDS = 60.0
_BUSY_SECONDS = 5.0


class Store:
    """Stores records until they expire, in a file that only its owner can read."""

    def __init__(self, path: str) -> None:
        """Open or create the file; ``:memory:`` keeps everything in this process.

        Raises:
            ConfigError: the file cannot be used.
        """
        self._path = path
        self._swept = 0.0
        try:
            _make_private(path)
            self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA secure_delete=ON")
            self._db.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as problem:
            raise ConfigError(
                f"cannot use store={path!r} ({problem}): choose a file in a writable folder, or ':memory:'"
            ) from problem

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __del__(self) -> None:
        # A server that is created but never served is not closed by its user; SQLite would warn about it.
        db: sqlite3.Connection | None = getattr(self, "_db", None)
        if db is not None:
            db.close()

    # --- records -----------------------------------------------------------------------------------------------------

    def put(self, kind: str, name: str, record: Struct, *, until: float) -> None:
        """Store a record, replacing one of the same name."""
        data = msgspec.json.encode(record)
        self._db.execute(
            "REPLACE INTO records (kind, name, data, until) VALUES (?, ?, ?, ?)", (kind, name, data, until)
        )

    def add(self, kind: str, name: str, record: Struct, *, until: float, now: float) -> bool:
        """Store a record unless one of the same name exists; return True if it was stored."""
        self.sweep(now)
        data = msgspec.json.encode(record)
        added = self._db.execute(
            "INSERT OR IGNORE INTO records (kind, name, data, until) VALUES (?, ?, ?, ?)", (kind, name, data, until)
        )
        return added.rowcount == 1

    def get(self, kind: str, name: str, of: type[T], *, now: float) -> T | None:
        """Return a record that has not expired, whether it was used or not."""
        found = self._db.execute(
            "SELECT data FROM records WHERE kind = ? AND name = ? AND until > ?", (kind, name, now)
        ).fetchone()
        return None if found is None else msgspec.json.decode(found[0], type=of)

    def has(self, kind: str, name: str, *, now: float) -> bool:
        """Return True if such a record exists and has not expired."""
        row = self._db.execute("SELECT 1 FROM records WHERE kind = ? AND name = ? AND until > ?", (kind, name, now))
        return row.fetchone() is not None

    def use(self, kind: str, name: str) -> bool:
        """Mark a record as used; return True the first time. Of two concurrent callers only one gets True."""
        marked = self._db.execute("UPDATE records SET used = 1 WHERE kind = ? AND name = ? AND used = 0", (kind, name))
        return marked.rowcount == 1

    def extend(self, kind: str, name: str, until: float) -> None:
        """Extend the expiry of a record."""
        self._db.execute("UPDATE records SET until = max(until, ?) WHERE kind = ? AND name = ?", (until, kind, name))

    def drop(self, kind: str, name: str) -> bool:
        """Delete a record; return True if it existed. Of two concurrent callers only one gets True."""
        return self._db.execute("DELETE FROM records WHERE kind = ? AND name = ?", (kind, name)).rowcount == 1

    def all(self, kind: str, of: type[T], *, now: float) -> list[tuple[str, T, float]]:
        """Return all records of a kind with their names and expiries, the latest expiry first."""
        rows = self._db.execute(
            "SELECT name, data, until FROM records WHERE kind = ? AND until > ? ORDER BY until DESC", (kind, now)
        )
        return [(name, msgspec.json.decode(data, type=of), until) for name, data, until in rows]

    def count(self, kind: str, *, now: float) -> int:
        """Count the records of a kind."""
        row = self._db.execute("SELECT count(*) FROM records WHERE kind = ? AND until > ?", (kind, now)).fetchone()
        return int(row[0])

    def erase_traces(self) -> None:
        """Checkpoint and truncate the write-ahead log, so that replaced records remain in neither file."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def sweep(self, now: float) -> None:
        """Delete expired records, at most once a minute."""
        if now - self._swept >= _SWEEP_SECONDS:
            self._swept = now
            self._db.execute("DELETE FROM records WHERE until <= ?", (now,))


def _make_private(path: str) -> None:
    """Create the file before SQLite does, readable by its owner only; SQLite's further files get the same mode."""
    if path == ":memory:" or os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
