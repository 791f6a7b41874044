"""A running call that may become a task, and how its outcome becomes the final state of that."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import MissingCapability, RequestFailed
from trunkline.protocol.caller import required_capabilities
from trunkline.protocol.channel import Question
from trunkline.protocol.tasks import progress_text, status_line
from trunkline.server.channels import JournalChannel
from trunkline.server.dispatch import error_for_caller
from trunkline.server.journal import Journal
from trunkline.server.tasks.exchange import TaskChannel, TaskExchange
from trunkline.server.tasks.record import (
    NO_JOURNAL,
    Change,
    TaskRecord,
    add_question,
    finish,
    keep_once,
    withdraw_question,
)
from trunkline.server.tasks.wire import encode_result, error_text
from trunkline.service import public_message

if TYPE_CHECKING:
    from trunkline.protocol.caller import Session
    from trunkline.server.tasks.service import Tasks

__all__ = ["Run", "Work", "ending", "new_task_id"]

log = logging.getLogger("trunkline")

#: How long the answer with a task is held back for a task that ends quickly: less than a client's first poll takes.
_QUICK_SECONDS = 0.1
#: Performs the call on the given exchange.
Work = Callable[[Exchange], Awaitable[t.CallToolResult]]


def new_task_id() -> str:
    """Return an id that cannot be guessed, and that no command line reads as an option."""
    return os.urandom(16).hex()


class Run:
    """A call that may become a task, and the task while it runs here."""

    __slots__ = (
        "_asked",
        "_changed",
        "_tasks",
        "_waiting",
        "announced",
        "cancelled",
        "claimed",
        "ended",
        "exchange",
        "job",
        "message",
        "message_at",
        "record",
        "session",
        "settled",
        "stored",
        "wants_task",
        "work",
    )

    def __init__(self, tasks: Tasks, work: Work, session: Session | None = None) -> None:
        """Prepare a run; ``exchange`` is set before it starts, and deleted after its end."""
        self._tasks = tasks
        self.work = work
        self.exchange: TaskExchange
        #: The asyncio task that runs the handler; None until a call that is a task from the start is stored.
        self.job: asyncio.Task[Any] | None = None
        #: The record last stored by this process; None until the call is a task.
        self.record: TaskRecord | None = None
        #: Resolved once the record is stored; a handler that returns earlier must wait for it.
        self.stored: asyncio.Future[None] | None = None
        #: Resolved when the handler asks to continue as a task.
        self.wants_task: asyncio.Future[None] | None = None
        self.session = session
        #: The latest status message; not stored, since it may change many times a second.
        self.message: str | None = None
        #: When it was set, in wall time.
        self.message_at = 0.0
        #: Whether the session was notified of the state.
        self.announced = False
        self.cancelled = False
        #: Whether the handler has returned, so that it can no longer be cancelled.
        self.ended = False
        #: Whether its outcome is stored, or being stored.
        self.settled = False
        #: The questions that are currently asked on a request of the caller.
        self.claimed: set[str] = set()
        self._waiting: dict[str, asyncio.Future[Raw]] = {}
        #: The questions that are stored and not answered yet.
        self._asked: dict[str, Question] = {}
        self._changed: list[asyncio.Future[None]] = []

    # --- for its exchange ---------------------------------------------------------------------------------------------

    @property
    def reports_early(self) -> bool:
        """Whether the caller wants progress or log messages, and gets them only until it has the answer.

        A caller of a handshake revision gets them in its session, too.
        """
        admitted = self.exchange.admitted
        caller, meta = admitted.caller, admitted.params.meta
        if caller.revision.handshake:
            return False
        return caller.log_level is not None or (meta is not None and meta.progress_token is not None)

    async def delay_answer(self, job: asyncio.Task[Any]) -> None:
        """Wait a moment for a task that ends quickly: what it reports can be sent only until its caller has the answer.

        Later progress and log messages become the status, of which a client sees what is there when it polls.
        """
        try:
            await asyncio.wait((job,), timeout=_QUICK_SECONDS)
        except asyncio.CancelledError:
            self.cancel()
            raise

    @property
    def attempts(self) -> int:
        """The number of times the task was started."""
        return 1 if self.record is None else self.record.attempts

    @property
    def used_keys(self) -> set[str]:
        """The keys of all questions asked so far."""
        return set(self._waiting) if self.record is None else {*self._waiting, *self.record.used_keys}

    @property
    def running(self) -> bool:
        """Whether it is neither cancelled nor finished."""
        return not self.cancelled and not self.ended

    @property
    def suspended(self) -> bool:
        """Whether the process is stopping and the next one continues the task."""
        return not self.cancelled and self._tasks.suspended

    def report(self, method: str, params: Any) -> bool:
        """Store progress or a log message as the status; send other notifications to the session, if there is one."""
        if self.record is None:
            return False
        line = progress_text(method, params)
        if line is not None:
            self._set_message(line)
            self.wake()
        return self._tasks.reported(self, method, params) or line is not None

    def note(self, method: str, params: Any) -> None:
        """Store a notification as the first status, in case the call becomes a task."""
        line = progress_text(method, params)
        if line is not None:
            self._set_message(line)

    def set_status(self, message: str) -> None:
        """Set the status message."""
        self._set_message(status_line(message))
        self._tasks.status_changed(self)
        self.wake()

    def latest(self, record: TaskRecord) -> TaskRecord:
        """Return the record of this task with the latest status message."""
        if self.message is None or record.finished:
            return record
        return replace(record, message=self.message, updated=max(record.updated, self.message_at))

    def _set_message(self, message: str) -> None:
        if message != self.message:
            self.message, self.message_at = message, self._tasks.now()

    async def ask(self, key: str, question: Question) -> Raw:
        """Ask a question of the task and wait for the answer, at most for the task's time to live.

        Raises:
            RequestFailed: no answer came in time.
        """
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._waiting[key] = answer
        try:
            await self._when_stored()
            assert self.record is not None
            ttl = self.record.ttl
            await self._add_question(key, question)
            self._asked[key] = question
            async with asyncio.timeout(ttl):
                return await answer
        except TimeoutError as error:
            await self._withdraw(key)
            raise RequestFailed(f"No answer to {key!r} came within {ttl:g} s") from error
        except RequestFailed:
            # The client answered with an error: the question is closed, regardless of what the handler does next.
            await self._withdraw(key)
            raise
        finally:
            del self._waiting[key]
            self._asked.pop(key, None)
            if self.running and not (answer.done() and not answer.cancelled() and answer.exception() is None):
                # The handler stopped waiting, and continues.
                await self._withdraw(key)

    async def _add_question(self, key: str, question: Question) -> None:
        tasks = self._tasks
        after = await tasks.change_patiently(self, lambda record: add_question(record, key, question, tasks.now()))
        if after is not None and key in after.journal.answers:
            # It was added by an attempt that seemed to fail, and another process has answered it since.
            self.answer(key, after.journal.answers[key][1])

    async def _withdraw(self, key: str) -> None:
        await self._tasks.change_patiently(self, lambda record: withdraw_question(record, key, self._tasks.now()))

    async def keep_once(self, key: str, result: Raw) -> None:
        """Store the result of ``once`` with the task."""
        await self._when_stored()
        await self._tasks.change_patiently(self, lambda record: keep_once(record, key, result))

    async def become_task(self) -> bool:
        """Turn the call into a task and wait until it is stored; return False if that is not possible."""
        if self.wants_task is None or self.wants_task.done() or self.ended:
            return False
        exchange = self.exchange
        self.wants_task.set_result(None)
        while not exchange.detached:
            await self.changed()
        await self._when_stored()
        return True

    # --- while its caller waits ---------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether the handler has returned."""
        return self.job is not None and self.job.done()

    async def outcome(self) -> Any:
        """Return what the handler returned, or raise what it raised."""
        assert self.job is not None
        return await self.job

    # --- what happens to it -------------------------------------------------------------------------------------------

    def detach(self) -> Journal:
        """Continue as a task: from now on the handler cannot use the caller's request. Return its journal so far."""
        before = self.exchange.channel
        channel = TaskChannel(self, before.journal) if isinstance(before, JournalChannel) else None
        self.exchange.detach(self._tasks.connection(), channel)
        return NO_JOURNAL if channel is None else channel.journal.record()

    async def _when_stored(self) -> None:
        if self.stored is not None:
            await asyncio.shield(self.stored)

    def awaits(self, key: str) -> bool:
        """Return True if the handler waits for the answer to a question."""
        future = self._waiting.get(key)
        return future is not None and not future.done() and self.running

    def missing_from(self, record: TaskRecord) -> dict[str, Question]:
        """Return the stored questions that a record does not have: the store has lost their writes."""
        if record.finished or record.attempts != self.attempts:
            return {}
        return {key: each for key, each in self._asked.items() if self.awaits(key) and key not in record.used_keys}

    @property
    def waits_for_input(self) -> bool:
        """Whether the handler waits for its caller."""
        return bool(self._waiting)

    @property
    def unasked(self) -> dict[str, t.InputRequest]:
        """The open questions that are not asked on any request of the caller yet."""
        if self.record is None:
            return {}
        return {key: request for key, request in self.record.requests.items() if key not in self.claimed}

    def answer(self, key: str, answer: Raw | Exception) -> None:
        """Deliver the answer to a question, or the reason why there is none."""
        future = self._waiting.get(key)
        if future is None or future.done():
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def wake(self) -> None:
        """Wake all requests that wait for a change."""
        waiting, self._changed = self._changed, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def next_change(self) -> asyncio.Future[None]:
        """Return a future that is resolved at the next change of the task."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed.append(future)
        return future

    async def changed(self) -> None:
        """Wait for the next change of the task."""
        await self.next_change()

    @property
    def repeats(self) -> bool:
        """Whether another process may run it again if this one ends."""
        return self.record is not None and self.record.attempts <= self.record.retry

    def owns(self, record: TaskRecord) -> bool:
        """Return False if another process has taken over the task."""
        own = self.record
        return own is not None and (record.attempts, record.runner) == (own.attempts, own.runner)

    def supersede(self) -> None:
        """Stop the handler of a task that another process has taken over; its outcome is dropped."""
        if self.job is not None and not self.ended:
            self.job.cancel()
        self.wake()

    def cancel(self) -> None:
        """Cancel the handler; do nothing if it has returned."""
        self.cancelled = True
        if self.job is not None and not self.ended:
            self.job.cancel()
        self.wake()


def ending(outcome: Any, record: TaskRecord, now: float, message: str | None) -> Change:
    """Return the change that stores the outcome of a task."""
    if isinstance(outcome, t.CallToolResult):
        result, failed = encode_result(outcome, record.caller.revision), bool(outcome.is_error)
        # The specification: the state of a failed task SHOULD say what went wrong.
        message = (error_text(outcome) if failed else None) or message
        return lambda each: finish(each, "completed", now, result=result, is_error=failed, message=message)
    if not isinstance(outcome, BaseException):
        # A result of a kind that an extension adds.
        plain = Raw(msgspec.json.encode(outcome))
        return lambda each: finish(each, "completed", now, result=plain, message=message)
    if isinstance(outcome, asyncio.CancelledError):
        return lambda each: finish(each, "cancelled", now, message="The task was cancelled.")
    error = _error_of(outcome, record)
    return lambda each: finish(each, "failed", now, error=error, message=error.message)


def _error_of(outcome: Any, record: TaskRecord) -> t.ErrorObject:
    """Return the error that the caller would have got."""
    found = error_for_caller(outcome, record.caller.caller()) if isinstance(outcome, Exception) else outcome
    if isinstance(found, RequestFailed):
        data = msgspec.UNSET if found.data is None else found.data
        return t.ErrorObject(code=found.code, message=public_message(found), data=data)
    if isinstance(found, MissingCapability):
        return t.ErrorObject(code=-32021, message=str(found), data=required_capabilities(found.capability))
    log.error("the task %s of tool %r failed", record.id, record.tool, exc_info=found)
    return t.ErrorObject(code=-32603, message="Internal error")
