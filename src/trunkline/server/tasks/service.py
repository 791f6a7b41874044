"""Tasks of a server: decides which calls become tasks, runs them, and takes over those of ended processes.

How a call is served depends on its caller. A client with the tasks extension gets a task if the call takes longer than
``after``; a client of the revision with tasks in its core gets one on request; for any other client the call is held
open, or it gets a job to poll. The handler is the same in all cases and does not see the difference.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Raw

import trunkline.types as t
from trunkline.connection import Connection, Exchange
from trunkline.errors import MethodNotFound, RequestFailed, StoreUnavailable, TooManyRequests
from trunkline.protocol.caller import Session
from trunkline.protocol.extensions import TASKS, declared_extension, missing_extension, require_extension
from trunkline.protocol.revisions import Feature
from trunkline.protocol.tasks import from_milliseconds
from trunkline.server.channels import InputRequiredChannel
from trunkline.server.dispatch import ServerConnection
from trunkline.server.journal import Journal
from trunkline.server.store_budget import StoreBudget
from trunkline.server.subscriptions import SubscriptionStream
from trunkline.server.task_options import Sent, TaskOptions, TaskSettings
from trunkline.server.tasks.exchange import KeepAlive, TaskExchange, UnconnectedLink
from trunkline.server.tasks.leases import TaskRunner
from trunkline.server.tasks.other_workers import OtherWorkers
from trunkline.server.tasks.record import CallerFacts, Change, TaskRecord, finish, owner_of
from trunkline.server.tasks.records import TaskLimits, TaskRecords, when_reachable
from trunkline.server.tasks.run import Run, Work, ending, new_task_id
from trunkline.server.tasks.wire import (
    FIRST_POLL,
    core_task,
    extension_task,
    task_notification,
    with_related,
)

if TYPE_CHECKING:
    from trunkline.server.runtime import ServerRuntime
    from trunkline.server.server import Server

__all__ = ["Tasks"]

log = logging.getLogger("trunkline")

_NOTIFY_SECONDS = 30.0  # How long a notification waits for a store that cannot be reached before its stream ends.
_CLEAN_UP_SECONDS = 5.0  # How long a cancelled handler has to clean up before its caller is answered.


class Tasks:
    """The tasks of one server that run in one event loop."""

    def __init__(self, runtime: ServerRuntime, settings: TaskSettings) -> None:
        """Create the service; nothing runs before the first call."""
        self.runtime = runtime
        self.settings = settings
        self.now: Callable[[], float] = time.time
        self.limits: TaskLimits = settings.limits or TaskLimits()
        #: The tasks that run here, by id.
        self.runs: dict[str, Run] = {}
        #: Those that hold lifespans.
        self.holders: set[object] = set()
        #: The stored tasks, and the other workers, as one event loop sees them; set by `start`.
        self.records: TaskRecords
        self._others: OtherWorkers
        self._connection: Connection | None = None
        #: What this runner holds; None before the first task, and after the end.
        self._runner: TaskRunner | None = None
        #: Background work: taking over tasks, cleaning up.
        self._chores: set[asyncio.Task[None]] = set()
        self._budget = StoreBudget(runtime.limits)

    @property
    def server(self) -> Server:
        """The definition that is served now."""
        return self.runtime.definition

    async def leave(self) -> None:
        """Stop the running tasks if other workers can take them over."""
        if self._runner is not None and self.records.shared:
            await self.aclose()

    # --- which call becomes a task ------------------------------------------------------------------------------------

    def call(
        self,
        options: TaskOptions,
        exchange: Exchange,
        params: t.CallToolRequestParams,
        work: Work,
        *,
        keep_alive: bool = False,
    ) -> Awaitable[Any]:
        """Run a call in the form that its caller supports.

        With ``keep_alive``, a call that is held open reports progress while its handler is silent.

        Raises:
            MethodNotFound, MissingClientCapability: the tool runs only as a task, which the caller does not support.
        """
        caller = exchange.admitted.caller
        if Feature.CORE_TASKS in caller.revision.features:
            if params.task is not None:
                ttl = None if params.task.ttl is None else from_milliseconds(params.task.ttl)
                return self._create(options, exchange, params, work, ttl=ttl)
            if options.required:
                raise MethodNotFound(
                    f"Method not found: the tool {params.name!r} must be called as a task",
                    data={"method": exchange.method, "taskSupport": "required"},
                )
        elif not caller.revision.handshake:
            if declared_extension(caller.capabilities, TASKS) is not None:
                if options.after == 0:
                    return self._create(options, exchange, params, work)
                return self._wait_then_create(options, exchange, params, work)
            if options.required:
                raise missing_extension(TASKS)
        if self.settings.slow_calls == "poll":
            return self._wait_then_poll(options, exchange, params, work)
        return self._hold(exchange, work) if keep_alive else work(exchange)

    async def _hold(self, exchange: Exchange, work: Work) -> Any:
        """Run a call with its request held open."""
        with KeepAlive(self.runtime.timers, exchange):
            return await work(exchange)

    async def continue_as_task(self, exchange: Exchange) -> bool:
        """Answer the caller of a request with a task; return False if it cannot become one."""
        return isinstance(exchange, TaskExchange) and await exchange.continue_as_task()

    def states(self) -> list[str]:
        """Return the state of each task that runs here."""
        return [run.record.status for run in self.runs.values() if run.record is not None]

    def runs_for(self, session: Session) -> bool:
        """Return True if a task of this session runs here."""
        return any(run.exchange.admitted.caller.session is session for run in self.runs.values())

    # --- running ------------------------------------------------------------------------------------------------------

    async def _create(
        self,
        options: TaskOptions,
        exchange: Exchange,
        params: t.CallToolRequestParams,
        work: Work,
        *,
        ttl: float | None = None,
    ) -> Any:
        """Create a task at once and return it."""
        self.start()
        run = self._prepare(exchange, work)
        record = self._record(options, exchange, params, run.detach(), ttl=ttl)
        await self._store(run, record)
        job = self._begin(run)
        if run.reports_early:
            await run.delay_answer(job)
        return self.created(record)

    async def _wait_then_create(
        self, options: TaskOptions, exchange: Exchange, params: t.CallToolRequestParams, work: Work
    ) -> Any:
        """Answer directly if the call is done in time, otherwise with a task."""
        run = await self._wait(exchange, work, options.after)
        if run.done:
            return await run.outcome()
        return self.created(await self._detach(run, options, exchange, params))

    async def _wait_then_poll(
        self, options: TaskOptions, exchange: Exchange, params: t.CallToolRequestParams, work: Work
    ) -> Any:
        """Answer directly if the call is done in time, otherwise with a job to poll."""
        from trunkline.server.tasks.polling import job_answer

        after = self.settings.poll_after if not options.after else min(options.after, self.settings.poll_after)
        run = await self._wait(exchange, work, after)
        if run.done:
            return await run.outcome()
        # The request is answered, and the client does not support tasks: send it no notifications.
        run.session = None
        return job_answer(await self._detach(run, options, exchange, params))

    async def _wait(self, exchange: Exchange, work: Work, seconds: float | None) -> Run:
        """Start a call and wait until it is done, the time is up, or its handler asks to continue as a task."""
        self.start()
        run = self._prepare(exchange, work)
        run.wants_task = asyncio.get_running_loop().create_future()
        job = self._begin(run)
        # A caller that has disconnected no longer awaits it.
        job.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        try:
            # On the request itself: this progress must not become the status of the task.
            with KeepAlive(self.runtime.timers, exchange):
                await asyncio.wait((job, run.wants_task), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                channel = exchange.channel
                if not job.done() and isinstance(channel, InputRequiredChannel) and channel.asking:
                    # Its questions are about to be sent, and the next round starts the handler again.
                    await asyncio.wait((job,))
        except asyncio.CancelledError:
            run.cancel()
            await asyncio.wait((job,), timeout=_CLEAN_UP_SECONDS)
            raise
        return run

    async def _detach(
        self, run: Run, options: TaskOptions, exchange: Exchange, params: t.CallToolRequestParams
    ) -> TaskRecord:
        """Turn a running call into a task."""
        record = self._record(options, exchange, params, run.detach())
        # The handler keeps running, and may finish or ask meanwhile.
        run.stored = asyncio.get_running_loop().create_future()
        run.wake()
        try:
            await self._store(run, record)
        except BaseException:
            run.cancel()
            raise
        if run.wants_task is not None and not run.wants_task.done():
            run.wants_task.cancel()
        return record

    def _prepare(self, exchange: Exchange, work: Work) -> Run:
        run = Run(self, work, exchange.admitted.caller.session)
        run.exchange = TaskExchange.of(run, exchange)
        return run

    def _begin(self, run: Run) -> asyncio.Task[Any]:
        job = asyncio.get_running_loop().create_task(self._perform(run))
        self._keep(job)
        run.job = run.exchange.task = job
        return job

    async def _perform(self, run: Run) -> Any:
        """Run the handler; store the outcome if the call has become a task, otherwise return it to the caller."""
        exchange = run.exchange
        # The definition may be replaced meanwhile.
        held = None if self.runtime.table.calls_directly else self.runtime.held
        outcome: Any
        try:
            if held is not None:
                # The connection of the caller may end before the handler does.
                self.holders.add(run)
                held.add(run)
                await held.entered(run)
            outcome = await run.work(exchange)
        except BaseException as error:  # noqa: BLE001 - raised again below, unless it is the outcome of a task
            outcome = error
        run.ended = True
        if exchange.detached:
            await self._settle(run, outcome)
        if held is not None:
            await held.release(run)
            self.holders.discard(run)
        if exchange.detached and not run.settled:
            await self._settle(run, outcome)
        # It refers to the run: otherwise only the garbage collector would free them, and the caller's request.
        del run.exchange
        if not isinstance(outcome, BaseException):
            return outcome
        if exchange.detached and isinstance(outcome, Exception):
            return None
        raise outcome

    async def _settle(self, run: Run, outcome: Any) -> None:
        """Store the outcome of a task."""
        run.settled = True
        if run.stored is not None and not run.stored.done():
            await asyncio.shield(run.stored)
        record = run.record
        assert record is not None
        try:
            if isinstance(outcome, asyncio.CancelledError) and not run.cancelled:
                job = asyncio.current_task()
                if job is not None and job.cancelling():
                    # The process is stopping: a durable store keeps the task for the next one.
                    return
                log.error("the task %s of tool %r was cancelled by its own handler", record.id, record.tool)
                outcome = RequestFailed("Internal error")
            await self._store_outcome(run, record, outcome)
        finally:
            self.runs.pop(record.id, None)
            run.wake()

    async def _store_outcome(self, run: Run, record: TaskRecord, outcome: Any) -> None:
        try:
            await self.change_patiently(run, ending(outcome, record, self.now(), run.message))
        except Exception as error:
            full = isinstance(error, TooManyRequests)
            text = "the result of the task %s of tool %r could not be stored"
            log.error(text, record.id, record.tool, exc_info=not full)
            lost = error if full else RequestFailed("The result of the task could not be stored")
            try:
                await self.change_patiently(run, ending(lost, record, self.now(), None))
            except Exception:
                log.exception("the task %s of tool %r could not be ended", record.id, record.tool)

    def _record(
        self,
        options: TaskOptions,
        exchange: Exchange,
        params: t.CallToolRequestParams,
        journal: Journal,
        *,
        ttl: float | None = None,
    ) -> TaskRecord:
        caller, now = exchange.admitted.caller, self.now()
        kept = options.ttl if ttl is None else min(max(0.0, ttl), self.settings.max_ttl)
        return TaskRecord(
            id=new_task_id(),
            owner=owner_of(caller.principal),
            tool=params.name,
            caller=CallerFacts.of(caller),
            created=now,
            updated=now,
            ttl=kept,
            poll=self.settings.usual_poll if options.poll is None else options.poll,
            poll_grows=options.poll is None,
            retry=options.retry,
            params=exchange.params or Raw(b"{}"),
            journal=journal,
            runner=self.records.runner,
        )

    async def _store(self, run: Run, record: TaskRecord) -> None:
        """Store a new task; done before its id is sent, so that the client can poll it at once."""
        run.record = record
        self.runs[record.id] = run
        try:
            await self.records.create(record)
        except BaseException as error:
            del self.runs[record.id]
            if isinstance(error, asyncio.CancelledError | StoreUnavailable):
                # It may be stored already, but its caller will never get its id.
                self.spawn(self._discard(record))
            raise
        finally:
            if run.stored is not None and not run.stored.done():
                run.stored.set_result(None)
        run.stored = None
        if run.message is not None:
            self._others.set_message(run)

    async def _discard(self, record: TaskRecord) -> None:
        """Finish a task whose caller disconnected before it got the id."""
        message = "The caller disconnected before the task was created."
        cancel = partial(finish, status="cancelled", now=self.now(), message=message)
        await when_reachable(lambda: self.records.update(record.id, cancel))

    def created(self, record: TaskRecord) -> Any:
        """Return the result that announces a new task, in the form of the caller's revision."""
        # At the time of creation: the time that storing takes must not reduce the requested ttl.
        if record.caller.revision_has_core_tasks:
            return t.CreateTaskResult(task=t.Task(**core_task(record, record.created)))
        return extension_task(record, record.created, created=True)

    # --- changes ------------------------------------------------------------------------------------------------------

    async def change(self, run: Run, change: Change) -> TaskRecord | None:
        """Apply a change to a task that runs here, and notify its watchers."""
        assert run.record is not None
        before = run.record
        # Another process may have taken over the task, if this one was considered dead.
        after = await self.records.update(before.id, lambda record: change(record) if run.owns(record) else record)
        if after is not None:
            if not run.owns(after):
                run.supersede()
                return None
            run.record = after
            if after.status != before.status or after.requests != before.requests:
                self.announce(after, run)
        run.wake()
        return after

    async def change_patiently(self, run: Run, change: Change) -> TaskRecord | None:
        """Apply a change that the handler makes; while the store cannot be reached, wait.

        Raises:
            StoreUnavailable: the outcomes that wait already are too large to keep one of this size too.
        """
        try:
            return await self.change(run, change)
        except StoreUnavailable:
            assert run.record is not None
            # Of an outcome; what else a handler changes is small.
            size = change(run.record).size - run.record.size
        with self._budget.waiting(run.record.caller.owner, size):
            return await when_reachable(lambda: self.change(run, change))

    def latest(self, record: TaskRecord) -> TaskRecord:
        """Return a record with the latest status message of a task that runs here, which is not stored."""
        run = self.runs.get(record.id)
        return record if run is None else run.latest(record)

    def announce(self, record: TaskRecord, run: Run | None) -> None:
        """Notify the watchers of a task of its new state."""
        self.records.notify_watchers(record.id)
        if run is not None and run.session is not None and record.caller.revision_has_core_tasks:
            # A task that ends before the client's first poll needs no notification, unless there was another.
            if not record.finished or run.announced or record.updated - record.created >= FIRST_POLL:
                params = t.TaskStatusNotificationParams(**core_task(self.latest(record), self.now()))
                run.announced = self._notify_session(run.session, "notifications/tasks/status", params)
            if record.requests:
                from trunkline.server.tasks.methods import relay_directly

                relay_directly(self, run)

    def reported(self, run: Run, method: str, params: Any) -> bool:
        """Notify watchers of a new status, and send a notification to the session; return True if it was sent."""
        assert run.record is not None
        status = isinstance(params, t.ProgressNotificationParams | t.LoggingMessageNotificationParams)
        if status:
            self.status_changed(run)
            self.records.notify_watchers(run.record.id)
        if run.session is None or getattr(params, "progress_token", None) == "" or method == "notifications/message":
            return False
        return self._notify_session(run.session, method, with_related(params, run.record.id))

    def status_changed(self, run: Run) -> None:
        """Called when a task that runs here has a new status message."""
        self._others.set_message(run)

    def _notify_session(self, session: Session, method: str, params: Any) -> bool:
        if session.store is not None:
            # Any worker may have the stream of a shared session.
            session.store.connect()
        subscriber = self.runtime.subscriber(session)
        if not isinstance(subscriber, ServerConnection):
            return False
        subscriber.notify(method, params)
        return True

    async def listenable(self, exchange: Exchange, ids: Sequence[str]) -> list[str]:
        """Return the tasks that the caller may watch.

        Raises:
            MissingClientCapability: the client did not declare the extension.
        """
        caller = exchange.admitted.caller
        require_extension(caller.capabilities, TASKS)
        self.start()
        # Each task may have one queued notification, besides those of other kinds.
        wanted = list(dict.fromkeys(ids))[: self.runtime.limits.notices // 2]
        found = [await self.records.get(id) for id in wanted]
        owner = owner_of(caller.principal)
        return [each.id for each in found if each is not None and each.owner == owner]

    async def notification(self, id: str, meta: dict[str, Any], sent: Sent) -> tuple[str, t.NotificationParams] | None:
        """Return the notification with the state of a task; None if there is no such task, or it was sent already."""
        record = await when_reachable(lambda: self.records.get(id), seconds=_NOTIFY_SECONDS)
        return None if record is None else task_notification(self.latest(record), self.now(), meta, sent)

    async def watch(self, stream: SubscriptionStream, ids: Sequence[str]) -> Callable[[], None]:
        """Notify a stream of changes of tasks; return a function that stops it."""
        async with AsyncExitStack() as stack:
            for id in ids:
                stop = await self.records.watch(id, partial(stream.notify_change, ("task", id)))
                stack.push_async_callback(stop)
            watching = stack.pop_all()
        return lambda: self.spawn(watching.aclose())

    # --- the process --------------------------------------------------------------------------------------------------

    def connection(self) -> Connection:
        """Return a connection without a peer, for handlers whose caller has disconnected."""
        if self._connection is None:
            runtime = self.runtime
            service = ServerConnection(runtime)
            self._connection = Connection(UnconnectedLink(), service, limits=runtime.limits, timers=runtime.timers)
            service.connection = self._connection
        return self._connection

    def start(self) -> None:
        """Start to run tasks, and take over unfinished tasks of event loops and processes that have ended."""
        if self._runner is not None:
            return
        state = self.runtime.state
        self.runs = {}
        runner = f"{os.getpid()}-{secrets.token_hex(8)}"
        self.records = TaskRecords(
            state.store,
            state.seal,
            runner=runner,
            now=lambda: self.now(),
            limits=self.limits,
            budget=self._budget,
            shared=state.is_shared,
            connect=state.ready,
            journal_limits=self.runtime.limits,
        )
        self._others = OtherWorkers(self, self.records, self.settings.lease)
        runners = self.server._process.runners
        ended = [name for name, other in runners.items() if not other.is_own or other.has_ended]
        left = {name: list(other.held) for name in ended if (other := runners.pop(name)).is_own and other.held}
        self._runner = runners[runner] = TaskRunner(self)
        self._others.start(left)

    def resume(self, run: Run) -> None:
        """Run a task that was taken over."""
        assert run.record is not None
        self.runs[run.record.id] = run
        self._begin(run)

    def spawn(self, chore: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background."""
        task = asyncio.get_running_loop().create_task(chore)
        self._chores.add(task)
        self._keep(task)
        task.add_done_callback(self._chore_done)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        running = self.server._process.running
        running.add(task)
        task.add_done_callback(running.discard)

    def _chore_done(self, task: asyncio.Task[None]) -> None:
        self._chores.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work for the tasks of server %r failed", self.server.name, exc_info=error)

    @property
    def suspended(self) -> bool:
        """Whether the process is stopping and the next one continues the running tasks."""
        return self._runner is None and self.records.shared

    async def drain(self, seconds: float) -> None:
        """Wait, with a timeout, until the running tasks have finished, unless they survive the end of the process.

        Tasks that wait for their callers are skipped, and those that another process may run again.
        """
        runs = [run for run in self.runs.values() if not (run.waits_for_input or self._survives(run))]
        jobs = [run.job for run in runs if run.job is not None]
        if jobs and seconds > 0:
            _, running = await asyncio.wait(jobs, timeout=seconds)
            if running:
                log.warning("%d tasks did not finish in %g s and are stopped", len(running), seconds)

    def _survives(self, run: Run) -> bool:
        return run.repeats and self.records.shared

    def close(self) -> None:
        """Stop the running tasks; those of a durable store may be taken over from now on."""
        runner, self._runner = self._runner, None
        if runner is None or not runner.is_own:
            return
        if asyncio._get_running_loop() is self.runtime.loop:
            for chore in self._chores:
                chore.cancel()
            self.spawn(self._stop(runner))
        else:
            runner.stopped = True

    async def _stop(self, runner: TaskRunner) -> None:
        """Stop the handlers, and release their tasks once they have cleaned up."""
        others = self._others
        jobs = [run.job for run in self.runs.values() if run.job is not None]
        for run in self.runs.values():
            if run.job is not None and not run.ended:
                run.job.cancel()
        try:
            if jobs:
                await asyncio.wait(jobs, timeout=_CLEAN_UP_SECONDS)
        finally:
            runner.stopped = True
            await others.leave()

    async def aclose(self) -> None:
        """Stop the running tasks, and wait until they are released."""
        self.close()
        if self._chores:
            await asyncio.wait(tuple(self._chores))
