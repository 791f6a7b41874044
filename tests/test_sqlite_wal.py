"""New SQLite files that another connection uses while they enter WAL mode, as processes that start together do."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from trunkline import sqlite_wal
from trunkline.auth.authorization_server.storage import SqliteRecords
from trunkline.server.sqlite_file import SqliteFile
from trunkline.sqlite_wal import enter_wal_mode

BUSY_SECONDS = 5.0


async def _use_handles(path: Path) -> None:
    file = SqliteFile(path, schema="CREATE TABLE IF NOT EXISTS handles (name TEXT)")
    try:
        assert await file.read(lambda db: db.execute("SELECT * FROM handles").fetchall()) == []
    finally:
        file.close()


async def _use_records(path: Path) -> None:
    (await asyncio.to_thread(SqliteRecords, str(path))).close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Another connection, which is about to write to the new file."""
    connection = sqlite3.connect(tmp_path / "file", isolation_level=None, check_same_thread=False)
    with closing(connection):
        connection.execute("BEGIN IMMEDIATE")
        yield connection


@pytest.mark.parametrize("use", [_use_handles, _use_records])
async def test_a_file_that_another_process_opens_too_is_waited_for(
    use: Callable[[Path], Awaitable[None]],
    other: sqlite3.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The other connection is done while the file is waited for.
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: other.execute("COMMIT"))
    monkeypatch.setattr(sqlite_wal, "time", clock)
    await use(tmp_path / "file")
    assert not other.in_transaction


def test_a_file_that_stays_locked_is_reported(other: sqlite3.Connection, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "file", timeout=BUSY_SECONDS)) as connection:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            enter_wal_mode(connection, seconds=0.0)
        other.execute("COMMIT")
        enter_wal_mode(connection, seconds=0.0)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_another_error_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"no database" * 100)
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.DatabaseError, match="not a database"):
        enter_wal_mode(connection, seconds=BUSY_SECONDS)
