"""The SQLite engine when something fails: kill -9, a full disk, files that cannot be used. Nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from tests.store.test_interface import Inbox
from tests.store.test_redis import until
from tests.store.test_sqlite import LIMITS, end, line_of, opened, path, program
from trunkline.errors import ConfigError, StoreUnavailable
from trunkline.store.interface import Index, IndexLimits, Put
from trunkline.store.sqlite import SqliteEngine
from trunkline.store.sqlite_schema import SCHEMA_VERSION

__all__ = ["path"]

# --- kill -9 ----------------------------------------------------------------------------------------------------------

#: Commits records, each with a value, members of two indexes and an entry of a queue, and a log; several at a time.
WRITER = """
from trunkline.store.interface import *
async def write(store, first):
    n = first
    while True:
        name = f"{sys.argv[2]}-{n}"
        into = {"all": IndexLimits(10**6, 10**9), "half": IndexLimits()}
        put = Put(name, b"x" * 500, 600)
        await store.commit(put, Index(name, into, weight=3, ttl=600), Enqueue("jobs", name, b"job"))
        await store.append("log", name.encode(), ttl=600, max_entries=10**6, max_bytes=10**9, announce="news")
        print(name, flush=True)
        n += 10
async def main():
    store = SqliteEngine(sys.argv[1])
    await store.connect()
    await store.subscribe("news", lambda _: None)
    await asyncio.gather(*(write(store, first) for first in range(10)))
asyncio.run(main())
"""


async def kill_writers(path: Path, rounds: int) -> None:
    """Kill a writer again and again, each time after some writes; check what it has acknowledged."""
    random = Random(7)
    acknowledged: set[str] = set()
    for number in range(rounds):
        writer = program(WRITER, path, str(number))
        for _ in range(random.randrange(1, 40)):
            line = await line_of(writer)
            assert line, "the writer has failed"
            acknowledged.add(line)
        writer.send_signal(signal.SIGKILL)
        # What was written before it died counts; the last line may be a part of one.
        assert writer.stdout is not None
        rest = await asyncio.to_thread(writer.stdout.read)
        acknowledged.update(line.strip() for line in rest.splitlines(keepends=True) if line.endswith("\n"))
        end(writer)
    async with opened(path) as store:
        members = {name for index in ("all", "half") for name in await store.members(index, limit=10**6)}
        assert acknowledged <= members
        entries = {entry.data.decode() for entry in await store.read("log", limit=10**6) or ()}
        assert acknowledged <= entries <= members
        jobs = {job.id for job in await store.take("jobs", "me", lease=60, limit=10**6)}
        values = {name for name in members if await store.get(name) == b"x" * 500}
        # Every commit is whole, and so are the totals.
        assert jobs == values == members == set(await store.members("half", limit=10**6))
        weight = {"all": IndexLimits(weight=3 * len(members) + 1)}
        assert await store.index("last", into=weight, weight=2, ttl=60) is not None
        assert await store.index("last", into=weight, weight=1, ttl=60) is None
        # Those that were killed listen no more.
        assert await store.publish("news", b"") == 0
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_writer_that_is_killed_leaves_every_acknowledged_write(path: Path) -> None:
    await kill_writers(path, 6)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_writer_is_killed_two_hundred_times(path: Path) -> None:
    asyncio.run(kill_writers(path, 200))


async def test_a_process_that_is_killed_while_it_has_the_lock_gives_it_back(path: Path) -> None:
    source = """
    import sqlite3
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE state SET generation = 'half done'")
    print("locked", flush=True)
    sys.stdin.read()
    """
    async with opened(path, timeout=30.0) as store:
        generation = store.generation
        other = program(source, path)
        assert await line_of(other) == "locked"
        writing = asyncio.create_task(store.put("key", b"1", ttl=60))
        other.kill()
        end(other)
        assert await writing
    async with opened(path) as store:
        assert (store.generation, await store.get("key")) == (generation, b"1")


# --- a full disk ------------------------------------------------------------------------------------------------------


async def fill_up(store: SqliteEngine) -> tuple[int, str]:
    """Store values until there is no room; return how many there are, and the error."""
    for stored in range(10_000):
        try:
            await store.put(f"key{stored}", b"x" * 10_000, ttl=60)
        except StoreUnavailable as error:
            return stored, error.message
    raise AssertionError("there is room for everything")


async def test_a_full_store_refuses_writes_and_keeps_what_it_has(path: Path) -> None:
    async with opened(path, max_bytes=400_000, timeout=0.1) as store:
        await store.append("log", b"first", **LIMITS)
        stored, message = await fill_up(store)
        assert f"{path} is full" in message
        assert not store.available
        # Of several at once, those that have room are done.
        small, *large = await asyncio.gather(
            store.put("small", b"1", ttl=60),
            *(store.put(f"large{n}", b"x" * 100_000, ttl=60) for n in range(3)),
            return_exceptions=True,
        )
        assert (small, {type(error) for error in large}) == (True, {StoreUnavailable})
        with pytest.raises(StoreUnavailable, match="full"):
            await store.append("log", b"x" * 100_000, **LIMITS)
        assert [len(await store.get(f"key{n}") or b"") for n in range(stored)] == [10_000] * stored
        await store.delete(*(f"key{n}" for n in range(stored)))
        assert await store.put("again", b"x" * 10_000, ttl=60)
        assert store.available


async def test_appends_wait_for_room_in_their_order(path: Path) -> None:
    async with opened(path, max_bytes=400_000, timeout=0.1) as store:
        await store.put("large", b"x" * 150_000, ttl=60)
        large = [b"%d" % n + b"x" * 200_000 for n in range(2)]
        waiting = [
            asyncio.create_task(store.append("log", data, patience=60, ttl=60, max_entries=9, max_bytes=10**6))
            for data in (large[0], b"small", b"last")
        ]
        # A log of its own is not held up.
        await store.append("other", b"1", **LIMITS)
        assert not any(task.done() for task in waiting)
        await store.delete("large")
        await asyncio.gather(*waiting)
        assert [entry.data for entry in await store.read("log") or ()] == [large[0], b"small", b"last"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a megabyte."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], check=False).returncode:
        pytest.skip("cannot mount a file system")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounts a file system")
async def test_a_disk_without_space_loses_nothing(small_disk: Path) -> None:
    async with opened(small_disk / "store.db") as store:
        stored, message = await fill_up(store)
        assert (stored > 10, str(small_disk / "store.db") in message) == (True, True)
        assert [len(await store.get(f"key{n}") or b"") for n in range(stored)] == [10_000] * stored
    async with opened(small_disk / "store.db") as store:
        assert [len(await store.get(f"key{n}") or b"") for n in range(stored)] == [10_000] * stored


# --- files that cannot be used ----------------------------------------------------------------------------------------


def contents(path: Path) -> bytes | None:
    """Return what is in a file."""
    return path.read_bytes() if path.exists() else None


async def refusal(path: Path) -> str:
    """Return why a file is refused; it is not changed."""
    before = contents(path)
    store = SqliteEngine(path)
    with pytest.raises(ConfigError) as raised:
        await store.connect()
    with pytest.raises(StoreUnavailable) as unavailable:
        await store.put("key", b"1", ttl=60)
    assert unavailable.value.message == str(raised.value)
    assert not store.available
    await store.aclose()
    assert contents(path) == before
    return str(raised.value)


def test_a_folder_that_does_not_exist_is_named_before_anything_is_served(path: Path) -> None:
    with pytest.raises(ConfigError, match=f"create {path.parent / 'none'} first"):
        SqliteEngine(path.parent / "none" / "store.db")
    assert not (path.parent / "none").exists()


async def test_a_file_that_is_no_database_is_not_changed(path: Path) -> None:
    with open(path, "wb") as file:  # noqa: ASYNC230 - a small file
        file.write(b"no database" * 1000)
    assert f"{path} is not an SQLite file" in await refusal(path)


async def test_the_database_of_another_program_is_not_changed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE handles (name TEXT)")
    assert f"{path} is an SQLite file of another program" in await refusal(path)


@pytest.mark.parametrize(("change", "word"), [(1, "newer"), (-1, "older")])
async def test_a_file_of_another_schema_is_not_changed(path: Path, change: int, word: str) -> None:
    async with opened(path) as store:
        await store.put("key", b"1", ttl=600)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + change}")
    message = await refusal(path)
    assert f"{path} was written by a {word} version" in message.replace("an older", "a older")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    async with opened(path) as store:
        assert await store.get("key") == b"1"


#: Opens a store as a user that may only read it.
READER = """
import os
from trunkline.errors import ConfigError
if os.geteuid() == 0:
    os.setuid(65534)
async def main():
    store = SqliteEngine(sys.argv[1])
    try:
        await store.connect()
    except ConfigError as error:
        print(error, flush=True)
asyncio.run(main())
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach; those above the usual one are closed to them."""
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
        os.chmod(folder, 0o700)


@pytest.mark.parametrize("created", [True, False])
async def test_a_file_or_folder_that_is_read_only_is_named(open_folder: Path, created: bool) -> None:
    path = open_folder / "store.db"
    if created:
        async with opened(path) as store:
            await store.put("key", b"1", ttl=600)
        os.chmod(path, 0o444)
    os.chmod(open_folder, 0o555)
    reader = program(READER, path)
    message = await line_of(reader)
    end(reader)
    assert str(path) in message
    assert "writ" in message


def damage(path: Path, table: str) -> None:
    """Destroy the first page of a table."""
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * 100)


async def test_a_damaged_page_is_reported_and_the_rest_can_be_used(path: Path) -> None:
    async with opened(path) as store:
        for n in range(200):
            await store.put(f"key{n:03}", b"x" * 1000, ttl=600)
        await store.append("log", b"entry", **LIMITS)
    damage(path, "value")
    async with opened(path) as store:
        with pytest.raises(StoreUnavailable, match=r"store\.db is damaged"):
            await store.get("key000")
        with pytest.raises(StoreUnavailable, match=r"\.recover"):
            await store.put("key000", b"1", ttl=600)
        assert [entry.data for entry in await store.read("log") or ()] == [b"entry"]
        # An operation beside the one that fails is done.
        outcomes = await asyncio.gather(
            store.append("log", b"more", **LIMITS), store.put("key000", b"1", ttl=60), return_exceptions=True
        )
        assert isinstance(outcomes[1], StoreUnavailable)
        assert [entry.data for entry in await store.read("log") or ()] == [b"entry", b"more"]


@pytest.mark.parametrize("replaced", [True, False])
async def test_a_file_that_was_deleted_or_replaced_is_another_generation(path: Path, replaced: bool) -> None:
    async with opened(path) as one, opened(path) as other:
        inbox, generations, missed = Inbox(), list[str](), list[bool]()
        other.on_new_generation(generations.append)
        await other.subscribe("news", inbox, missed=lambda: missed.append(True))
        await one.put("key", b"1", ttl=600)
        before = one.generation
        if replaced:
            async with opened(path.with_name("new.db")) as new:
                await new.put("key", b"new", ttl=600)
            path.with_name("new.db").rename(path)
        else:
            os.unlink(path)
        with pytest.raises(StoreUnavailable, match=r"store\.db was deleted or replaced"):
            await one.put("key", b"2", ttl=600)
        assert await one.get("key") == (b"new" if replaced else None)
        assert one.generation != before
        # The other process finds out by itself, and listens again.
        await until(lambda: bool(missed))
        assert generations == [one.generation] == [other.generation]
        assert await one.publish("news", b"1") == 1
        assert await inbox.get(1) == [b"1"]


async def test_steps_of_a_commit_are_done_at_once_for_other_processes(path: Path) -> None:
    """Another process never sees a part of a commit."""
    source = """
    from trunkline.store.interface import *
    async def main():
        store = SqliteEngine(sys.argv[1])
        for n in range(300):
            await store.commit(Put("a", b"%d" % n, 60), Put("b", b"%d" % n, 60), Enqueue("jobs", str(n), b"x"))
        await store.aclose()
        print("done", flush=True)
    asyncio.run(main())
    """
    writer = program(source, path)
    done = asyncio.create_task(line_of(writer))
    async with opened(path) as store:
        while not done.done():
            first, second = await store.get("a"), await store.get("b")
            assert int(second or 0) >= int(first or 0)
            await store.commit(Put("mine", b"1", 60), Index("mine", {"all": IndexLimits()}, ttl=60))
        assert await done == "done"
        assert len(await store.take("jobs", "me", lease=60, limit=1000)) == 300
    end(writer)
