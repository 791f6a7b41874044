"""Waits for tasks of servers on behalf of a caller, which gets the result even if it does not support tasks.

A server may answer a call with a task (the extension), or may require that a tool is called as one (the revision with
tasks in its core). The task is polled until it has finished; its questions are asked like any others, and its status
becomes the caller's progress. The id of the task is stored with the caller's request, so that the next round of a
stateless caller, or a restarted gateway, continues with the same task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Raw

import trunkline.types as t
from trunkline.client.client import Client
from trunkline.client.request_handlers import ExtensionResult
from trunkline.errors import LinkError, RemoteProtocolError, RequestFailed, RequestTimeout, request_failed
from trunkline.host.upstreams.routing.channels import CallerChannel, TaskProgress
from trunkline.protocol.tasks import StatusProgress, from_milliseconds, is_progress

__all__ = ["TASK_KEYS", "AskAll", "call_core_task", "follow_task", "is_task", "send_or_withdraw", "task_id"]

T = TypeVar("T")
#: The ``once`` keys of the task id of a call: of the first call, and of the call after the user opened a page.
TASK_KEYS = ("upstream-task", "upstream-task-again")
_SHORTEST_POLL = 0.02  # Minimum poll interval; a server may advise any.
_LONGEST_POLL = 30.0  # Maximum poll interval.
_CANCEL_SECONDS = 5.0  # Timeout for the request that cancels an abandoned task.
_ANSWER_SECONDS = 0.2  # Timeout for the response with the id of an abandoned task.

#: Asks the caller the questions of a task by key; the number distinguishes the rounds of one call.
AskAll = Callable[[Mapping[str, Any], int], Awaitable[dict[str, Raw]]]


class StatusReporter(Protocol):
    """Reports the status messages of a task as progress."""

    def __call__(self, status: str | None, *, known: bool = False) -> None:
        """Report a message unless it is the last one, or the caller knows it."""


def task_id(raw: Raw) -> str:
    """Return the id of the task that a call was answered with.

    Raises:
        RemoteProtocolError: it has none.
    """
    try:
        return msgspec.json.decode(raw, type=t.TaskResult).task_id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"The server answered with a task that cannot be read: {error}") from error


def is_task(result: object) -> bool:
    """Return True if a call was answered with a task of the extension."""
    return isinstance(result, ExtensionResult) and result.kind == "task"


async def send_or_withdraw(client: Client, sending: Coroutine[Any, Any, T], id_of: Callable[[T], str | None]) -> T:
    """Send a call that may be answered with a task; if the caller cancels, the task is cancelled too.

    The server may have created the task already when it gets the cancellation. Only its response has the id, so the
    response is awaited for a short time.
    """
    request = asyncio.get_running_loop().create_task(sending)
    try:
        return await asyncio.shield(request)
    except asyncio.CancelledError:
        await asyncio.wait((request,), timeout=_ANSWER_SECONDS)
        if not request.done():
            request.cancel()
            await asyncio.wait((request,), timeout=_CANCEL_SECONDS)
        elif not request.cancelled() and request.exception() is None and (id := id_of(request.result())):
            await _cancel(client, id)
        raise


async def follow_task(
    client: Client, id: str, channel: CallerChannel, ask_all: AskAll, *, total: float | None, continued: bool
) -> tuple[t.CallToolResult, Raw]:
    """Wait for a task of the extension and return its result, decoded and raw.

    ``continued`` is true if an earlier round of the call waited for the task.

    Raises:
        RequestFailed: the task failed, was cancelled, or does not exist any more.
        RequestTimeout: it took longer than ``total`` seconds.
    """
    answered: set[str] = set()
    report = _reporter(channel.progress)
    rounds = 0
    try:
        async with asyncio.timeout(total) as limit:
            while True:
                state = await client.request("tasks/get", {"taskId": id}, result=t.TaskResult)
                if state.status_message is not None and is_progress(state.status, state.status_message):
                    # A task that still waits for this round's answers has the status that the last round reported.
                    report(state.status_message, known=continued and state.status == "input_required")
                continued = False
                if state.status not in ("working", "input_required"):
                    return _outcome(state)
                questions = {key: each for key, each in (state.input_requests or {}).items() if key not in answered}
                if questions:
                    answers = await _untimed(limit, ask_all(_plain(questions), rounds))
                    rounds += 1
                    answered.update(questions)
                    await client.request("tasks/update", {"taskId": id, "inputResponses": answers})
                else:
                    await asyncio.sleep(_pause(state.poll_interval_ms))
    except TimeoutError as error:
        await _cancel(client, id)
        assert total is not None
        raise _too_long(total) from error
    except asyncio.CancelledError:
        if not _goes_on(channel):
            await _cancel(client, id)
        raise


def _goes_on(channel: CallerChannel) -> bool:
    """Return True if a task is still needed: its caller is answering a question, or its gateway is restarting."""
    return channel.left or channel.suspended


async def _untimed(limit: asyncio.Timeout, asking: Awaitable[T]) -> T:
    """Wait for the user's answers without counting the time."""
    due, begun = limit.when(), asyncio.get_running_loop().time()
    limit.reschedule(None)
    answers = await asking
    if due is not None:
        limit.reschedule(due + asyncio.get_running_loop().time() - begun)
    return answers


async def call_core_task(
    client: Client,
    params: t.CallToolRequestParams,
    channel: CallerChannel,
    progress: Callable[[t.ProgressNotificationParams], None],
    *,
    key: str,
    total: float | None,
    asked: Callable[[], float],
) -> tuple[t.CallToolResult, Raw]:
    """Call a tool as a task of the core protocol, or continue one that an earlier process started.

    Its questions arrive on the connection; ``asked`` returns how many seconds they have waited for answers. ``key`` is
    the ``once`` key of its id.

    Raises:
        RequestFailed: the task failed, was cancelled, or does not exist any more.
        RequestTimeout: it took longer than ``total`` seconds.
    """
    if channel.did(key):
        handle = client.task(await channel.once(key, str), tool=params.name)
    else:
        arguments = None if params.arguments is None else msgspec.json.decode(params.arguments)
        handle = await send_or_withdraw(client, client.start_task(params.name, arguments), lambda each: each.id)
    if handle.direct is not None:
        return handle.direct, Raw(msgspec.json.encode(handle.direct))
    report = _reporter(progress)
    try:
        await channel.once(key, partial(str, handle.id))
        result = await _within(total, client._wait_for_task(handle, lambda state: report(state.message)), asked)
    except TimeoutError as error:
        await _cancel(client, handle.id)
        assert total is not None
        raise _too_long(total) from error
    except asyncio.CancelledError:
        if not _goes_on(channel):
            await _cancel(client, handle.id)
        raise
    return result, Raw(msgspec.json.encode(result))


async def _within(total: float | None, work: Coroutine[Any, Any, T], asked: Callable[[], float]) -> T:
    """Wait with a timeout that does not count the time in which the user was asked.

    Raises:
        TimeoutError: it took longer.
    """
    if total is None:
        return await work
    loop = asyncio.get_running_loop()
    task, begun = loop.create_task(work), loop.time()
    try:
        while not task.done():
            left = total + asked() - (loop.time() - begun)
            if left <= 0:
                raise TimeoutError
            await asyncio.wait((task,), timeout=max(left, _SHORTEST_POLL))
        return await task
    finally:
        task.cancel()


def _too_long(total: float) -> RequestTimeout:
    return RequestTimeout(f"the task took longer than {total:g} s", clock="total", seconds=total)


def _reporter(progress: Callable[[t.ProgressNotificationParams], None]) -> StatusReporter:
    """Return a function that reports each new status message of a task as progress, unless the caller knows it."""
    shown, last = StatusProgress(), None

    def report(status: str | None, *, known: bool = False) -> None:
        nonlocal last
        if status is None or status == last:
            return
        last = status
        done, total, message = shown.read(status)
        if known:
            return
        # A message without numbers is shown unchanged as the status of the gateway's own task.
        kind = TaskProgress if message == status else t.ProgressNotificationParams
        progress(kind(progress_token=0, progress=done, total=total, message=message))

    return report


def _outcome(state: t.TaskResult) -> tuple[t.CallToolResult, Raw]:
    if state.status == "completed" and state.result is not None:
        try:
            return msgspec.json.decode(state.result, type=t.CallToolResult), state.result
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RemoteProtocolError(f"The result of the task cannot be read: {error}") from error
    if state.error is not None:
        data = None if state.error.data is msgspec.UNSET else state.error.data
        raise request_failed(state.error.code, state.error.message, data)
    raise RequestFailed(f"The server's task ended without a result: {state.status_message or state.status}")


def _plain(questions: Mapping[str, t.InputRequest]) -> dict[str, Any]:
    return {
        key: {"method": each.method, "params": {} if each.params is None else msgspec.json.decode(each.params)}
        for key, each in questions.items()
    }


def _pause(milliseconds: int | None) -> float:
    seconds = 1.0 if milliseconds is None else from_milliseconds(milliseconds)
    return min(max(seconds, _SHORTEST_POLL), _LONGEST_POLL)


async def _cancel(client: Client, id: str) -> None:
    """Cancel an abandoned task, with a timeout."""
    with suppress(RequestFailed, LinkError, TimeoutError):
        async with asyncio.timeout(_CANCEL_SECONDS):
            await client.request("tasks/cancel", {"taskId": id})
