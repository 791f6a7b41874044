"""The other workers on a store: what they change in tasks that run here, and the tasks that they leave behind.

Any worker may answer the questions of a task or cancel it; the one that runs it is told by the store, and delivers
that to the handler. The tasks of a worker that has ended are taken over, and run again if they may. On a store in
memory there are no other workers: then nothing is renewed or listened to, and only what an earlier event loop left
behind is taken over.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import RequestFailed, StoreUnavailable
from trunkline.protocol.methods import decode_params, requests_to_server
from trunkline.protocol.request_validation import ValidatedRequest
from trunkline.server.dispatch import call_in_middleware
from trunkline.server.journal import OpenJournal
from trunkline.server.tasks.exchange import TaskChannel, TaskExchange
from trunkline.server.tasks.leases import LEFT, Leases
from trunkline.server.tasks.record import TaskRecord, add_question
from trunkline.server.tasks.records import TaskRecords, runner_channel, when_reachable
from trunkline.server.tasks.run import Run, ending

if TYPE_CHECKING:
    from trunkline.server.tasks.service import Tasks
    from trunkline.store.interface import Subscription

__all__ = ["OtherWorkers"]

log = logging.getLogger("trunkline")

#: Seconds between two status messages of one task that other workers see: more often than any client polls.
_MESSAGE_SECONDS = 0.5
#: Seconds between two attempts while the store cannot be reached.
_PAUSE = 1.0


class OtherWorkers:
    """Follows the other workers, for one runner."""

    def __init__(self, tasks: Tasks, records: TaskRecords, lease: float) -> None:
        """Create it; `start` starts it."""
        self._tasks = tasks
        self._records = records
        self._leases = Leases(records, lease)
        #: Set when another runner has ended, or may have.
        self._left = asyncio.Event()
        self._subscriptions: list[Subscription] = []
        #: The tasks whose status message is being stored.
        self._telling: set[str] = set()
        #: The tasks whose changes are being applied, and whether to look again after that.
        self._applying: dict[Run, bool] = {}

    def start(self, abandoned: dict[str, list[str]]) -> None:
        """Renew leases, and take over the tasks of others regularly; needs a running event loop.

        ``abandoned`` are the tasks of earlier runners of this process that have ended without a chance to release them.
        """
        if self._records.shared:
            self._tasks.spawn(self._keep(abandoned))
        elif abandoned:
            self._tasks.spawn(self._take_over(abandoned))

    async def _keep(self, abandoned: dict[str, list[str]]) -> None:
        task = asyncio.current_task()
        assert task is not None
        for turn in itertools.count(1):
            # Three attempts for each lease, and often enough to notice a dead worker soon after its leases ran out.
            pause = self._leases.seconds / 3
            try:
                await self._records.connect()
                await self._listen()
                # First those of this process, which may have been suspended itself.
                for id in await self._leases.renew():
                    self._lease_lost(id)
                await self._take_over(abandoned)
            except StoreUnavailable as error:
                log.debug("the store of tasks cannot be used now: %s", error.message)
                self._leases.interrupted()
                pause = min(_PAUSE, pause)
            except Exception:
                log.exception("the unfinished tasks of server %r could not be taken over", self._tasks.server.name)
            if turn % 3 == 0:
                # A worker whose write timed out, or that died after it, may have changed a task without a notification.
                self._changes_missed()
            # A cancellation can be lost: before Python 3.12 ``asyncio.wait_for``, which redis-py uses, swallows some.
            if task.cancelling():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._left.wait()
            self._left.clear()

    async def _listen(self) -> None:
        if not self._subscriptions:
            store, missed = self._records.store, self._missed
            self._subscriptions.append(await store.subscribe(LEFT, self._runner_left))
            channel = runner_channel(self._records.runner)
            receive = self._changed_elsewhere
            self._subscriptions.append(await store.subscribe(channel, receive, missed=missed))
            # What came before was missed.
            self._changes_missed()

    async def leave(self) -> None:
        """Release the leases of this runner, and stop listening."""
        records = self._records
        ids, subscriptions = list(records.held), self._subscriptions
        records.held, self._subscriptions = {}, []
        for subscription in subscriptions:
            await subscription.close()
        if records.shared:
            # If it fails, the leases run out.
            with suppress(StoreUnavailable):
                await self._leases.release(records.runner, ids)

    # --- changes of tasks that run here ------------------------------------------------------------------------------

    def _changed_elsewhere(self, data: bytes) -> None:
        self._apply_soon(data.decode())

    def _runner_left(self, data: bytes) -> None:
        if data.decode() != self._records.runner:
            self._left.set()

    def _missed(self) -> None:
        """Called when the connection was lost: changes may be missing, and other runners may have ended."""
        self._leases.interrupted()
        self._changes_missed()
        self._left.set()

    def _changes_missed(self) -> None:
        for id in tuple(self._tasks.runs):
            self._apply_soon(id)

    def _lease_lost(self, id: str) -> None:
        """Stop a task that no longer belongs to this worker."""
        run = self._tasks.runs.get(id)
        if run is not None:
            run.supersede()

    def _apply_soon(self, id: str) -> None:
        """Deliver what another worker has changed in a task."""
        run = self._tasks.runs.get(id)
        if run is None:
            return
        if run in self._applying:
            # One at a time: while the store cannot be reached, each waits.
            self._applying[run] = True
        else:
            self._applying[run] = False
            self._tasks.spawn(self._apply(run))

    async def _apply(self, run: Run) -> None:
        again = True
        try:
            while again:
                self._applying[run] = False
                # A change is announced only once, and the store may fail although its channels work: so retry. The
                # retries end with the run, since an ended run reads nothing.
                await when_reachable(lambda: self._apply_changes(run))
                again = self._applying[run]
        finally:
            del self._applying[run]

    async def _apply_changes(self, run: Run) -> None:
        """Deliver answers that another worker stored, and stop the task if it was cancelled there.

        A question that the store has lost (Redis after a failover that lost writes) is stored again: otherwise no
        client would see it, and the handler would wait for its answer in vain.
        """
        if run.record is None or run.stored is not None or run.settled:
            return
        tasks, stored = self._tasks, await self._records.get(run.record.id)
        if stored is None or (
            run.owns(stored)
            and not stored.finished
            and not run.missing_from(stored)
            and not any(map(run.awaits, (*stored.journal.answers, *stored.withdrawn)))
        ):
            return

        def ask_again(record: TaskRecord) -> TaskRecord:
            for key, question in run.missing_from(record).items():
                record = add_question(record, key, question, tasks.now())
            return record

        # In turn with the other changes, so that the order is consistent.
        record = await tasks.change(run, ask_again)
        if record is None or run.settled:
            return
        if record.finished:
            run.cancel()
        for key, (_, raw) in record.journal.answers.items():
            run.answer(key, raw)
        for key in record.withdrawn:
            run.answer(key, RequestFailed("The client could not answer the question"))

    # --- status messages ---------------------------------------------------------------------------------------------

    def set_message(self, run: Run) -> None:
        """Store the status message of a task for other workers, soon."""
        if self._records.shared and run.record is not None and run.record.id not in self._telling:
            self._telling.add(run.record.id)
            self._tasks.spawn(self._tell(run, run.record.id))

    async def _tell(self, run: Run, id: str) -> None:
        told: str | None = None
        try:
            while run.message is not None and run.message != told and not run.settled:
                told = run.message
                with suppress(StoreUnavailable):
                    await self._records.set_message(id, told)
                await asyncio.sleep(_MESSAGE_SECONDS)
        finally:
            self._telling.discard(id)

    # --- tasks that were left behind ---------------------------------------------------------------------------------

    async def _take_over(self, abandoned: dict[str, list[str]]) -> None:
        """Take over unfinished tasks of ended runners, and run those again that may."""
        if self._records.shared:
            for runner in tuple(abandoned):
                await self._leases.release(runner, abandoned[runner])
                del abandoned[runner]
            taken_over = await self._leases.claim()
        else:
            taken_over = await self._leases.adopt([id for ids in abandoned.values() for id in ids])
        for record in taken_over:
            try:
                self._run_again(record)
            except Exception:
                log.exception("the task %s of tool %r cannot run again", record.id, record.tool)
                # In the background: there may be others to run.
                self._tasks.spawn(self._fail(record))

    async def _fail(self, record: TaskRecord) -> None:
        change = ending(RequestFailed("Internal error"), record, self._tasks.now(), None)
        await when_reachable(lambda: self._records.update(record.id, change))

    def _run_again(self, record: TaskRecord) -> None:
        tasks, caller = self._tasks, record.caller.caller()
        row = requests_to_server(caller.revision)["tools/call"]
        params = decode_params(row, record.params)
        run = Run(tasks, lambda exchange: _call_again(tasks, exchange, params), caller.session)
        run.record = record
        run.exchange = TaskExchange(run, ValidatedRequest(caller, row, params), record.params, tasks.connection())
        run.exchange.channel = TaskChannel(run, OpenJournal(record.journal))
        tasks.resume(run)


async def _call_again(tasks: Tasks, exchange: Exchange, params: t.CallToolRequestParams) -> Any:
    """Call a tool again as its caller did, with the middleware of the server."""
    server = tasks.server
    if not server.table.middleware:
        return await server._perform_call(exchange, params)
    return await call_in_middleware(server.table, exchange, params, server._perform_call)
