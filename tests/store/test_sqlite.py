"""The SQLite engine: several processes, event loops and forks on one file, channels between them, bounded work."""

from __future__ import annotations

import asyncio
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest

from tests.store.test_interface import Inbox
from tests.store.test_redis import until
from trunkline.errors import StoreUnavailable
from trunkline.store import sqlite_channels, sqlite_tables
from trunkline.store.interface import Commit, Enqueue, Index, IndexLimits, Put
from trunkline.store.sqlite import SqliteEngine
from trunkline.store.sqlite_file import SqliteFile
from trunkline.store.sqlite_tables import Tables

LIMITS: dict[str, Any] = {"ttl": 60, "max_entries": 10_000, "max_bytes": 10_000_000}


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[SqliteEngine]:
    """Open a store, and close it."""
    store = SqliteEngine(path, **options)
    try:
        await store.connect()
        yield store
    finally:
        await store.aclose()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a store."""
    return tmp_path / "store.db"


def program(source: str, path: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start another process that uses the store."""
    text = "import asyncio, sys\nfrom trunkline.store.sqlite import SqliteEngine\n" + textwrap.dedent(source)
    return subprocess.Popen(
        [sys.executable, "-c", text, str(path), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


#: Subscribes, and writes what it hears.
LISTENER = """
async def main():
    store = SqliteEngine(sys.argv[1])
    await store.connect()
    await store.subscribe("news", lambda data: print(data.decode(), flush=True))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await store.aclose()
asyncio.run(main())
"""


async def line_of(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process writes."""
    assert process.stdout is not None
    async with asyncio.timeout(120):
        return (await asyncio.to_thread(process.stdout.readline)).strip()


def end(process: subprocess.Popen[str]) -> None:
    """End a process, and wait for it."""
    process.communicate(timeout=120)


# --- the file ---------------------------------------------------------------------------------------------------------


async def test_only_the_user_can_read_the_file_and_nothing_else_is_left(path: Path) -> None:
    async with opened(path) as store:
        await store.subscribe("news", Inbox())
        assert {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()} == {0o600}
    assert [each.name for each in path.parent.iterdir()] == ["store.db"]


async def test_what_is_stored_outlives_the_engine(path: Path) -> None:
    async with opened(path) as store:
        await store.commit(
            Put("key", b"value", 60), Index("m", {"all": IndexLimits()}, ttl=60), Enqueue("q", "1", b"x")
        )
        entry = (await store.append("log", b"entry", **LIMITS)).id
        generation = store.generation
    async with opened(path) as store:
        assert store.generation == generation
        assert (await store.get("key"), await store.members("all")) == (b"value", ["m"])
        assert [each.id for each in await store.read("log") or ()] == [entry]
        assert [each.id for each in await store.take("q", "me", lease=60)] == ["1"]
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.get("key")


async def test_servers_of_different_names_do_not_see_each_other(path: Path) -> None:
    async with opened(path, name="one") as one, opened(path, name="other") as other:
        inbox = Inbox()
        await other.subscribe("news", inbox)
        await one.put("key", b"1", ttl=60)
        assert (await other.get("key"), await one.publish("news", b"1")) == (None, 0)
        assert await other.publish("news", b"2") == 1
        assert await inbox.get(1) == [b"2"]


async def test_many_engines_create_one_file(path: Path) -> None:
    stores = [SqliteEngine(path) for _ in range(20)]
    await asyncio.gather(*(store.connect() for store in stores))
    assert len({store.generation for store in stores}) == 1
    assert (await asyncio.gather(*(store.put("one", b"", ttl=9, only_if_absent=True) for store in stores))).count(
        True
    ) == 1
    for store in stores:
        await store.aclose()


async def test_an_empty_file_is_used(tmp_path: Path) -> None:
    with NamedTemporaryFile(dir=tmp_path) as file:
        async with opened(Path(file.name)) as store:
            assert store.generation


# --- transactions -----------------------------------------------------------------------------------------------------


async def test_a_commit_that_fails_undoes_nothing_of_its_neighbours(path: Path) -> None:
    async with opened(path) as store:
        await store.put("taken", b"0", ttl=60)

        def commit(n: int) -> Any:
            fails = n % 3 == 0
            second = Put("taken" if fails else f"b{n}", b"1", 60, only_if_absent=fails)
            return store.commit(Put(f"a{n}", b"1", 60), second)

        outcomes = await asyncio.gather(*map(commit, range(60)))
        assert [outcome.done for outcome in outcomes] == [n % 3 != 0 for n in range(60)]
        stored = [await store.get(f"a{n}") for n in range(60)]
        assert [value is not None for value in stored] == [n % 3 != 0 for n in range(60)]


async def test_an_operation_with_an_error_undoes_nothing_of_its_neighbours(path: Path) -> None:
    async with opened(path) as store:
        # A text that cannot be written, between others of the same transaction.
        outcomes = await asyncio.gather(
            *(store.put("\ud800" if n == 5 else f"key{n}", b"1", ttl=60) for n in range(10)), return_exceptions=True
        )
        assert [n for n, outcome in enumerate(outcomes) if outcome is not True] == [5]
        assert isinstance(outcomes[5], UnicodeEncodeError)
        assert [await store.get(f"key{n}") for n in range(10) if n != 5] == [b"1"] * 9
        assert await store.commit() == Commit(True)


async def test_ids_grow_over_all_processes_and_also_if_the_clock_goes_back(path: Path) -> None:
    async with opened(path, now=lambda: 2000.0) as one, opened(path, now=lambda: 1000.0) as other:
        ids = [(await store.append("log", b"", **LIMITS)).id for store in (one, other, one)]
        await one.delete("log")
        ids.append((await other.append("log", b"", **LIMITS)).id)
        assert ids == ["2000000-0", "2000000-1", "2000000-2", "2000000-3"]


async def test_another_process_with_the_lock_is_waited_for(path: Path) -> None:
    async with opened(path, timeout=0.2) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            patient = asyncio.create_task(store.append("log", b"1", patience=60, **LIMITS))
            with pytest.raises(StoreUnavailable, match=r"store\.db is in use"):
                await store.put("key", b"1", ttl=60)
            assert (store.available, patient.done()) == (False, False)
            # Reading does not wait.
            assert await store.get("key") is None
            other.execute("ROLLBACK")
            assert (await patient).id
        assert (store.available, store.stats.reconnects, store.stats.failed) == (True, 1, 1)


# --- event loops and processes ----------------------------------------------------------------------------------------


async def test_several_event_loops_use_one_engine(path: Path) -> None:
    async with opened(path) as store:
        inbox = Inbox()
        await store.subscribe("news", inbox)
        heard: list[bytes] = []

        async def other_loop() -> None:
            arrived = asyncio.Event()

            def receive(data: bytes) -> None:
                heard.append(data)
                arrived.set()

            subscription = await store.subscribe("news", receive)
            await store.put("key", b"other loop", ttl=60)
            assert await store.publish("news", b"1") == 2
            await asyncio.wait_for(arrived.wait(), 120)
            await subscription.close()

        thread = threading.Thread(target=lambda: asyncio.run(other_loop()))
        thread.start()
        assert await inbox.get(1) == [b"1"]
        await asyncio.to_thread(thread.join, 30)
        assert (heard, await store.get("key")) == ([b"1"], b"other loop")


#: Forks with an open store, and uses it in both processes.
FORKING = """
import os, threading
async def use(name):
    assert await store.get("key") == b"parent"
    assert await store.put(name, b"1", ttl=60)
async def main():
    global store
    store = SqliteEngine(sys.argv[1])
    await store.put("key", b"parent", ttl=60)
    await store.subscribe("news", print)
    child = os.fork()
    if not child:
        # In a thread of its own: this one has the event loop of the parent.
        thread = threading.Thread(target=lambda: asyncio.run(use("child")))
        thread.start()
        thread.join()
        os._exit(0)
    os.waitpid(child, 0)
    await use("parent")
    assert await store.get("child") == b"1"
    assert await store.publish("news", b"heard") == 1
    await store.aclose()
    print("done", flush=True)
asyncio.run(main())
"""


async def test_a_forked_process_opens_the_file_itself(path: Path) -> None:
    process = program(FORKING, path)
    assert await line_of(process) in ("b'heard'", "done")
    end(process)
    assert process.returncode == 0


async def test_an_engine_that_is_dropped_ends_its_thread(path: Path) -> None:
    before = set(threading.enumerate())
    store = SqliteEngine(path)
    await store.connect()
    (thread,) = (each for each in set(threading.enumerate()) - before if each.name == "trunkline-sqlite")
    del store
    await until(lambda: not thread.is_alive())


def test_a_program_that_does_not_close_its_store_ends(path: Path) -> None:
    source = "store = SqliteEngine(sys.argv[1])\nasync def main():\n    await store.put('key', b'1', ttl=60)\n"
    process = program(source + "asyncio.run(main())\n", path)
    end(process)
    assert process.returncode == 0
    assert not path.with_name("store.db-wal").exists()


# --- channels ---------------------------------------------------------------------------------------------------------


async def test_messages_reach_other_processes_in_the_order_of_the_log(path: Path) -> None:
    listener = program(LISTENER, path)
    try:
        assert await line_of(listener) == "ready"
        async with opened(path) as one, opened(path) as other:
            inbox = Inbox()
            await other.subscribe("news", inbox)
            appended = await asyncio.gather(
                *((one, other)[n % 2].append("log", b"%d" % n, announce="news", **LIMITS) for n in range(100))
            )
            assert {each.heard for each in appended} == {2}
            entries = [f"{each.id} {each.data.decode()}" for each in await one.read("log") or ()]
            assert [data.decode() for data in await inbox.get(100)] == entries
            assert [await line_of(listener) for _ in range(100)] == entries
    finally:
        end(listener)


async def test_a_process_that_was_killed_is_not_counted(path: Path) -> None:
    listener = program(LISTENER, path)
    assert await line_of(listener) == "ready"
    async with opened(path) as store:
        assert await store.publish("news", b"1") == 1
        listener.send_signal(signal.SIGKILL)
        end(listener)
        assert len(list(path.parent.glob("*-wake-*"))) == 1
        assert (await store.append("log", b"2", announce="news", **LIMITS)).heard == 0
        assert await store.publish("news", b"3") == 0
        assert list(path.parent.glob("*-wake-*")) == []


async def test_listeners_that_are_gone_are_removed_by_the_next_one(path: Path) -> None:
    listener = program(LISTENER, path)
    assert await line_of(listener) == "ready"
    listener.kill()
    end(listener)
    async with opened(path) as store:
        await store.subscribe("other", Inbox())
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT count(*) FROM listener").fetchone() == (1,)
            assert connection.execute("SELECT count(*) FROM subscription").fetchone() == (1,)


async def test_a_listener_that_was_taken_for_dead_subscribes_again(path: Path) -> None:
    async with opened(path) as store:
        inbox, missed = Inbox(), asyncio.Event()
        await store.subscribe("news", inbox, missed=missed.set)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM listener")
        async with asyncio.timeout(120):
            await missed.wait()
        assert await store.publish("news", b"1") == 1
        assert await inbox.get(1) == [b"1"]


async def test_a_channel_whose_end_could_not_be_written_can_be_subscribed_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as store:
        await store.subscribe("other", Inbox())
        subscription = await store.subscribe("news", Inbox())

        def refuse(*_: object) -> None:
            raise StoreUnavailable("it cannot be written now")

        with monkeypatch.context() as patched:
            patched.setattr(Tables, "unsubscribe", refuse)
            await subscription.close()
        channels = store._connection().channels
        assert channels is not None
        inbox = Inbox()
        # The end is to be written, and the channel is subscribed in the same turn of the loop.
        asyncio.get_running_loop().call_soon(channels._check)
        await asyncio.gather(store.subscribe("news", inbox))
        await until(lambda: not channels._tasks)
        assert await store.publish("news", b"1") == 1
        assert await inbox.get(1) == [b"1"]


async def test_a_listener_that_is_too_far_behind_learns_that_it_missed_messages(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_tables, "_MESSAGE_BYTES", 1000)
    async with opened(path) as store, opened(path) as slow:
        behind, current = Inbox(), Inbox()
        missed: list[str] = []
        await slow.subscribe("news", behind, missed=lambda: missed.append("news"))
        await slow.subscribe("quiet", current, missed=lambda: missed.append("quiet"))
        # A channel without subscribers there: what is removed of it was not missed.
        await store.subscribe("busy", Inbox())
        for _ in range(50):
            await store.publish("busy", b"x" * 100)
        await store.publish("quiet", b"1")
        assert await current.get(1) == [b"1"]
        assert missed == []
        with monkeypatch.context() as patched:
            # It reads nothing while messages are sent and removed.
            patched.setattr(sqlite_channels.SqliteChannels, "_read_messages", lambda _: None)
            for n in range(50):
                await store.publish("news", b"%03d" % n + b"x" * 100)
        await store.publish("news", b"last")
        await until(lambda: not behind.messages.empty())
        assert missed == ["news", "quiet"]
        messages = [behind.messages.get_nowait()[:3] for _ in range(behind.messages.qsize())]
        assert (messages == sorted(messages), len(messages) < 50, messages[-1]) == (True, True, b"las")


async def test_without_sockets_messages_are_polled(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no such sockets")

    monkeypatch.setattr(sqlite_channels, "_RENEW_SECONDS", 0.05)
    async with opened(path) as one, opened(path) as other:
        inbox = Inbox()
        with monkeypatch.context() as patched:
            patched.setattr(socket.socket, "bind", refuse)
            subscription = await one.subscribe("news", inbox)
        assert list(path.parent.glob("*-wake-*")) == []
        for n in range(3):
            assert await other.publish("news", b"%d" % n) == 1
        assert await inbox.get(3) == [b"0", b"1", b"2"]

        def lease() -> float:
            with closing(sqlite3.connect(path)) as connection:
                return float(connection.execute("SELECT until FROM listener").fetchone()[0])

        first = lease()
        await until(lambda: lease() > first)
        await subscription.close()
        assert await other.publish("news", b"4") == 0


async def test_a_long_path_has_sockets_too(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    async with opened(folder / "store.db") as one, opened(folder / "store.db") as other:
        inbox = Inbox()
        await one.subscribe("news", inbox)
        if sys.platform == "linux":
            assert len(list(folder.glob("*-wake-*"))) == 1
        assert await other.publish("news", b"1") == 1
        assert await inbox.get(1) == [b"1"]


async def test_a_subscriber_that_raises_does_not_stop_the_others(path: Path) -> None:
    def fail(_: bytes) -> None:
        raise ValueError

    async with opened(path) as store:
        inbox = Inbox()
        await store.subscribe("news", fail)
        await store.subscribe("news", inbox)
        await store.publish("news", b"1")
        assert await inbox.get(1) == [b"1"]


# --- what has expired -------------------------------------------------------------------------------------------------


def rows(path: Path) -> dict[str, int]:
    """Return how many rows each table has."""
    names = ("value", "rate", "log", "log_entry", "index_member", "index_total")
    with closing(sqlite3.connect(path)) as connection:
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}


async def test_what_has_expired_is_removed_little_by_little(path: Path) -> None:
    now = [1000.0]
    async with opened(path, now=lambda: now[0]) as store:
        for n in range(300):
            await store.commit(
                Put(f"key{n}", b"1", 10), Index(f"m{n}", {"all": IndexLimits(), f"i{n}": IndexLimits()}, ttl=10)
            )
            await store.append(f"log{n % 3}", b"1", ttl=10, max_entries=1000, max_bytes=10**6)
            await store.admit(f"caller{n}", rate=1, burst=1)
        now[0] += 60
        before = rows(path)
        assert min(before.values()) >= 3
        # What is renewed is not removed; a transaction removes a part of the others.
        await store.put("key0", b"again", ttl=60)
        after = rows(path)
        assert all(before[name] - after[name] <= 100 for name in ("value", "rate", "log_entry"))
        for _ in range(50):
            await store.put("key0", b"again", ttl=60)
        assert rows(path) == {"value": 1, "rate": 0, "log": 0, "log_entry": 0, "index_member": 0, "index_total": 0}


async def test_a_renewed_value_outlives_the_time_of_the_first_one(path: Path) -> None:
    now = [1000.0]
    async with opened(path, now=lambda: now[0]) as store:
        await store.put("key", b"1", ttl=10)
        await store.append("log", b"1", ttl=10, max_entries=9, max_bytes=99)
        await store.index("m", into={"all": IndexLimits()}, weight=1, ttl=10)
        now[0] += 5
        await store.put("key", b"2", ttl=100)
        await store.append("log", b"2", ttl=100, max_entries=9, max_bytes=99)
        await store.index("m", into={"all": IndexLimits()}, weight=2, ttl=100)
        for _ in range(5):
            now[0] += 10
            await store.put("other", b"", ttl=1)
        assert (await store.get("key"), await store.members("all")) == (b"2", ["m"])
        assert [entry.data for entry in await store.read("log") or ()] == [b"1", b"2"]
        full = await store.index("n", into={"all": IndexLimits(weight=2)}, weight=1, ttl=1)
        assert full is not None


async def test_a_full_index_counts_no_member_that_has_expired(path: Path) -> None:
    now = [1000.0]
    limits = {"all": IndexLimits(members=1000, weight=1000)}
    async with opened(path, now=lambda: now[0]) as store:
        assert (
            await asyncio.gather(*(store.index(f"m{n}", into=limits, weight=1, ttl=10) for n in range(1000)))
            == [None] * 1000
        )
        # Renewed with a shorter time.
        await store.index("m999", into=limits, weight=1, ttl=5)
        assert await store.index("next", into=limits, ttl=10) is not None
        now[0] += 6
        assert await store.index("next", into=limits, weight=1, ttl=100) is None
        now[0] += 6
        assert await store.index("heavy", into=limits, weight=999, ttl=100) is None
        assert await store.index("one more", into=limits, weight=1, ttl=100) is not None


PROBES: dict[str, Callable[[SqliteEngine], Any]] = {
    "get": lambda store: store.get("key500"),
    "put": lambda store: store.put("key500", b"x", ttl=60),
    "append": lambda store: store.append("log500", b"x", **LIMITS),
    "read": lambda store: store.read("log500"),
    "admit": lambda store: store.admit("caller500", rate=1e6, burst=9),
    "index": lambda store: store.index("m500", into={"all": IndexLimits(10**6, 10**9)}, weight=2, ttl=60),
    "members": lambda store: store.members("all", after="m500", limit=3),
    "take": lambda store: store.take("jobs", "me", lease=60),
    "publish": lambda store: store.publish("nobody", b"x"),
}


async def test_no_verb_looks_at_more_if_more_is_stored(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in steps of SQLite's machine, of which a scan would take thousands."""
    connections: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def remembered(*args: Any, **options: Any) -> sqlite3.Connection:
        connections.append(connect(*args, **options))
        return connections[-1]

    monkeypatch.setattr(sqlite3, "connect", remembered)
    counts: list[dict[str, int]] = []
    for stored in (600, 3000):
        file = path.with_name(f"{stored}.db")
        fill(file, stored)
        connections.clear()
        async with opened(file) as store:
            await store.get("key500")
            steps = Counter[str]()
            for verb, probe in PROBES.items():
                await probe(store)

                def count(verb: str = verb) -> int:
                    steps[verb] += 1  # noqa: B023 - counted before the next file
                    return 0

                for connection in connections:
                    connection.set_progress_handler(count, 1)
                await probe(store)
                for connection in connections:
                    connection.set_progress_handler(None, 1)
            counts.append(steps)
    assert {verb for verb in PROBES if counts[1][verb] > 1.3 * counts[0][verb]} == set()
    assert min(counts[0].values()) > 0


def fill(path: Path, count: int) -> None:
    """Store so many of each, in one transaction."""
    with closing(SqliteFile(path, max_bytes=None).open()) as connection:
        tables = Tables(connection, "\x1f")
        connection.execute("BEGIN IMMEDIATE")
        tables.begin(time.time())
        for n in range(count):
            tables.commit(
                [
                    Put(f"key{n}", b"x", 600),
                    Index(f"m{n}", {"all": IndexLimits(10**6, 10**9)}, weight=1, ttl=600),
                    Enqueue("jobs", f"job{n}", b"x", "holder"),
                ]
            )
            tables.append(f"log{n}", b"x", announce=None, **LIMITS)
            tables.admit(f"caller{n}", rate=0.01, burst=9, cost=1)
        tables.finish(1)
        connection.execute("COMMIT")
