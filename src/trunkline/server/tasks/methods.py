"""Handlers of the task methods.

The extension has ``tasks/get``, ``update`` and ``cancel``; the revision that has tasks in its core has ``get``,
``result``, ``cancel`` and ``list``.

A task belongs to the principal that created it; other principals get the same error as for an unknown id.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Exchange, Timeouts
from trunkline.errors import InvalidParams, LinkError, MethodNotFound, RequestFailed
from trunkline.protocol.channel import RequestToClient
from trunkline.protocol.extensions import TASKS, require_extension
from trunkline.protocol.methods import decode_params, embedded_requests, requests_to_client
from trunkline.protocol.revisions import Feature
from trunkline.protocol.tasks import related
from trunkline.server.channels import channel_for
from trunkline.server.dispatch import ServerConnection, runtime_of
from trunkline.server.task_options import may_list_tasks
from trunkline.server.tasks.record import (
    TaskRecord,
    answer_questions,
    finish,
    owner_of,
    withdraw_question,
)
from trunkline.server.tasks.run import Run
from trunkline.server.tasks.wire import core_task, extension_task, task_outcome

if TYPE_CHECKING:
    from trunkline.server.server import Server
    from trunkline.server.tasks.service import Tasks

__all__ = ["find_task", "follow", "offer_tasks", "relay_directly", "state_of", "tasks_of"]

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LATEST = 1e11  # No task is created later, in the year 5138: a greater time in a cursor is not ours.
_MIN_POLL_SECONDS = 0.05  # Poll interval for a task that runs in another process.
_RELAY_SECONDS = 0.5  # A client that fetches the result of a task with questions does so within a poll or two.
_LOOK_SECONDS = 5.0  # How often a task of another worker is looked at, although its changes are notified.
Handler = Callable[[Exchange, Any], Awaitable[Any]]


def offer_tasks(server: Server) -> None:
    """Register the handlers of the methods of tasks on a server, and the job tools if its clients may poll."""
    server.table.handlers.update(_task_handlers())
    assert server.table.task_settings is not None
    if server.table.task_settings.slow_calls == "poll":
        from trunkline.server.tasks.polling import PolledListing, make_job_tools

        server.table.job_tools = {tool.name: tool for tool in make_job_tools(server)}
        server.table.listing.variants = PolledListing()


def tasks_of(exchange: Exchange) -> Tasks:
    """Return the tasks of the runtime that serves a request; only for servers that offer tasks."""
    tasks = runtime_of(exchange).tasks
    assert tasks is not None
    return tasks


def _task_handlers() -> Mapping[str, Handler]:
    """Return the handlers of the methods of tasks."""

    async def get(exchange: Exchange, params: t.GetTaskRequestParams) -> Any:
        tasks = tasks_of(exchange)
        record = await find_task(tasks, exchange, params.task_id)
        return state_of(tasks, record, core=_is_core(exchange))

    async def update(exchange: Exchange, params: t.UpdateTaskRequestParams) -> Any:
        tasks = tasks_of(exchange)
        record = await find_task(tasks, exchange, params.task_id)
        _check_answers(record, params.input_responses)
        await answer(tasks, record.id, params.input_responses)
        return t.EmptyResult()

    async def cancel(exchange: Exchange, params: t.CancelTaskRequestParams) -> Any:
        tasks = tasks_of(exchange)
        record = await find_task(tasks, exchange, params.task_id)
        record, cancelled = await _cancel(tasks, record)
        if not _is_core(exchange):
            return t.EmptyResult()
        members = core_task(record, tasks.now())
        if not cancelled:
            raise InvalidParams(f"Cannot cancel task: already in terminal status {members['status']!r}")
        return t.CancelTaskResult(**members)

    async def result(exchange: Exchange, params: t.GetTaskPayloadRequestParams) -> Any:
        tasks = tasks_of(exchange)
        record = await find_task(tasks, exchange, params.task_id)
        record = await follow(tasks, exchange, record)
        outcome = task_outcome(record)
        return replace(outcome, meta={**(outcome.meta or {}), **related(record.id)})

    async def list_tasks(exchange: Exchange, params: t.PaginatedRequestParams) -> Any:
        return await _list(tasks_of(exchange), exchange, params.cursor)

    return {
        "tasks/get": get,
        "tasks/update": update,
        "tasks/cancel": cancel,
        "tasks/result": result,
        "tasks/list": list_tasks,
    }


def _is_core(exchange: Exchange) -> bool:
    return Feature.CORE_TASKS in exchange.admitted.caller.revision.features


async def find_task(tasks: Tasks, exchange: Exchange, id: str) -> TaskRecord:
    """Return a task of the caller.

    Raises:
        MissingClientCapability: the client did not declare the extension, in a revision where tasks are one.
        InvalidParams: there is no such task, or it belongs to another caller.
    """
    caller = exchange.admitted.caller
    if not caller.revision.handshake and exchange.method.startswith("tasks/"):
        require_extension(caller.capabilities, TASKS)
    tasks.start()
    record = await tasks.records.get(id)
    if record is None or record.owner != owner_of(caller.principal):
        raise InvalidParams("Task not found: it never existed, has expired, or belongs to another caller")
    return record


def state_of(tasks: Tasks, record: TaskRecord, *, core: bool) -> Any:
    """Return the state of a task in the form of the caller's revision."""
    record = tasks.latest(record)
    return t.GetTaskResult(**core_task(record, tasks.now())) if core else extension_task(record, tasks.now())


def _check_answers(record: TaskRecord, answers: dict[str, Raw]) -> None:
    """Check that answers to open questions can be read; a question whose answer cannot be read stays open.

    Raises:
        InvalidParams: one cannot.
    """
    rows = embedded_requests(record.caller.caller().revision)
    for key, raw in answers.items():
        request = record.requests.get(key)
        row = None if request is None else rows.get(request.method)
        if row is not None:
            try:
                msgspec.json.decode(raw, type=row.result)
            except _UNREADABLE as error:
                raise InvalidParams(f"Invalid params: the answer to {key!r} is not valid: {error}") from error


async def answer(tasks: Tasks, id: str, answers: dict[str, Raw]) -> None:
    """Store answers to questions of a task, and deliver them to the handler if it runs here."""
    run = tasks.runs.get(id)
    before = await tasks.records.get(id) if run is None else run.record
    wanted = {key: raw for key, raw in answers.items() if before is not None and key in before.requests}
    if not wanted:
        return
    now = tasks.now()
    if run is None:
        await tasks.records.update(id, lambda record: answer_questions(record, wanted, now))
        return
    after = await tasks.change(run, lambda record: answer_questions(record, wanted, now))
    for key in wanted:
        # Deliver what was stored: another answer may have come first, or the task may have ended.
        if after is not None and not after.finished and key in after.journal.answers:
            run.answer(key, after.journal.answers[key][1])


async def _cancel(tasks: Tasks, record: TaskRecord) -> tuple[TaskRecord, bool]:
    """Cancel a task; return its state, and True if this request ended it.

    The state changes before the handler is stopped, so that it stays cancelled regardless of what the handler does.
    """
    now, run = tasks.now(), tasks.runs.get(record.id)
    ended = False

    def cancel(each: TaskRecord) -> TaskRecord:
        nonlocal ended
        ended = not each.finished
        return finish(each, "cancelled", now, message="The task was cancelled by request.")

    if run is None:
        after = await tasks.records.update(record.id, cancel)
        if ended and after is not None:
            tasks.announce(after, None)
    else:
        after = await tasks.change(run, cancel)
        if ended:
            run.cancel()
    return after or record, ended


# --- waiting for results, and asking questions meanwhile --------------------------------------------------------------


class News:
    """What wakes a request that waits for a task which runs at another worker."""

    def __init__(self, tasks: Tasks, id: str) -> None:
        """Wait for changes of a task; nothing is subscribed yet."""
        self._tasks = tasks
        self._id = id
        self._close: Callable[[], Awaitable[None]] | None = None
        self._waiting: list[asyncio.Future[None]] = []

    async def open(self) -> None:
        """Subscribe."""
        if self._close is None:
            self._close = await self._tasks.records.watch(self._id, self._wake)

    def next_change(self) -> asyncio.Future[None]:
        """Return a future that is resolved at the next change."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting = [waiting for waiting in self._waiting if not waiting.done()]
        self._waiting.append(future)
        return future

    def interval(self, poll: float) -> float:
        """Return after how many seconds to look even without news."""
        return max(poll, _LOOK_SECONDS) if self._tasks.records.shared else poll

    async def close(self) -> None:
        """Unsubscribe."""
        if self._close is not None:
            await self._close()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


async def follow(tasks: Tasks, exchange: Exchange, record: TaskRecord, *, seconds: float | None = None) -> TaskRecord:
    """Wait until a task has finished, or until a timeout; its questions are asked on this request."""
    if record.finished:
        return record
    news = News(tasks, record.id)
    try:
        return await _follow(tasks, exchange, record, news, seconds)
    finally:
        await news.close()


async def _follow(
    tasks: Tasks, exchange: Exchange, record: TaskRecord, news: News, seconds: float | None
) -> TaskRecord:
    loop = asyncio.get_running_loop()
    until = None if seconds is None else loop.time() + seconds
    while True:
        run = tasks.runs.get(record.id)
        if run is None:
            await news.open()
        # Before the state is read, so that a later change wakes this request.
        changed = news.next_change() if run is None else run.next_change()
        record = await tasks.records.get(record.id) or record
        left = None if until is None else until - loop.time()
        if record.finished or (left is not None and left <= 0):
            return record
        if run is None:
            pause = news.interval(max(record.poll, _MIN_POLL_SECONDS))
            pause = pause if left is None else min(pause, left)
            if record.requests:
                await _relay_elsewhere(tasks, record, exchange, pause, news)
            else:
                await asyncio.wait((changed,), timeout=pause)
        elif requests := run.unasked:
            await _relay(tasks, run, exchange, *next(iter(requests.items())))
        else:
            await asyncio.wait((changed,), timeout=left)


async def _relay(tasks: Tasks, run: Run, exchange: Exchange, key: str, embedded: t.InputRequest) -> None:
    """Ask a question of a task on a request of its caller."""
    assert run.record is not None
    request = _request(exchange, run.record.id, key, embedded)
    if request is None:
        return run.answer(key, RequestFailed(f"The client's revision has no {embedded.method}"))
    await _ask(tasks, run, key, channel_for(exchange).ask(request))


def _request(exchange: Exchange, id: str, key: str, embedded: t.InputRequest) -> RequestToClient | None:
    """Return a question of a task as a request in the caller's revision; None if the revision has no such method."""
    method, revision = embedded.method, exchange.admitted.caller.revision
    rows = requests_to_client(revision) if revision.handshake else embedded_requests(revision)
    if method not in rows:
        return None
    params = decode_params(rows[method], embedded.params)
    if _is_core(exchange):
        params = replace(params, meta=Raw(msgspec.json.encode(related(id))))
    return RequestToClient(method, params, key)


async def _relay_elsewhere(tasks: Tasks, record: TaskRecord, exchange: Exchange, pause: float, news: News) -> None:
    """Ask a question of a task that runs in another process, on a request of its caller here.

    The answer is stored, and the worker that runs the task is told of it.
    """
    key, embedded = next(iter(record.requests.items()))
    request = _request(exchange, record.id, key, embedded)
    now = tasks.now
    if request is not None:
        asking = asyncio.get_running_loop().create_task(channel_for(exchange).ask(request))
        changed = news.next_change()
        try:
            while key in record.requests and not asking.done():
                await asyncio.wait((asking, changed), timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                changed = news.next_change()
                record = await tasks.records.get(record.id) or replace(record, requests={})
            if asking.done():
                await answer(tasks, record.id, {key: await asking})
            return
        except RequestFailed:
            # The client cannot be asked: the handler gets an error.
            pass
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.wait((asking,))
    await tasks.records.update(record.id, lambda each: withdraw_question(each, key, now()))


async def _ask(tasks: Tasks, run: Run, key: str, asking: Coroutine[Any, Any, Raw]) -> None:
    """Ask a question of a task while it is open, and deliver the answer.

    If the task ends first, or its handler stops waiting, the request to the client is cancelled.
    """
    assert run.record is not None
    run.claimed.add(key)
    request = asyncio.get_running_loop().create_task(asking)
    try:
        while run.awaits(key) and not request.done():
            await asyncio.wait((request, run.next_change()), return_when=asyncio.FIRST_COMPLETED)
        if request.done():
            await answer(tasks, run.record.id, {key: await request})
    except RequestFailed as error:
        run.answer(key, error)
    finally:
        run.claimed.discard(key)
        if not request.done():
            request.cancel()
            await asyncio.wait((request,))
        run.wake()


def relay_directly(tasks: Tasks, run: Run) -> None:
    """Ask the questions of a task on the connection of its session, unless the client soon fetches the result.

    The specification advises clients to fetch the result, and questions are asked on that request. The official
    TypeScript package (ext-tasks 0.2) instead waits for questions, and rejects those of a task it does not know yet.
    """
    asyncio.get_running_loop().call_later(_RELAY_SECONDS, _relay_unasked, tasks, run)


def _relay_unasked(tasks: Tasks, run: Run) -> None:
    subscriber = None if run.session is None else tasks.runtime.subscriber(run.session)
    if not isinstance(subscriber, ServerConnection) or subscriber.connection is None:
        return
    if not subscriber.connection.link.delivers_requests:
        return
    for key, request in run.unasked.items():
        run.claimed.add(key)
        tasks.spawn(_relay_on_connection(tasks, run, subscriber, key, request))


async def _relay_on_connection(
    tasks: Tasks, run: Run, subscriber: ServerConnection, key: str, request: t.InputRequest
) -> None:
    connection, record = subscriber.connection, run.record
    assert connection is not None
    assert record is not None
    row = requests_to_client(record.caller.caller().revision)[request.method]
    params = replace(decode_params(row, request.params), meta=Raw(msgspec.json.encode(related(record.id))))
    timeouts = Timeouts(idle=None, total=tasks.runtime.limits.ask_seconds)
    # If the connection is lost, the client may reconnect and fetch the result.
    with suppress(LinkError):
        await _ask(tasks, run, key, connection.request(request.method, params, timeouts=timeouts))


# --- the list ---------------------------------------------------------------------------------------------------------


async def _list(tasks: Tasks, exchange: Exchange, cursor: str | None) -> t.ListTasksResult:
    caller = exchange.admitted.caller
    if not may_list_tasks(caller):
        raise MethodNotFound(
            "Method not found: tasks/list (this server cannot distinguish its callers)", data={"method": "tasks/list"}
        )
    tasks.start()
    size = tasks.runtime.limits.page_size
    found = await tasks.records.page(
        caller.principal, after=_position(cursor), limit=size + 1, address=caller.origin.address
    )
    shown = [t.Task(**core_task(tasks.latest(each), tasks.now())) for each in found[:size]]
    more = len(found) > size
    return t.ListTasksResult(tasks=shown, next_cursor=_cursor(found[size - 1]) if more else None)


def _cursor(record: TaskRecord) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([record.created, record.id])).decode().rstrip("=")


def _position(cursor: str | None) -> tuple[float, str] | None:
    if cursor is None:
        return None
    try:
        plain = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        created, id = msgspec.json.decode(plain, type=tuple[float, str])
        if not 0 <= created < _LATEST:
            raise ValueError(created)
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise InvalidParams("Invalid params: the cursor is not valid; start from the first page") from error
    return created, id
