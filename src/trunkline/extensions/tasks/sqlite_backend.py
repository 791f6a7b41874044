"""Tasks in an SQLite file: they survive a restart of the process.

One thread owns the connection. Queued writes share a transaction, so that many tasks need only one disk sync; each is
durable when its caller gets the result. Every runner holds a lock on its own file beside the database; the kernel
releases it when the process ends for any reason, so other runners can tell whose unfinished tasks they may take over.
The thread ends with the last runner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from trunkline.errors import ConfigError
from trunkline.extensions.tasks.backend import Change, TaskLimits, check_limits
from trunkline.extensions.tasks.record import TaskRecord, start_again
from trunkline.sqlite_wal import enter_wal_mode

__all__ = ["SqliteTaskBackend"]

T = TypeVar("T")
log = logging.getLogger("trunkline")

_VERSION = 1  # The version of the tables below; a file with another version is rejected.
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS tasks (
    id TEXT PRIMARY KEY, owner TEXT, created REAL NOT NULL, runner TEXT NOT NULL,
    unfinished INTEGER NOT NULL, expires REAL, body BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tasks_by_owner ON tasks (owner, created, id);
CREATE INDEX IF NOT EXISTS tasks_by_expiry ON tasks (expires) WHERE expires IS NOT NULL;
CREATE INDEX IF NOT EXISTS tasks_unfinished ON tasks (owner, runner) WHERE unfinished = 1;
-- Counting rows reads all of them; the triggers keep the number in the transaction that changes it.
CREATE TABLE IF NOT EXISTS counted (total INTEGER NOT NULL);
INSERT INTO counted SELECT COUNT(*) FROM tasks WHERE NOT EXISTS (SELECT * FROM counted);
CREATE TRIGGER IF NOT EXISTS task_added AFTER INSERT ON tasks BEGIN UPDATE counted SET total = total + 1; END;
CREATE TRIGGER IF NOT EXISTS task_removed AFTER DELETE ON tasks BEGIN UPDATE counted SET total = total - 1; END;
PRAGMA user_version = {_VERSION};
COMMIT;
"""
_BATCH = 256  # Maximum number of writes in a transaction.
_EXPIRED_AT_ONCE = 64  # Expired rows deleted for each new task: more than one, so that deleting keeps up.
_BUSY_SECONDS = 10.0  # Timeout for the lock of another process.
_CLOSE_SECONDS = 20.0  # Timeout for pending writes when a server closes.
_decoder = msgspec.json.Decoder(TaskRecord)


class _Job:
    """A job for the thread, with the future of its result."""

    __slots__ = ("future", "loop", "outcome", "work", "writes")

    def __init__(self, work: Callable[[_Worker], Any], writes: bool) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.work = work
        self.writes = writes
        self.outcome: Any = None

    def deliver(self) -> None:
        """Resolve the future in its event loop; do nothing if the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        if self.future.done():
            return
        if isinstance(self.outcome, BaseException):
            self.future.set_exception(self.outcome)
        else:
            self.future.set_result(self.outcome)


class SqliteTaskBackend:
    """Stores tasks in an SQLite file on a local disk."""

    durable: bool = True

    def __init__(self, path: str | os.PathLike[str], *, now: Callable[[], float]) -> None:
        """Create the backend; the file is created with the first task. ``now`` returns wall time."""
        self._path = Path(path)
        self._now = now
        self._process = os.getpid()
        #: Held while a worker starts or ends.
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        #: The last worker that was started; it may be about to end.
        self._thread: threading.Thread | None = None

    async def create(self, record: TaskRecord, limits: TaskLimits) -> None:
        """Store a new task."""

        def work(worker: _Worker) -> None:
            db = worker.db
            worker.files.hold(record.runner)
            gone = f"SELECT id FROM tasks WHERE expires <= ? LIMIT {_EXPIRED_AT_ONCE}"
            db.execute(f"DELETE FROM tasks WHERE id IN ({gone})", (self._now(),))
            query = "SELECT COUNT(*) FROM tasks WHERE unfinished = 1 AND owner IS ?"
            unfinished = db.execute(query, (record.owner,)).fetchone()[0]
            total = db.execute("SELECT total FROM counted").fetchone()[0]
            check_limits(limits, unfinished=unfinished, total=total)
            db.execute("INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?)", (record.id, *_columns(record)))

        await self._do(work, writes=True)

    async def get(self, id: str) -> TaskRecord | None:
        """Return a task."""
        return await self._do(lambda worker: self._read(worker.db, id))

    async def update(self, id: str, change: Change) -> TaskRecord | None:
        """Apply a change."""
        return await self._do(lambda worker: self._change(worker.db, id, change), writes=True)

    async def page(self, owner: str | None, *, after: tuple[float, str] | None, limit: int) -> Sequence[TaskRecord]:
        """Return tasks of an owner."""

        def work(worker: _Worker) -> list[TaskRecord]:
            created, id = after or (float("-inf"), "")
            rows = worker.db.execute(
                "SELECT body FROM tasks WHERE owner IS ? AND (created, id) > (?, ?) "
                "AND (expires IS NULL OR expires > ?) ORDER BY created, id LIMIT ?",
                (owner, created, id, self._now(), limit),
            )
            return [_decoder.decode(body) for (body,) in rows]

        return await self._do(work)

    async def claim(self, runner: str) -> Sequence[TaskRecord]:
        """Take over the unfinished tasks of ended runners."""

        def work(worker: _Worker) -> list[TaskRecord]:
            worker.files.hold(runner)
            living = worker.files.living()
            found = worker.db.execute("SELECT id, runner FROM tasks WHERE unfinished = 1").fetchall()
            taken = [self._take_over(worker.db, id, runner) for id, before in found if before not in living]
            return [each for each in taken if each is not None and not each.finished]

        return await self._do(work, writes=True)

    def release(self, runner: str) -> None:
        """Unlock the file of a runner; the last one ends the thread."""
        with self._lock:
            if self._worker is not None and self._process == os.getpid():
                self._worker.queue.put(runner)

    async def aclose(self) -> None:
        """Close the file after the queued jobs."""
        if self._process != os.getpid():
            self._forget_parent()
        with self._lock:
            worker, self._worker = self._worker, None
            thread, self._thread = self._thread, None
        if worker is not None:
            worker.queue.put(None)
        if thread is not None:
            await asyncio.to_thread(thread.join, _CLOSE_SECONDS)

    def _read(self, db: sqlite3.Connection, id: str) -> TaskRecord | None:
        query = "SELECT body FROM tasks WHERE id = ? AND (expires IS NULL OR expires > ?)"
        row = db.execute(query, (id, self._now())).fetchone()
        return None if row is None else _decoder.decode(row[0])

    def _change(self, db: sqlite3.Connection, id: str, change: Change) -> TaskRecord | None:
        before = self._read(db, id)
        if before is None:
            return None
        after = change(before)
        if after is not before:
            columns = "owner = ?, created = ?, runner = ?, unfinished = ?, expires = ?, body = ?"
            db.execute(f"UPDATE tasks SET {columns} WHERE id = ?", (*_columns(after), id))
        return after

    def _take_over(self, db: sqlite3.Connection, id: str, runner: str) -> TaskRecord | None:
        try:
            return self._change(db, id, lambda record: start_again(record, runner, self._now()))
        except msgspec.DecodeError:
            # One unreadable row must not prevent all others from being taken over.
            log.exception("the task %s in %s cannot be read", id, self._path)
            return None

    async def _do(self, work: Callable[[_Worker], T], *, writes: bool = False) -> T:
        """Run a job in the worker thread, and start the thread if there is none."""
        job = _Job(work, writes)
        if self._process != os.getpid():
            self._forget_parent()
        with self._lock:
            if self._worker is None:
                self._worker = _Worker(self._path, may_end=self._may_end)
                self._thread = self._worker.thread
            self._worker.queue.put(job)
        result: T = await job.future
        return result

    def _may_end(self, worker: _Worker) -> bool:
        """Called by a worker without work before it ends; later jobs go to a new worker."""
        with self._lock:
            if not worker.queue.empty():
                return False
            if self._worker is worker:
                self._worker = None
            return True

    def _forget_parent(self) -> None:
        """Reset the state in a forked process: threads are not inherited, and the locks belong to the parent."""
        self._process, self._lock = os.getpid(), threading.Lock()
        inherited, self._worker, self._thread = self._worker, None, None
        for number in () if inherited is None else inherited.files.held.values():
            os.close(number)


class _Worker:
    """The thread that owns the connection, and its queue: jobs, names of ended runners, and None to stop."""

    def __init__(self, path: Path, *, may_end: Callable[[_Worker], bool]) -> None:
        self._path = path
        self._may_end = may_end
        self._ending = False
        self.queue: queue.SimpleQueue[_Job | str | None] = queue.SimpleQueue()
        self.files = _RunnerFiles(path)
        self.db: sqlite3.Connection
        # A daemon thread: the process does not wait for a slow disk at exit; unfinished writes were never confirmed.
        self.thread = threading.Thread(target=self._run, name="trunkline-tasks", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.db = self._open()
        except (sqlite3.Error, OSError, ConfigError) as error:
            self._fail(ConfigError(f"the tasks file {self._path} cannot be used: {error}"))
            return
        try:
            while not (self._ending and self._may_end(self)):
                self._perform(self._next_batch())
        finally:
            self.db.close()
            self.files.release_all()

    def _fail(self, error: Exception) -> None:
        """Fail all queued jobs, and end; the next call starts a new worker."""
        while True:
            while not self.queue.empty():
                if isinstance(job := self.queue.get(), _Job):
                    job.outcome = error
                    job.deliver()
            if self._may_end(self):
                return

    def _next_batch(self) -> list[_Job]:
        """Wait for a job, and return it with all queued ones."""
        batch: list[_Job] = []
        while not self.queue.empty() or not (batch or self._ending):
            job = self.queue.get()
            if isinstance(job, _Job):
                batch.append(job)
                self._ending = False
                if len(batch) >= _BATCH:
                    break
            else:
                # Finish the jobs queued before the runner is released.
                self._perform(batch)
                batch = []
                if job is not None:
                    self.files.release(job)
                self._ending = job is None or not self.files.held
        return batch

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Results are private to their callers: other users of the machine must not read them.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        db = sqlite3.connect(self._path, isolation_level=None, timeout=_BUSY_SECONDS)
        try:
            enter_wal_mode(db, seconds=_BUSY_SECONDS)
            db.execute("PRAGMA synchronous = FULL")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _VERSION):
                raise ConfigError(f"it was written by another version of Trunkline (format {version})")
            if version == 0:
                db.executescript(_SCHEMA)
        except BaseException:
            db.close()
            raise
        return db

    def _perform(self, batch: list[_Job]) -> None:
        """Run a batch of jobs in one transaction; a job that fails rolls back only its own writes."""
        db = self.db
        try:
            if any(job.writes for job in batch):
                db.execute("BEGIN IMMEDIATE")
            for job in batch:
                self._perform_one(job)
            if db.in_transaction:
                db.execute("COMMIT")
        except sqlite3.Error as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            for job in batch:
                job.outcome = error
        for job in batch:
            job.deliver()

    def _perform_one(self, job: _Job) -> None:
        if job.writes:
            self.db.execute("SAVEPOINT job")
        try:
            job.outcome = job.work(self)
        except Exception as error:  # noqa: BLE001 - raised in the caller of the job
            job.outcome = error
            if job.writes:
                self.db.execute("ROLLBACK TO job")
        if job.writes:
            self.db.execute("RELEASE job")


class _RunnerFiles:
    """The lock files by which runners detect which others are alive."""

    def __init__(self, path: Path) -> None:
        self._path = path
        #: The open files of the runners in this process.
        self.held: dict[str, int] = {}

    def hold(self, runner: str) -> None:
        """Lock the file of a runner of this process until it is released."""
        path = self._file(runner)
        while runner not in self.held:
            number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            _lock(number, wait=True)
            # Before it was locked, another process may have removed the file as a stale one.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(number), os.stat(path)):
                    self.held[runner] = number
                    return
            os.close(number)

    def release(self, runner: str) -> None:
        """Remove the file of a runner of this process."""
        number = self.held.pop(runner, None)
        if number is not None:
            with contextlib.suppress(OSError):
                self._file(runner).unlink(missing_ok=True)
            os.close(number)

    def release_all(self) -> None:
        """Remove all files of this process."""
        for runner in tuple(self.held):
            self.release(runner)

    def living(self) -> set[str]:
        """Return the live runners of all processes; remove the files of ended ones."""
        head, tail = f"{self._path.name}-", ".lock"
        found = [name for name in os.listdir(self._path.parent) if name.startswith(head) and name.endswith(tail)]
        return {runner for name in found if self._lives(runner := name[len(head) : -len(tail)])}

    def _lives(self, runner: str) -> bool:
        if runner in self.held:
            return True
        path = self._file(runner)
        try:
            number = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            if not _lock(number, wait=False):
                return True
            path.unlink(missing_ok=True)
            return False
        except PermissionError:
            # Windows has no such locks, but does not remove a file that another process has open.
            return True
        finally:
            os.close(number)

    def _file(self, runner: str) -> Path:
        return self._path.with_name(f"{self._path.name}-{runner}.lock")


def _columns(record: TaskRecord) -> tuple[Any, ...]:
    """Return the columns after the id."""
    return (
        record.owner,
        record.created,
        record.runner,
        not record.finished,
        record.expires,
        msgspec.json.encode(record),
    )


def _lock(number: int, *, wait: bool) -> bool:
    """Lock an open file; return False if another process has locked it."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
