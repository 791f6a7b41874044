"""The backend in an SQLite file: the file, its thread, its locks, and processes that share it."""

# The tests look at files while the backend is open; that blocks only the tests themselves.
# ruff: noqa: ASYNC230, ASYNC240

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.tasks.records import make_record
from tests.support import run_async
from trunkline.errors import ConfigError, TooManyRequests
from trunkline.extensions import SqliteTaskBackend, TaskLimits
from trunkline.extensions.tasks.record import finish

LIMITS = TaskLimits()
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
#: Creates a task in a file, says so, and waits to be killed.
HOLDER = """
import asyncio, sys, time
from tests.extensions.tasks.records import make_record
from trunkline.extensions import SqliteTaskBackend, TaskLimits

async def main():
    backend = SqliteTaskBackend(sys.argv[1], now=time.time)
    await backend.create(make_record("held", runner="holder", retry=1), TaskLimits())
    print("created", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""
#: Uses a backend before and after a fork.
FORKER = """
import asyncio, os, sys, time, warnings
from tests.extensions.tasks.records import make_record
from trunkline.extensions import SqliteTaskBackend, TaskLimits

warnings.simplefilter("ignore", DeprecationWarning)
backend = SqliteTaskBackend(sys.argv[1], now=time.time)

async def create(id, runner):
    await backend.create(make_record(id, runner=runner, retry=1), TaskLimits())

async def child():
    await create("child", "child")
    # The parent lives, and is not taken over.
    assert [each.id for each in await backend.claim("child")] == []
    await backend.aclose()

async def parent():
    await create("after", "parent")
    taken = await backend.claim("parent")
    assert [each.id for each in taken] == ["child"], taken
    await backend.aclose()

asyncio.run(create("before", "parent"))
pid = os.fork()
if pid == 0:
    asyncio.run(asyncio.wait_for(child(), 20))
    os._exit(0)
_, status = os.waitpid(pid, 0)
assert status == 0, status
asyncio.run(asyncio.wait_for(parent(), 20))
print("done")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "tasks.sqlite"


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteTaskBackend]:
    """Return a backend that is closed at the end."""
    backend = SqliteTaskBackend(path, now=time.time)
    try:
        yield backend
    finally:
        await backend.aclose()


def new_record(id: str = "one", **members: Any) -> Any:
    """Return a record that was created now, so that it does not expire in a test."""
    return make_record(id, created=time.time(), updated=time.time(), **members)


def threads() -> list[threading.Thread]:
    """Return the threads of backends."""
    return [each for each in threading.enumerate() if each.name == "trunkline-tasks"]


async def ended(thread: threading.Thread) -> bool:
    """Wait until a thread has ended."""
    await asyncio.to_thread(thread.join, 20.0)
    return not thread.is_alive()


@contextlib.contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that has created a task in a file."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, env=ENV, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "created\n"
            yield process
        finally:
            process.kill()


# --- the file ---------------------------------------------------------------------------------------------------------


async def test_a_task_is_on_the_disk_when_its_creation_returns(path: Path) -> None:
    async with opened(path) as backend:
        await backend.create(new_record(), LIMITS)
        with contextlib.closing(sqlite3.connect(path)) as db:
            assert db.execute("SELECT id FROM tasks").fetchall() == [("one",)]


async def test_no_other_user_can_read_the_file(path: Path) -> None:
    async with opened(path) as backend:
        await backend.create(new_record(), LIMITS)
        modes = {each.name: each.stat().st_mode & 0o077 for each in path.parent.iterdir()}
    assert set(modes.values()) == {0}


async def test_a_file_that_is_no_database_is_refused_and_not_touched(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("These are my notes, and I want to keep them. " * 50)
    async with opened(path) as backend:
        with pytest.raises(ConfigError, match=r"tasks\.sqlite cannot be used"):
            await backend.get("one")
    assert path.read_text().startswith("These are my notes")


async def test_a_file_that_can_be_used_later_is_used_then(path: Path) -> None:
    path.mkdir(parents=True)
    async with opened(path) as backend:
        with pytest.raises(ConfigError):
            await backend.get("one")
        path.rmdir()
        await backend.create(new_record(), LIMITS)
        assert await backend.get("one") is not None


async def test_a_file_of_a_later_version_is_refused(path: Path) -> None:
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    async with opened(path) as backend:
        with pytest.raises(ConfigError, match="format 99"):
            await backend.get("one")


async def test_the_number_of_tasks_is_known_to_the_next_process(path: Path) -> None:
    limits = TaskLimits(total=2)
    async with opened(path) as backend:
        await backend.create(new_record("one"), limits)
        await backend.create(new_record("two"), limits)
    async with opened(path) as backend:
        with pytest.raises(TooManyRequests, match="total"):
            await backend.create(new_record("three"), limits)


async def test_expired_tasks_leave_the_file_when_new_ones_come(path: Path) -> None:
    async with opened(path) as backend:
        for number in range(3):
            await backend.create(make_record(f"old{number}", ttl=1.0), LIMITS)
            await backend.update(f"old{number}", lambda record: finish(record, "cancelled", 101.0))
        await backend.create(new_record("new"), LIMITS)
        with contextlib.closing(sqlite3.connect(path)) as db:
            found = db.execute("SELECT id FROM tasks").fetchall(), db.execute("SELECT total FROM counted").fetchall()
    assert found == ([("new",)], [(1,)])


async def test_a_failed_creation_fails_alone(path: Path) -> None:
    async with opened(path) as backend:
        await backend.create(new_record("one"), LIMITS)
        work = [backend.create(new_record(id), LIMITS) for id in ("two", "one", "three")]
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        found = [await backend.get(id) for id in ("two", "three")]
    assert [type(each) for each in outcomes] == [type(None), sqlite3.IntegrityError, type(None)]
    assert None not in found


async def test_an_error_of_the_disk_reaches_everyone_who_waits(path: Path) -> None:
    async with opened(path) as backend:
        await backend.create(new_record(), LIMITS)
        with contextlib.closing(sqlite3.connect(path)) as db:
            # The end of the transaction fails, as it does on a full disk.
            db.executescript(
                "CREATE TABLE wanted (id PRIMARY KEY);"
                "CREATE TABLE broken (id REFERENCES wanted DEFERRABLE INITIALLY DEFERRED);"
                "CREATE TRIGGER fails AFTER UPDATE ON tasks BEGIN INSERT INTO broken VALUES (1); END;"
            )
        await backend._do(lambda worker: worker.db.execute("PRAGMA foreign_keys = ON") and None)
        changes = [backend.update("one", lambda record: finish(record, "cancelled", time.time())) for _ in range(2)]
        outcomes = await asyncio.gather(*changes, return_exceptions=True)
        found = await backend.get("one")
    assert [type(each) for each in outcomes] == [sqlite3.IntegrityError] * 2
    assert found is not None
    assert not found.finished


# --- the thread -------------------------------------------------------------------------------------------------------


async def test_nothing_is_left_open_after_the_end(path: Path) -> None:
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    async with opened(path) as backend:
        await backend.create(new_record(), LIMITS)
        assert len(threads()) == 1
    after = set(os.listdir("/proc/self/fd")) if before else set()
    assert (threads(), after - before) == ([], set())
    assert [each.name for each in path.parent.iterdir()] == ["tasks.sqlite"]


async def test_the_thread_ends_with_the_last_runner(path: Path) -> None:
    backend = SqliteTaskBackend(path, now=time.time)
    await backend.create(new_record("one", runner="first"), LIMITS)
    await backend.create(new_record("two", runner="second"), LIMITS)
    (thread,) = threads()
    backend.release("first")
    await backend.get("one")
    assert thread.is_alive()
    backend.release("second")
    assert await ended(thread)


async def test_a_backend_works_again_after_its_end(path: Path) -> None:
    async with opened(path) as backend:
        await backend.create(new_record("one"), LIMITS)
        await backend.aclose()
        await backend.aclose()
        await backend.create(new_record("two"), LIMITS)
        backend.release("here")
        await backend.create(new_record("three"), LIMITS)
        assert [each.id for each in await backend.page(None, after=None, limit=9)] == ["one", "two", "three"]


async def test_what_waits_at_the_end_is_still_done(path: Path) -> None:
    backend = SqliteTaskBackend(path, now=time.time)
    work = [asyncio.ensure_future(backend.create(new_record(f"t{number}"), LIMITS)) for number in range(300)]
    await asyncio.sleep(0)
    await backend.aclose()
    await asyncio.gather(*work)
    async with opened(path) as again:
        assert len(await again.page(None, after=None, limit=999)) == 300


def test_a_backend_serves_one_event_loop_after_another(path: Path) -> None:
    backend = SqliteTaskBackend(path, now=time.time)
    for number in range(3):
        run_async(backend.create(new_record(f"t{number}"), LIMITS))
    assert len(run_async(backend.page(None, after=None, limit=9))) == 3
    run_async(backend.aclose())


def test_a_loop_that_ended_before_its_answer_came_does_no_harm(path: Path) -> None:
    backend = SqliteTaskBackend(path, now=time.time)

    async def leave() -> None:
        work = asyncio.ensure_future(backend.create(new_record(), LIMITS))
        await asyncio.sleep(0)
        work.cancel()

    run_async(leave())
    found = run_async(backend.get("one"))
    run_async(backend.aclose())
    assert found is not None


def test_a_forked_process_has_a_thread_and_locks_of_its_own(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKER, str(path)], capture_output=True, env=ENV, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


# --- processes --------------------------------------------------------------------------------------------------------


async def test_the_tasks_of_a_process_that_lives_are_left_to_it(path: Path) -> None:
    with holder(path):
        async with opened(path) as backend:
            assert list(await backend.claim("here")) == []


async def test_the_tasks_of_a_process_that_was_killed_are_taken_over(path: Path) -> None:
    with holder(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(20)
    async with opened(path) as backend:
        taken = await backend.claim("here")
        files = sorted(each.name for each in path.parent.iterdir() if each.suffix == ".lock")
    assert [(each.id, each.runner, each.attempts) for each in taken] == [("held", "here", 2)]
    assert files == ["tasks.sqlite-here.lock"]


async def test_a_task_is_taken_over_by_one_process_only(path: Path) -> None:
    async with opened(path) as backend:
        await backend.create(new_record(retry=5), LIMITS)
    async with opened(path) as first, opened(path) as second:
        taken = await asyncio.gather(first.claim("first"), second.claim("second"))
    assert sorted(len(each) for each in taken) == [0, 1]


async def test_a_row_that_cannot_be_read_is_no_reason_to_leave_the_others(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as backend:
        await backend.create(new_record("good", retry=1), LIMITS)
        await backend.create(new_record("bad", retry=1), LIMITS)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE tasks SET body = '{' WHERE id = 'bad'")
    async with opened(path) as backend:
        taken = await backend.claim("next")
    assert [each.id for each in taken] == ["good"]
    assert "the task bad" in caplog.text


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files cannot be listed here")
async def test_the_file_of_a_runner_is_made_again_if_another_process_removes_it_first(path: Path) -> None:
    lock = path.with_name("tasks.sqlite-here.lock")
    path.parent.mkdir()
    # What another process does that sees the file before it is locked, and takes it for one that was left behind.
    with open(lock, "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        async with opened(path) as backend:
            claiming = asyncio.ensure_future(backend.claim("here"))
            while open_files().count(str(lock)) < 2:  # noqa: ASYNC110 - a thread opens the file
                await asyncio.sleep(0.001)
            lock.unlink()
            fcntl.flock(other, fcntl.LOCK_UN)
            await claiming
            assert lock.exists()


def open_files() -> list[str]:
    """Return the paths of the open files of this process."""
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return [os.readlink(link) for link in links if os.path.lexists(link)]
