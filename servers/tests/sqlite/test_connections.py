"""Pooled connections: no statement sees an older file, the limits of another, or its leftovers."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from servers.tests.sqlite.shop import called, execute
from trunkline import Client, ToolError
from trunkline_servers.sql import StatementLimits
from trunkline_servers.sqlite import make_server
from trunkline_servers.sqlite.connections import SqlitePool

ONE = "SELECT a FROM t"


def made(path: Path, value: int, *, age: int = 60) -> Path:
    """Create a database whose last write was some seconds ago."""
    execute(path, "CREATE TABLE t (a)", f"INSERT INTO t VALUES ({value})")
    return aged(path, age)


def aged(path: Path, seconds: int = 60) -> Path:
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


@asynccontextmanager
async def reader(path: Path) -> AsyncIterator[Client]:
    """Connect a client whose server already keeps a connection."""
    async with Client(make_server(path)) as client:
        assert await called(client, "read_query", query=ONE) == ["[{'a': 1}]"]
        yield client


def kept(path: Path) -> SqlitePool:
    """Return a pool that keeps one connection."""
    connections = SqlitePool(path, StatementLimits())
    connections.release(connections.open("read", hold=lambda _: None))
    return connections


def test_a_connection_is_used_again(tmp_path: Path) -> None:
    connections = kept(made(tmp_path / "a.db", 1))
    first = connections.acquire()
    assert first is not None
    connections.release(first)
    assert (connections.acquire(), connections.acquire()) == (first, None)


def test_a_server_that_starts_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db", 1)
    before = path.stat()
    make_server(path)
    assert path.stat() == before


def test_a_connection_is_not_kept_while_a_write_may_pass_for_the_one_before(tmp_path: Path) -> None:
    connections = kept(made(tmp_path / "a.db", 1, age=-60))
    assert connections.acquire() is None


async def test_a_connection_that_is_kept_holds_up_no_writer(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db", 1)

    async with reader(path) as client:
        # The answer may arrive before the reader's thread has released its statement; a lock that is kept would fail.
        with closing(sqlite3.connect(path, timeout=10)) as other:
            other.execute("BEGIN EXCLUSIVE")
            other.execute("UPDATE t SET a = 2")
            other.commit()
        assert await called(client, "read_query", query=ONE) == ["[{'a': 2}]"]


async def test_a_file_that_takes_the_place_of_another_is_the_one_that_is_read(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db", 1)

    async with reader(path) as client:
        os.replace(made(tmp_path / "b.db", 2), path)
        assert await called(client, "read_query", query=ONE) == ["[{'a': 2}]"]


async def test_a_file_that_is_written_over_as_it_lies_is_read_anew(tmp_path: Path) -> None:
    """Made by the same steps, both have the same counters: by them alone SQLite would take one for the other."""
    path, other = made(tmp_path / "a.db", 1), made(tmp_path / "b.db", 2)

    async with reader(path) as client:
        path.write_bytes(other.read_bytes())
        assert await called(client, "read_query", query=ONE) == ["[{'a': 2}]"]


async def test_a_log_begun_by_another_program_is_read_and_left_to_it(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db", 1)

    async with reader(path) as client:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            other.execute("PRAGMA journal_mode = WAL")
            other.execute("UPDATE t SET a = 2")
            assert await called(client, "read_query", query=ONE) == ["[{'a': 2}]"]
            other.execute("UPDATE t SET a = 3")
            assert await called(client, "read_query", query=ONE) == ["[{'a': 3}]"]
        assert not (tmp_path / "a.db-wal").exists()


@pytest.mark.parametrize(
    "query",
    [
        "BEGIN",
        "SAVEPOINT s",
        "CREATE TEMP TABLE x (a)",
        "CREATE TEMP VIEW t AS SELECT 9 AS a",
        "CREATE TEMP TABLE t AS SELECT 9 AS a",
        "PRAGMA query_only = 0",
        "PRAGMA case_sensitive_like = 1",
        "ATTACH ':memory:' AS m",
        "SELECT a FROM t; SELECT 1",
        "SELECT a FROM t WHERE load_extension('x')",
        "EXPLAIN DELETE FROM t",
        "SELECT abs(-9223372036854775808)",
    ],
)
async def test_a_statement_leaves_no_state_for_the_next(tmp_path: Path, query: str) -> None:
    path = made(tmp_path / "a.db", 1)

    async with reader(path) as client:
        with pytest.raises(ToolError):
            await called(client, "read_query", query=query)
        assert await called(client, "read_query", query=ONE) == ["[{'a': 1}]"]
        execute(path, "UPDATE t SET a = 2")
        assert await called(client, "read_query", query=ONE) == ["[{'a': 2}]"]


async def test_a_file_that_is_gone_is_reported(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db", 1)

    async with reader(path) as client:
        path.unlink()
        with pytest.raises(ToolError, match="there is no database to open"):
            await called(client, "read_query", query=ONE)


@pytest.mark.parametrize(
    ("changes", "query", "expected"),
    [
        (["ALTER TABLE t ADD COLUMN b DEFAULT 3"], "SELECT * FROM t", "[{'a': 1, 'b': 3}]"),
        (
            ["CREATE VIRTUAL TABLE v USING rtree(id, x, y)", "INSERT INTO v VALUES (7, 1, 2)"],
            "SELECT id FROM v WHERE x < 5",
            "[{'id': 7}]",
        ),
    ],
    ids=["column", "rtree"],
)
async def test_a_schema_that_changes_is_known_to_the_next_statement(
    tmp_path: Path, changes: list[str], query: str, expected: str
) -> None:
    path = made(tmp_path / "a.db", 1)

    async with reader(path) as client:
        execute(path, *changes)
        assert await called(client, "read_query", query=query) == [expected]


async def test_the_log_of_a_database_behind_a_link_is_left_as_it_was_found(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    path = made(tmp_path / "there" / "a.db", 1)
    execute(path, "PRAGMA journal_mode = WAL")
    aged(path)
    (tmp_path / "link.db").symlink_to(path)

    async with reader(tmp_path / "link.db"):
        with closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE t SET a = 2")
            other.commit()
        assert not (tmp_path / "there" / "a.db-wal").exists()


def test_no_more_than_a_few_are_kept_and_all_are_closed_in_the_end(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db", 1)
    connections = SqlitePool(path, StatementLimits())
    opened = [connections.open("read", hold=lambda _: None) for _ in range(6)]
    list(map(connections.release, opened))
    del connections
    assert _open_files(path) == 0


def _open_files(path: Path) -> int:
    names = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(name) and os.path.realpath(name) == str(path) for name in names)
