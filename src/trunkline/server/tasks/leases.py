"""Leases on the tasks of a runner: who runs a task, and who may take it over.

An unfinished task has an entry in a queue, leased to its runner, which renews the lease while its process lives. An
entry whose lease ran out is the trace of a dead process; one whose lease was released is that of a runner that ended in
order. Each is leased to one worker, which then changes the record; a runner that lost its lease so finds it out when it
renews, or when it changes the record.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import ref

import msgspec

from trunkline.errors import StoreUnavailable
from trunkline.server.tasks.record import TaskRecord, start_again
from trunkline.server.tasks.records import QUEUE, HeldTask, TaskRecords
from trunkline.store.interface import Enqueue

if TYPE_CHECKING:
    from trunkline.server.tasks.service import Tasks

__all__ = ["LEFT", "Leases", "TaskRunner"]

log = logging.getLogger("trunkline")

#: The channel on which a runner that ended names itself.
LEFT = "tasks:left"
#: A task that runs for days keeps its record: it is written again once a day.
_REFRESH_SECONDS = 24 * 3600.0
#: Entries whose lease was released have been idle since 1970, longer than any outage.
_RELEASED_SECONDS = 1e8
#: The most tasks that one call of `claim` takes over: others, and later calls, take the rest.
_CLAIM = 64
#: Leases that are renewed in one step, so that no step blocks the store for long.
_RENEW = 500


class TaskRunner:
    """A runner of this process, with the unfinished tasks whose leases it holds."""

    __slots__ = ("_process", "_tasks", "held", "stopped")

    def __init__(self, tasks: Tasks) -> None:
        """Start to hold the tasks of an event loop."""
        self._tasks = ref(tasks)
        self._process = os.getpid()
        self.held: Mapping[str, object] = tasks.records.held
        self.stopped = False

    @property
    def is_own(self) -> bool:
        """Whether it belongs to this process, not to the one that this process was forked from."""
        return self._process == os.getpid()

    @property
    def has_ended(self) -> bool:
        """Whether it has stopped, or its event loop has."""
        tasks = self._tasks()
        return self.stopped or tasks is None or not tasks.runtime.loop.is_running()


class Leases:
    """The leases of one runner."""

    def __init__(self, records: TaskRecords, seconds: float) -> None:
        """Create the leases; one that was not renewed for so many seconds can be taken by others."""
        self._records = records
        self.seconds: float = seconds
        #: Since when the store has answered without interruption, by the clock of the event loop.
        self._steady_since: float | None = None

    async def claim(self) -> list[TaskRecord]:
        """Take over tasks of ended runners, at most some at a time; return those that may run again.

        The others are marked as failed. A lease that ran out proves nothing as long as the store could not be reached:
        all others ran out too. So the first time after an outage, and after the start, every runner may renew its
        leases before they count.
        """
        records, taken, left = self._records, list[TaskRecord](), _CLAIM
        lease = self.seconds if self._is_steady() else _RELEASED_SECONDS
        try:
            while left and (deliveries := await records.store.take(QUEUE, records.runner, lease=lease, limit=left)):
                # Also those that cannot be taken over count: if this takes long, the first of them are due again.
                left -= len(deliveries)
                for delivery in deliveries:
                    record = await self._take_over(delivery.id)
                    if record is not None:
                        taken.append(record)
        except StoreUnavailable:
            self.interrupted()
        return taken

    async def adopt(self, ids: Sequence[str]) -> list[TaskRecord]:
        """Take over tasks that an earlier runner of this process left in its memory; return those that may run again.

        There are no leases on them, since no other process sees them.
        """
        records = [await self._take_over(id) for id in ids]
        return [record for record in records if record is not None]

    async def renew(self) -> list[str]:
        """Renew the leases; return the tasks that another runner has taken over, or that are gone."""
        records, taken = self._records, list[str]()
        ids = [id for id, held in records.held.items() if held.lost_at is None]
        for start in range(0, len(ids), _RENEW):
            some = ids[start : start + _RENEW]
            renewed = set(await records.store.renew(QUEUE, records.runner, some))
            for id in some:
                if id not in renewed and id in records.held:
                    records.held[id].lost_at = records.now()
        for id, held in tuple(records.held.items()):
            if held.lost_at is not None:
                if not await self._still_belongs_here(id, held, held.lost_at):
                    records.held.pop(id, None)
                    taken.append(id)
            elif held.data and records.now() - held.refreshed >= _REFRESH_SECONDS:
                await records.refresh(held)
        if self._steady_since is None:
            self._steady_since = asyncio.get_running_loop().time()
        return taken

    async def release(self, runner: str, ids: Sequence[str]) -> None:
        """Release the leases of a runner of this process that has ended, and tell the other workers."""
        store, released = self._records.store, False
        for start in range(0, len(ids), _RENEW):
            released = bool(await store.release(QUEUE, runner, ids[start : start + _RENEW])) or released
        if released:
            await store.publish(LEFT, runner.encode())

    def interrupted(self) -> None:
        """Called when the store cannot be reached, or could not for a while."""
        self._steady_since = None

    def _is_steady(self) -> bool:
        since = self._steady_since
        return since is not None and asyncio.get_running_loop().time() - since >= self.seconds

    async def _take_over(self, id: str) -> TaskRecord | None:
        """Take over a task whose entry was leased to this runner; return it if it may run again."""
        records = self._records
        try:
            data = await records.read(id)
            record = records.decoded(id, data)
        except msgspec.DecodeError:
            # Not held from here on, so that a worker of its version can take it when the lease has run out.
            log.exception("a task that another worker has left cannot be read; it may be of another version")
            return None
        if data is None or record is None or record.finished:
            if records.shared:
                # It was finished by a worker that did not have its entry, and may have expired since.
                await records.store.finish(QUEUE, records.runner, [id])
            return None
        if record.runner == records.runner and id in records.held:
            # It runs here; its lease ran out, and no other worker took it first.
            records.held[id].lost_at = None
            return None
        records.held[id] = HeldTask(record, data, records.now())

        def change(each: TaskRecord) -> TaskRecord:
            unchanged = each.runner == record.runner and each.attempts == record.attempts
            return start_again(each, records.runner, records.now()) if unchanged else each

        try:
            after = await records.update(id, change)
        except BaseException:
            # It may have been changed all the same; then the next one that takes it counts this as an attempt.
            records.held.pop(id, None)
            raise
        if after is None or after.finished or after.runner != records.runner:
            records.held.pop(id, None)
            return None
        return after

    async def _still_belongs_here(self, id: str, held: HeldTask, lost_at: float) -> bool:
        """Return whether a task whose lease is gone belongs to this runner all the same."""
        records = self._records
        data = await records.read(id)
        record = records.decoded(id, data)
        if data is None or record is None or record.finished or record.runner != records.runner:
            return False
        # The worker that took the entry will change the record, or let it go. If neither happens in time, the entry
        # is leased to this runner again.
        if records.now() - lost_at >= self.seconds:
            held.record, held.data = record, data
            await records.refresh(held, Enqueue(QUEUE, id, b"", records.runner))
            held.lost_at = None
        return True
