"""The stores of handles, one contract for all, and the SQLite file below one of them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from trunkline.errors import ConfigError, HandleStoreFull, StoreUnavailable
from trunkline.protocol.limits import Limits
from trunkline.server import HandleStore, MemoryHandleStore, SqliteHandleStore, StoredHandle
from trunkline.server.shared_state import StoreHandles
from trunkline.server.sqlite_file import SqliteFile
from trunkline.store.memory import MemoryContents, MemoryEngine

SCHEMA = "CREATE TABLE IF NOT EXISTS counts (n INTEGER);"


#: A file in WAL mode, and the two beside it.
FILES = ("f", "f-wal", "f-shm")


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


Make = Callable[[Limits], HandleStore]


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture(params=["memory", "sqlite", "store"])
def make(request: pytest.FixtureRequest, time: Time, tmp_path: Path) -> Iterator[Make]:
    """Make stores of one kind, and close them after the test."""
    made: list[SqliteHandleStore] = []

    def memory(limits: Limits) -> HandleStore:
        return MemoryHandleStore(limits=limits, now=time)

    def sqlite(limits: Limits) -> HandleStore:
        made.append(SqliteHandleStore(tmp_path / "state.sqlite", limits=limits, now=time))
        return made[-1]

    def shared(limits: Limits) -> HandleStore:
        return StoreHandles(MemoryEngine(MemoryContents(now=time, random=os.urandom)), limits=limits)

    yield {"memory": memory, "sqlite": sqlite, "store": shared}[request.param]
    for file in made:
        file.close()


async def test_what_was_created_can_be_loaded(make: Make) -> None:
    handles = make(Limits())
    await handles.create("k", b"data", owner="ada", ttl=10)
    assert [await handles.load("k"), await handles.load("other")] == [StoredHandle(b"data", 1), None]


async def test_only_the_stored_version_can_be_replaced(make: Make) -> None:
    handles = make(Limits())
    await handles.create("k", b"1", owner=None, ttl=10)
    saved = [
        await handles.save("k", b"2", version=1, ttl=10),
        await handles.save("k", b"lost", version=1, ttl=10),
        await handles.save("k", b"3", version=2, ttl=10),
        await handles.save("other", b"x", version=1, ttl=10),
    ]
    assert saved == [True, False, True, False]
    assert await handles.load("k") == StoredHandle(b"3", 3)


async def test_what_was_deleted_is_gone(make: Make) -> None:
    handles = make(Limits())
    await handles.create("k", b"1", owner="ada", ttl=10)
    await handles.delete("k")
    await handles.delete("k")
    assert (await handles.load("k"), await handles.save("k", b"2", version=1, ttl=10)) == (None, False)


async def test_an_entry_ends_with_its_time(make: Make, time: Time) -> None:
    handles = make(Limits())
    await handles.create("k", b"1", owner=None, ttl=10)
    time.now += 9.9
    assert await handles.load("k") is not None
    time.now += 0.1
    assert (await handles.load("k"), await handles.save("k", b"2", version=1, ttl=10)) == (None, False)


async def test_saving_an_entry_starts_its_time_again(make: Make, time: Time) -> None:
    handles = make(Limits())
    await handles.create("k", b"1", owner=None, ttl=10)
    time.now += 9
    await handles.save("k", b"2", version=1, ttl=10)
    time.now += 9
    assert await handles.load("k") == StoredHandle(b"2", 2)
    time.now += 1
    assert await handles.load("k") is None


async def test_expired_entries_make_room_in_any_order(make: Make, time: Time) -> None:
    handles = make(Limits(handles=3, principal_handles=3))
    for key, ttl in (("long", 30), ("short", 10), ("middle", 20)):
        await handles.create(key, b"1", owner="ada", ttl=ttl)
    with pytest.raises(HandleStoreFull, match="handles=3"):
        await handles.create("more", b"1", owner="ada", ttl=10)
    time.now += 15
    await handles.create("more", b"1", owner="ada", ttl=10)
    assert [await handles.load(key) is not None for key in ("long", "short", "middle", "more")] == [
        True,
        False,
        True,
        True,
    ]


async def test_bytes_are_counted_through_every_change(make: Make) -> None:
    handles = make(Limits(handle_bytes=10))
    await handles.create("a", b"x" * 6, owner=None, ttl=10)
    with pytest.raises(HandleStoreFull, match="handle_bytes=10"):
        await handles.create("b", b"x" * 5, owner=None, ttl=10)
    await handles.create("b", b"x" * 4, owner=None, ttl=10)
    with pytest.raises(HandleStoreFull, match="handle_bytes=10"):
        await handles.save("b", b"x" * 5, version=1, ttl=10)
    assert await handles.save("a", b"x", version=1, ttl=10)
    assert await handles.save("b", b"x" * 9, version=1, ttl=10)
    await handles.delete("b")
    await handles.create("c", b"x" * 9, owner=None, ttl=10)
    assert await handles.load("a") == StoredHandle(b"x", 2)


async def test_the_share_of_a_principal_is_its_own(make: Make) -> None:
    handles = make(Limits(principal_handles=2, principal_handle_bytes=10))
    await handles.create("a", b"x" * 10, owner="ada", ttl=10)
    with pytest.raises(HandleStoreFull, match="principal_handle_bytes=10"):
        await handles.create("b", b"x", owner="ada", ttl=10)
    for key in "cdefg":
        # Callers without a principal have no share.
        await handles.create(key, b"x" * 10, owner=None, ttl=10)
    await handles.create("h", b"", owner="bea", ttl=10)
    await handles.create("i", b"", owner="bea", ttl=10)
    with pytest.raises(HandleStoreFull, match="principal_handles=2"):
        await handles.create("j", b"", owner="bea", ttl=10)


async def test_many_short_lives_do_not_pile_up(time: Time) -> None:
    handles = MemoryHandleStore(now=time)
    for number in range(1000):
        await handles.create(str(number), b"1", owner="ada", ttl=3600)
        await handles.delete(str(number))
    await handles.create("last", b"1", owner="ada", ttl=10)
    assert (len(handles), len(handles._expiry) < 100) == (1, True)
    time.now += 10
    assert len(handles) == 0


async def test_a_file_has_no_usable_handle_in_it(tmp_path: Path) -> None:
    from tests.server.shop import one, shop
    from trunkline import Client

    file = tmp_path / "state.sqlite"
    server = shop(handles=file)
    async with Client(server) as client:
        cart = await one(client, "create")
    server.close()
    reader = sqlite3.connect(file)
    rows = reader.execute("SELECT * FROM trunkline_handles").fetchall()
    reader.close()
    assert len(rows) == 1
    assert cart.partition(".")[2] not in repr(rows)


# --- the file --------------------------------------------------------------------------------------------------------


def count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT COUNT(*) FROM counts").fetchone()[0])


def increase(connection: sqlite3.Connection) -> int:
    connection.execute("INSERT INTO counts VALUES (1)")
    return count(connection)


def fail(connection: sqlite3.Connection) -> None:
    increase(connection)
    raise ZeroDivisionError


async def test_a_transaction_is_whole_or_undone(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "f", schema=SCHEMA)
    assert await file.write(increase) == 1
    with pytest.raises(ZeroDivisionError):
        await file.write(fail)
    assert await file.read(count) == 1
    file.close()


async def test_transactions_of_two_processes_take_turns(tmp_path: Path) -> None:
    files = [SqliteFile(tmp_path / "f", schema=SCHEMA) for _ in range(2)]
    await asyncio.gather(*(file.write(increase) for file in files for _ in range(20)))
    assert await files[0].read(count) == 40
    for file in files:
        file.close()


async def test_a_transaction_of_a_cancelled_caller_is_finished(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "f", schema=SCHEMA)
    begun, loop = asyncio.Event(), asyncio.get_running_loop()

    def begin(connection: sqlite3.Connection) -> None:
        loop.call_soon_threadsafe(begun.set)
        increase(connection)

    writing = asyncio.ensure_future(file.write(begin))
    await begun.wait()
    writing.cancel()
    assert await file.read(count) == 1
    file.close()


async def test_a_file_is_for_its_owner_only_and_in_wal_mode(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "f", schema=SCHEMA)
    await file.write(increase)
    mode = await file.read(lambda connection: connection.execute("PRAGMA journal_mode").fetchone()[0])
    modes = {path.name: path.stat().st_mode & 0o777 for path in map(tmp_path.joinpath, FILES)}
    file.close()
    assert mode == "wal"
    assert modes == dict.fromkeys(FILES, 0o600)


async def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("This is not a database. " * 100)
    for path in (tmp_path, tmp_path / "text"):
        file = SqliteFile(path, schema=SCHEMA)
        with pytest.raises(ConfigError, match=f"the SQLite file {path} cannot be opened"):
            await file.read(count)
        file.close()


def test_a_file_that_was_never_used_is_not_created(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "f", schema=SCHEMA)
    file.close()
    file.close()
    assert list(tmp_path.iterdir()) == []


class Interrupted(MemoryEngine):
    """A store where something happens just before a value is written."""

    before_write: Callable[[], Awaitable[object]] | None = None

    async def replace(self, key: str, old: bytes, new: bytes, *, ttl: float) -> bool:
        await self._interrupt()
        return await super().replace(key, old, new, ttl=ttl)

    async def put(self, key: str, data: bytes, *, ttl: float, only_if_absent: bool = False) -> bool:
        await self._interrupt()
        return await super().put(key, data, ttl=ttl, only_if_absent=only_if_absent)

    async def _interrupt(self) -> None:
        before, self.before_write = self.before_write, None
        if before is not None:
            await before()


async def test_what_could_not_be_written_does_not_count(time: Time) -> None:
    limits = Limits(handle_bytes=100, principal_handle_bytes=100)
    store = Interrupted(MemoryContents(now=time, random=os.urandom))
    handles = StoreHandles(store, limits=limits)

    async def fail() -> None:
        raise StoreUnavailable("gone")

    store.before_write = fail
    with pytest.raises(StoreUnavailable):
        await handles.create("lost", b"x" * 100, owner="ada", ttl=10)
    await handles.create("k", b"x" * 10, owner="ada", ttl=10)
    store.before_write = lambda: handles.save("k", b"y" * 20, version=1, ttl=10)
    assert not await handles.save("k", b"x" * 90, version=1, ttl=10)
    await handles.create("other", b"x" * 80, owner="ada", ttl=10)
    store.before_write = fail
    with pytest.raises(StoreUnavailable):
        await handles.save("other", b"x", version=1, ttl=10)
    with pytest.raises(HandleStoreFull):
        await handles.create("more", b"x", owner="ada", ttl=10)
    assert await handles.save("other", b"x", version=1, ttl=10)
    await handles.create("more", b"x" * 79, owner="ada", ttl=10)
