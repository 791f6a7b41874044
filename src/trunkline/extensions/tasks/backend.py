"""Task backends: the interface, and the backend in memory.

A backend stores records and applies changes to them atomically. It runs nothing and knows neither requests nor
connections.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from heapq import heappop, heappush
from typing import Protocol

from msgspec import Struct

from trunkline.errors import TooManyRequests
from trunkline.extensions.tasks.record import TaskRecord, start_again

__all__ = [
    "Change",
    "MemoryTaskBackend",
    "SharedTaskBackend",
    "TaskBackend",
    "TaskLimits",
    "TaskListener",
    "check_limits",
    "open_backend",
    "too_many_tasks",
]

#: Returns the changed record; returning the same one changes nothing.
Change = Callable[[TaskRecord], TaskRecord]


class TaskLimits(Struct, frozen=True, kw_only=True):
    """Limits for the tasks that a server stores."""

    #: Unfinished tasks of one caller; anonymous callers count as one.
    per_caller: int = 1000
    #: All tasks, including finished ones until they expire.
    total: int = 100_000
    #: Bytes of arguments and results that are kept in memory, or in Redis.
    memory_bytes: int = 256 * 1024 * 1024


class TaskBackend(Protocol):
    """Stores tasks; every method may be called at any time from the event loop.

    A *runner* runs tasks: one server in one event loop of one process. The runner of a task is part of its record.
    """

    @property
    def durable(self) -> bool:
        """Whether tasks survive the end of the process."""

    async def create(self, record: TaskRecord, limits: TaskLimits) -> None:
        """Store a new task, durably when this returns.

        Raises:
            TooManyRequests: a limit is reached.
        """

    async def get(self, id: str) -> TaskRecord | None:
        """Return a task; None if there is none, or it has expired."""

    async def update(self, id: str, change: Change) -> TaskRecord | None:
        """Apply a change atomically and return the new record; None if there is no such task."""

    async def page(self, owner: str | None, *, after: tuple[float, str] | None, limit: int) -> Sequence[TaskRecord]:
        """Return tasks of an owner, oldest first, after a time of creation and an id."""

    async def claim(self, runner: str) -> Sequence[TaskRecord]:
        """Take over the unfinished tasks of runners that have ended; return those that may run again.

        The others are marked as failed.
        """

    def release(self, runner: str) -> None:
        """Called when a runner ends: release its resources, so that its unfinished tasks can be taken over."""

    async def aclose(self) -> None:
        """Release files and threads; the next call opens them again."""


class TaskListener(Protocol):
    """What reacts to the other workers that share a backend."""

    def task_changed(self, id: str) -> None:
        """Called when another worker has changed a task of this runner."""

    def lease_lost(self, id: str) -> None:
        """Called when a task of this runner was taken over by another, or is gone."""

    def changes_missed(self) -> None:
        """Called when changes by other workers may have been missed."""

    def tasks_left(self) -> None:
        """Called when another runner has ended, or may have: `TaskBackend.claim` may find its tasks."""


class SharedTaskBackend(TaskBackend, Protocol):
    """A backend that several workers share, and which notifies each of them of the changes of the others.

    A runner holds a lease on each of its tasks while its process lives. A task whose lease is not renewed is taken over
    by `claim`, which is called regularly.
    """

    @property
    def lease(self) -> float:
        """Seconds after which the tasks of a silent runner can be taken over."""

    def join(self, runner: str, listener: TaskListener) -> None:
        """Renew the leases of a runner, and call its listener, until it is released; needs a running event loop."""

    async def watch(self, id: str, changed: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call a function after each change of a task, by any worker; return a function that stops it."""

    async def set_message(self, id: str, message: str) -> None:
        """Store the status message of a task that runs here, for the other workers."""


def check_limits(limits: TaskLimits, *, unfinished: int, total: int, used: int = 0) -> None:
    """Check that one more task may be created.

    Raises:
        TooManyRequests: a limit is reached.
    """
    if unfinished < limits.per_caller and total < limits.total and used < limits.memory_bytes:
        return
    for name, count, most in (
        ("per_caller", unfinished, limits.per_caller),
        ("total", total, limits.total),
        ("memory_bytes", used, limits.memory_bytes),
    ):
        if count >= most:
            raise too_many_tasks(name, most)


def too_many_tasks(name: str, most: int) -> TooManyRequests:
    """Return the error for a limit that is reached."""
    return TooManyRequests(
        f"Too many tasks: the limit {name} of {most} is reached; wait until tasks finish, or cancel some",
        data={"limit": name, "allowed": most},
    )


class MemoryTaskBackend:
    """Stores tasks in memory; they end with the process."""

    __slots__ = ("_expiring", "_gone", "_most", "_now", "_records", "_unfinished", "_used")

    durable: bool = False

    def __init__(self, now: Callable[[], float]) -> None:
        """Start empty; ``now`` returns wall time."""
        self._now = now
        self._records: dict[str, TaskRecord] = {}
        self._unfinished: dict[str | None, int] = {}
        #: A heap of the finished tasks, by the time at which each may be deleted.
        self._expiring: list[tuple[float, str]] = []
        self._used = 0
        #: The limit of the bytes, as given with the last task.
        self._most = TaskLimits().memory_bytes
        #: The ended runners with unfinished tasks.
        self._gone: set[str] = set()

    async def create(self, record: TaskRecord, limits: TaskLimits) -> None:
        """Store a new task."""
        self._forget_expired()
        unfinished = self._unfinished.get(record.owner, 0)
        check_limits(limits, unfinished=unfinished, total=len(self._records), used=self._used)
        self._most = limits.memory_bytes
        self._records[record.id] = record
        self._unfinished[record.owner] = unfinished + 1
        self._used += record.size

    async def get(self, id: str) -> TaskRecord | None:
        """Return a task."""
        record = self._records.get(id)
        if record is not None and record.expires is not None and record.expires <= self._now():
            self._remove(id)
            return None
        return record

    async def update(self, id: str, change: Change) -> TaskRecord | None:
        """Apply a change.

        Raises:
            TooManyRequests: it needs more memory than is allowed, and the task is not finished.
        """
        before = await self.get(id)
        if before is None:
            return None
        after = change(before)
        if after is not before:
            grown = after.size - before.size
            if grown > 0 and not after.finished and self._used + grown > self._most:
                # Answers of the caller. The result of a finished task is kept, since it cannot be produced again.
                raise too_many_tasks("memory_bytes", self._most)
            self._records[id] = after
            self._used += grown
            if after.finished and not before.finished:
                self._unfinished[before.owner] -= 1
                if not self._unfinished[before.owner]:
                    del self._unfinished[before.owner]
                if after.expires is not None:
                    heappush(self._expiring, (after.expires, id))
        return after

    async def page(self, owner: str | None, *, after: tuple[float, str] | None, limit: int) -> Sequence[TaskRecord]:
        """Return tasks of an owner."""
        self._forget_expired()
        own = (each for each in self._records.values() if each.owner == owner)
        rest = [each for each in own if after is None or (each.created, each.id) > after]
        return sorted(rest, key=lambda each: (each.created, each.id))[:limit]

    async def claim(self, runner: str) -> Sequence[TaskRecord]:
        """Take over unfinished tasks of an ended runner in this process, such as one of an earlier event loop."""
        left = [each for each in self._records.values() if not each.finished and each.runner in self._gone]
        self._gone.clear()
        taken = [await self.update(each.id, lambda record: start_again(record, runner, self._now())) for each in left]
        return [each for each in taken if each is not None and not each.finished]

    def release(self, runner: str) -> None:
        """Record that a runner has ended."""
        if self._unfinished:
            self._gone.add(runner)

    async def aclose(self) -> None:
        """Do nothing: there are neither files nor threads."""

    def _forget_expired(self) -> None:
        now = self._now()
        while self._expiring and self._expiring[0][0] <= now:
            self._remove(heappop(self._expiring)[1])

    def _remove(self, id: str) -> None:
        record = self._records.pop(id, None)
        if record is not None:
            self._used -= record.size


def open_backend(given: str | os.PathLike[str] | TaskBackend | None, now: Callable[[], float]) -> TaskBackend:
    """Return the backend for ``tasks=``: a path opens a file, a backend is used as it is, None is one in memory."""
    if given is None:
        return MemoryTaskBackend(now)
    if isinstance(given, str | os.PathLike):
        from trunkline.extensions.tasks.sqlite_backend import SqliteTaskBackend

        return SqliteTaskBackend(given, now=now)
    return given
