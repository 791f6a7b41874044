"""Other processes that share a durable backend: their changes to tasks that run here, and tasks that run there.

Any process may answer the questions of a task or cancel it, but only the process that runs the task can deliver that to
the handler. And any process may have a stream that watches the task. Both poll, since a backend has no notifications.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from trunkline.errors import RequestFailed
from trunkline.extensions.tasks.record import FINISHED, TaskRecord, add_question

if TYPE_CHECKING:
    from trunkline.extensions.tasks.run import Run
    from trunkline.extensions.tasks.service import Tasks

__all__ = ["OtherProcesses", "apply_changes"]

log = logging.getLogger("trunkline")

_LOOK_SECONDS = 0.5  # Poll interval: hardly noticeable for a user, and two reads a second for each task.


class OtherProcesses:
    """Polls for changes by other processes while tasks run here."""

    def __init__(self, tasks: Tasks) -> None:
        """Create the poller; ``look`` starts it."""
        self._tasks = tasks
        self._looking = False
        self._watching = False

    def look(self, run: Run) -> None:
        """Start polling if the backend may be shared; called when a task starts to run here."""
        if self._tasks.backend.durable and not self._looking:
            self._looking = True
            self._tasks.spawn(self._follow())

    async def _follow(self) -> None:
        try:
            while self._tasks.runs:
                await asyncio.sleep(_LOOK_SECONDS)
                try:
                    for run in tuple(self._tasks.runs.values()):
                        await apply_changes(self._tasks, run)
                except Exception:
                    # Another process may lock the file for long; the next poll tries again.
                    log.warning("the tasks of server %r could not be polled", self._tasks.server.name, exc_info=True)
        finally:
            self._looking = False

    def watch(self) -> None:
        """Start polling for streams, if the backend may be shared; called when a stream starts to watch tasks."""
        if self._tasks.backend.durable and not self._watching:
            self._watching = True
            self._tasks.spawn(self._follow_watched())

    async def _follow_watched(self) -> None:
        seen: dict[str, tuple[float, str]] = {}
        try:
            while watched := [id for id in self._tasks.watchers if self._may_change(id, seen)]:
                for id in watched:
                    await self._look_at_watched(id, seen)
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._watching = False

    def _may_change(self, id: str, seen: dict[str, tuple[float, str]]) -> bool:
        """Return True if a watched task runs elsewhere, as far as is known."""
        return id not in self._tasks.runs and (id not in seen or seen[id][1] not in FINISHED)

    async def _look_at_watched(self, id: str, seen: dict[str, tuple[float, str]]) -> None:
        try:
            record = await self._tasks.backend.get(id)
        except Exception:
            log.warning("the watched task %s could not be polled", id, exc_info=True)
            return
        # A task that is gone does not change any more.
        state = (0.0, "cancelled") if record is None else (record.updated, record.status)
        if seen.get(id) != state:
            seen[id] = state
            self._tasks.watchers.notify(id)


async def apply_changes(tasks: Tasks, run: Run) -> None:
    """Deliver answers that another process stored, and stop the task if it was cancelled there.

    A question that the backend has lost (Redis after a failover that lost writes) is stored again: otherwise no client
    would see it, and the handler would wait for its answer in vain.
    """
    if run.record is None or run.stored is not None or run.settled:
        return
    found = await tasks.backend.get(run.record.id)
    if found is None or not (
        found.finished or run.missing_from(found) or any(map(run.awaits, (*found.answers, *found.withdrawn)))
    ):
        return

    def ask_again(record: TaskRecord) -> TaskRecord:
        for key, question in run.missing_from(record).items():
            record = add_question(record, key, question, tasks.now())
        return record

    # Read again through the queue of changes, so that the order is consistent.
    record = await tasks.change(run, ask_again)
    if record is None or record.attempts != run.attempts or run.settled:
        return
    if record.finished:
        run.cancel()
    for key, (_, raw) in record.answers.items():
        run.answer(key, raw)
    for key in record.withdrawn:
        run.answer(key, RequestFailed("The client could not answer the question"))
