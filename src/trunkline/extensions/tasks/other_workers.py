"""The other workers that share a backend: what they change in tasks that run here, and what they leave behind.

Any worker may answer the questions of a task or cancel it; the one that runs it is told by the backend, and delivers
that to the handler. Streams that watch a task hear of each change by the backend, wherever the task runs.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast

from trunkline.errors import StoreUnavailable
from trunkline.extensions.tasks.backend import SharedTaskBackend, TaskBackend
from trunkline.extensions.tasks.other_processes import OtherProcesses, apply_changes
from trunkline.extensions.tasks.patience import when_reachable
from trunkline.extensions.tasks.takeover import take_over

if TYPE_CHECKING:
    from trunkline.extensions.tasks.run import Run
    from trunkline.extensions.tasks.service import Tasks
    from trunkline.server.subscriptions import SubscriptionStream

__all__ = ["News", "OtherWorkers", "is_shared", "other_runners"]

#: Seconds between two status messages of one task that other workers see: more often than any client polls.
_MESSAGE_SECONDS = 0.5
#: How often a request that waits for a task of another worker polls, although it is notified of changes.
_LOOK_SECONDS = 5.0


def is_shared(backend: TaskBackend) -> bool:
    """Return whether a backend tells workers of each other's changes."""
    return hasattr(backend, "join")


def other_runners(tasks: Tasks) -> OtherProcesses | OtherWorkers:
    """Return what follows the other runners of a backend."""
    return OtherWorkers(tasks, tasks.backend) if is_shared(tasks.backend) else OtherProcesses(tasks)


class OtherWorkers:
    """Reacts to the other workers; see `TaskListener`."""

    def __init__(self, tasks: Tasks, backend: TaskBackend) -> None:
        """Create the listener of a shared backend."""
        self._tasks = tasks
        self._backend = cast("SharedTaskBackend", backend)
        self._left: asyncio.Event | None = None
        #: The tasks whose status message is being stored.
        self._telling: set[str] = set()
        #: The tasks whose changes are being applied, and whether to look again after that.
        self._applying: dict[Run, bool] = {}

    def start(self, runner: str) -> None:
        """Run tasks as a runner, and take over those of others regularly; needs a running event loop."""
        self._left, self._telling, self._applying = asyncio.Event(), set(), {}
        self._backend.join(runner, self)
        self._tasks.spawn(self._take_over_regularly(runner, self._left))

    async def _take_over_regularly(self, runner: str, left: asyncio.Event) -> None:
        for turn in itertools.count(1):
            if self._tasks.runner != runner:
                return
            await take_over(self._tasks, runner)
            if turn % 3 == 0:
                # A worker whose write timed out, or that died after it, may have changed a task without a notification.
                self.changes_missed()
            with suppress(TimeoutError):
                # Often enough to notice a dead worker soon after its leases ran out.
                async with asyncio.timeout(self._backend.lease / 3):
                    await left.wait()
            left.clear()

    def look(self, run: Run) -> None:
        """Called when a task starts to run here."""
        self.set_message(run)

    # --- as the listener of a backend --------------------------------------------------------------------------------

    def task_changed(self, id: str) -> None:
        """Deliver what another worker has changed."""
        run = self._tasks.runs.get(id)
        if run is None:
            return
        if run in self._applying:
            # One at a time: while the backend cannot be reached, each waits.
            self._applying[run] = True
        else:
            self._applying[run] = False
            self._tasks.spawn(self._apply(run, self._applying))

    def lease_lost(self, id: str) -> None:
        """Stop a task that no longer belongs to this worker."""
        run = self._tasks.runs.get(id)
        if run is not None:
            run.supersede()

    def changes_missed(self) -> None:
        """Called when changes may have been missed: check every task that runs here."""
        for id in tuple(self._tasks.runs):
            self.task_changed(id)

    def tasks_left(self) -> None:
        """Called when a worker has ended: take over its tasks."""
        if self._left is not None:
            self._left.set()

    async def _apply(self, run: Run, applying: dict[Run, bool]) -> None:
        again = True
        try:
            while again:
                applying[run] = False
                # A change is announced only once, and the backend may fail although its channels work: so retry. The
                # retries end with the run, since an ended run reads nothing.
                await when_reachable(lambda: apply_changes(self._tasks, run))
                again = applying[run]
        finally:
            del applying[run]

    # --- streams and status messages ---------------------------------------------------------------------------------

    async def watch(self, stream: SubscriptionStream, ids: Sequence[str]) -> Callable[[], None]:
        """Notify a stream of changes of tasks; return a function that stops it."""
        closes: list[Callable[[], Awaitable[None]]] = []

        async def close() -> None:
            for each in closes:
                await each()

        try:
            for id in ids:
                notify = partial(stream.notify_change, ("task", id))
                closes.append(await self._backend.watch(id, notify))
        except BaseException:
            await close()
            raise
        return lambda: self._tasks.spawn(close())

    def set_message(self, run: Run) -> None:
        """Store the status message of a task for other workers, soon."""
        if run.record is not None and run.message is not None and run.record.id not in self._telling:
            self._telling.add(run.record.id)
            self._tasks.spawn(self._tell(run, run.record.id))

    async def _tell(self, run: Run, id: str) -> None:
        told: str | None = None
        try:
            while run.message is not None and run.message != told and not run.settled:
                told = run.message
                with suppress(StoreUnavailable):
                    await self._backend.set_message(id, told)
                await asyncio.sleep(_MESSAGE_SECONDS)
        finally:
            self._telling.discard(id)


class News:
    """What wakes a request that waits for a task which runs at another worker or process."""

    def __init__(self, tasks: Tasks, id: str) -> None:
        """Wait for changes of a task; nothing is subscribed yet."""
        self._backend = tasks.backend
        self._id = id
        self._close: Callable[[], Awaitable[None]] | None = None
        self._waiting: list[asyncio.Future[None]] = []

    async def open(self) -> None:
        """Subscribe, if the backend tells of changes."""
        if self._close is None and is_shared(self._backend):
            self._close = await cast("SharedTaskBackend", self._backend).watch(self._id, self._wake)

    def next_change(self) -> asyncio.Future[None]:
        """Return a future that is resolved at the next change; never if the backend does not tell."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._close is not None:
            self._waiting = [each for each in self._waiting if not each.done()]
            self._waiting.append(future)
        return future

    def interval(self, poll: float) -> float:
        """Return after how many seconds to look even without news."""
        return poll if self._close is None else max(poll, _LOOK_SECONDS)

    async def close(self) -> None:
        """Unsubscribe."""
        if self._close is not None:
            await self._close()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
