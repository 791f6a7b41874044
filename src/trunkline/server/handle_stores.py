"""Stores for the values of handles: in memory, or in an SQLite file that survives a restart.

A store knows keys, owners and bytes, but neither handles nor their types. Keys are digests of handle, type and
principal, so a store contains no usable handle, and the handle of another principal is not found. Every value has a
version, which a writer must pass, so that concurrent changes are never overwritten.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from trunkline.errors import HandleStoreFull
from trunkline.protocol.limits import Limits

if TYPE_CHECKING:
    import sqlite3

__all__ = ["HandleStore", "MemoryHandleStore", "SqliteHandleStore", "StoredHandle", "full_store"]


class StoredHandle(Struct, frozen=True):
    """The stored data of a key, and its version, which every ``save`` increases."""

    data: bytes
    version: int


class HandleStore(Protocol):
    """Stores bytes under keys until they expire; all methods are called in the event loop of the server."""

    async def create(self, key: str, data: bytes, *, owner: str | None, ttl: float) -> None:
        """Store new data as version 1, for ``ttl`` seconds; ``owner`` is None for callers without a principal.

        Raises:
            HandleStoreFull: a limit is reached; the message names it.
        """

    async def load(self, key: str) -> StoredHandle | None:
        """Return the data of a key; None if there is none, or it has expired."""

    async def save(self, key: str, data: bytes, *, version: int, ttl: float) -> bool:
        """Replace the data of a version, for ``ttl`` seconds from now; return False if another version is stored.

        Raises:
            HandleStoreFull: a limit is reached; the message names it.
        """

    async def delete(self, key: str) -> None:
        """Remove the data of a key, if there is any."""


class _Usage(Struct, frozen=True):
    """The number of entries and their bytes."""

    entries: int
    bytes: int


def _check_room(limits: Limits, owner: str | None, total: _Usage, owned: _Usage) -> None:
    """Check the limits for the usage with a new or larger entry.

    Callers without a principal cannot be distinguished, so only the totals apply to them.
    """
    checks: list[tuple[str, int]] = [("handles", total.entries), ("handle_bytes", total.bytes)]
    if owner is not None:
        checks += [("principal_handles", owned.entries), ("principal_handle_bytes", owned.bytes)]
    for name, used in checks:
        if used > getattr(limits, name):
            raise full_store(limits, name)


def full_store(limits: Limits, name: str) -> HandleStoreFull:
    """Return the error for a limit that is reached."""
    return HandleStoreFull(
        f"No more can be stored: the limit {name}={getattr(limits, name)} is reached. Finish with earlier values, or "
        "wait until they expire."
    )


class _Entry:
    """One entry of the memory store."""

    __slots__ = ("data", "owner", "until", "version")

    def __init__(self, data: bytes, owner: str | None, until: float) -> None:
        self.data = data
        self.owner = owner
        self.until = until
        self.version = 1


class MemoryHandleStore:
    """Stores values in memory; they end with the process."""

    __slots__ = ("_bytes", "_entries", "_expiry", "_limits", "_now", "_owned")

    def __init__(self, *, limits: Limits | None = None, now: Callable[[], float] = time.monotonic) -> None:
        """Create an empty store; ``now`` returns the time in seconds."""
        self._limits = limits or Limits()
        self._now = now
        self._entries: dict[str, _Entry] = {}
        self._bytes = 0
        #: The usage of each owner that has entries.
        self._owned: dict[str | None, _Usage] = {}
        #: A heap of expiry times with keys; an entry that was saved since then expires later.
        self._expiry: list[tuple[float, str]] = []

    def __len__(self) -> int:
        """Return the number of entries, without expired ones."""
        self._drop_expired()
        return len(self._entries)

    async def create(self, key: str, data: bytes, *, owner: str | None, ttl: float) -> None:
        """Store new data.

        Raises:
            HandleStoreFull: a limit is reached.
        """
        self._drop_expired()
        self._account(owner, 1, len(data))
        entry = self._entries[key] = _Entry(data, owner, self._now() + ttl)
        heappush(self._expiry, (entry.until, key))

    async def load(self, key: str) -> StoredHandle | None:
        """Return the data of a key."""
        self._drop_expired()
        entry = self._entries.get(key)
        return None if entry is None else StoredHandle(entry.data, entry.version)

    async def save(self, key: str, data: bytes, *, version: int, ttl: float) -> bool:
        """Replace the data of a version.

        Raises:
            HandleStoreFull: a limit is reached.
        """
        self._drop_expired()
        entry = self._entries.get(key)
        if entry is None or entry.version != version:
            return False
        self._account(entry.owner, 0, len(data) - len(entry.data))
        entry.data, entry.version, entry.until = data, version + 1, self._now() + ttl
        return True

    async def delete(self, key: str) -> None:
        """Remove the data of a key."""
        self._drop(key)
        if len(self._expiry) > 2 * len(self._entries) + 64:
            # Most of the heap refers to deleted entries.
            self._expiry = [(entry.until, key) for key, entry in self._entries.items()]
            heapify(self._expiry)

    def _account(self, owner: str | None, entries: int, size: int) -> None:
        owned = self._owned.get(owner, _Usage(0, 0))
        owned = _Usage(owned.entries + entries, owned.bytes + size)
        if entries > 0 or size > 0:
            _check_room(self._limits, owner, _Usage(len(self._entries) + entries, self._bytes + size), owned)
        self._bytes += size
        if owned.entries:
            self._owned[owner] = owned
        else:
            del self._owned[owner]

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._account(entry.owner, -1, -len(entry.data))

    def _drop_expired(self) -> None:
        now = self._now()
        while self._expiry and self._expiry[0][0] <= now:
            _, key = heappop(self._expiry)
            entry = self._entries.get(key)
            if entry is not None and entry.until > now:
                heappush(self._expiry, (entry.until, key))
            else:
                self._drop(key)


_SCHEMA = """
CREATE TABLE IF NOT EXISTS trunkline_handles (
    key TEXT PRIMARY KEY,
    owner TEXT,
    version INTEGER NOT NULL,
    until REAL NOT NULL,
    size INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS trunkline_handles_until ON trunkline_handles (until);
CREATE INDEX IF NOT EXISTS trunkline_handles_usage ON trunkline_handles (owner, size);
"""


class SqliteHandleStore:
    """Stores values in an SQLite file, which survives a restart and may be shared by several processes."""

    __slots__ = ("_file", "_limits", "_now")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limits: Limits | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Create the store; the file is created on first use, readable by its owner only. ``now`` returns wall time."""
        # Imported here: a server that stores nothing in a file needs no SQLite.
        from trunkline.server.sqlite_file import SqliteFile

        self._file = SqliteFile(path, schema=_SCHEMA)
        self._limits = limits or Limits()
        self._now = now

    async def create(self, key: str, data: bytes, *, owner: str | None, ttl: float) -> None:
        """Store new data.

        Raises:
            HandleStoreFull: a limit is reached.
        """

        def work(connection: sqlite3.Connection) -> None:
            now = self._now()
            connection.execute("DELETE FROM trunkline_handles WHERE until <= ?", (now,))
            self._check(connection, owner, _Usage(1, len(data)))
            connection.execute(
                "INSERT INTO trunkline_handles (key, owner, version, until, size, data) VALUES (?, ?, 1, ?, ?, ?)",
                (key, owner, now + ttl, len(data), data),
            )

        await self._file.write(work)

    async def load(self, key: str) -> StoredHandle | None:
        """Return the data of a key."""

        def work(connection: sqlite3.Connection) -> StoredHandle | None:
            found = connection.execute(
                "SELECT data, version FROM trunkline_handles WHERE key = ? AND until > ?", (key, self._now())
            ).fetchone()
            return None if found is None else StoredHandle(*found)

        return await self._file.read(work)

    async def save(self, key: str, data: bytes, *, version: int, ttl: float) -> bool:
        """Replace the data of a version.

        Raises:
            HandleStoreFull: a limit is reached.
        """

        def work(connection: sqlite3.Connection) -> bool:
            now = self._now()
            found = connection.execute(
                "SELECT owner, size FROM trunkline_handles WHERE key = ? AND version = ? AND until > ?",
                (key, version, now),
            ).fetchone()
            if found is None:
                return False
            owner, size = found
            if len(data) > size:
                self._check(connection, owner, _Usage(0, len(data) - size))
            connection.execute(
                "UPDATE trunkline_handles SET data = ?, size = ?, version = version + 1, until = ? WHERE key = ?",
                (data, len(data), now + ttl, key),
            )
            return True

        return await self._file.write(work)

    async def delete(self, key: str) -> None:
        """Remove the data of a key."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM trunkline_handles WHERE key = ?", (key,))

        await self._file.write(work)

    def close(self) -> None:
        """Close the file; the store cannot be used again."""
        self._file.close()

    def _check(self, connection: sqlite3.Connection, owner: str | None, more: _Usage) -> None:
        def usage(condition: str, *values: str | None) -> _Usage:
            found = connection.execute(f"{_USAGE} {condition}", values).fetchone()
            return _Usage(found[0] + more.entries, found[1] + more.bytes)

        _check_room(self._limits, owner, usage(""), usage("WHERE owner IS ?", owner))


_USAGE = "SELECT COUNT(*), COALESCE(SUM(size), 0) FROM trunkline_handles"
