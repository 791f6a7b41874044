"""Sends requests that the client runs as tasks, where the core protocol has that and the client declared it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Exchange, Timeouts
from trunkline.errors import InvalidParams, LinkError, RequestFailed
from trunkline.protocol.channel import RequestToClient
from trunkline.protocol.limits import Limits
from trunkline.protocol.tasks import FINISHED, from_milliseconds
from trunkline.server.channels import LiveChannel

__all__ = ["ask_as_task"]

T = TypeVar("T")
_SHORTEST_POLL = 0.05  # Minimum poll interval; a client may advise any.
_LONGEST_POLL = 10.0  # Maximum poll interval.
_USUAL_POLL = 1.0  # Poll interval for clients that advise none.
_CANCEL_SECONDS = 5.0  # Timeout for the request that cancels an abandoned task.


async def ask_as_task(
    channel: LiveChannel,
    request: RequestToClient,
    *,
    limits: Limits,
    on_state: Callable[[t.Task], None] | None = None,
) -> Raw:
    """Send a request that the client runs as a task, follow the task, and return the result, undecoded.

    Raises:
        RequestFailed: the client rejected the request, or the task failed or was cancelled.
        TimeoutError: the client did not answer within the timeout for users.
    """
    wanted = t.TaskMetadata(ttl=int(limits.ask_seconds * 1000))
    request.params = replace(request.params, task=wanted)
    raw = await channel.ask(request)
    if "task" not in _decode(raw, dict[str, Raw]):
        # A client may still answer directly; the official everything server accepts that too.
        return raw
    task = _decode(raw, t.CreateTaskResult).task
    exchange, timeouts = channel.exchange, Timeouts(idle=None, total=limits.ask_seconds)
    report = on_state or (lambda state: None)
    report(task)
    try:
        async with asyncio.timeout(limits.ask_seconds):
            while task.status not in FINISHED:
                seconds = _USUAL_POLL if task.poll_interval is None else from_milliseconds(task.poll_interval)
                await asyncio.sleep(min(max(seconds, _SHORTEST_POLL), _LONGEST_POLL))
                params = t.GetTaskRequestParams(task_id=task.task_id)
                task = _decode(await exchange.request("tasks/get", params, timeouts=timeouts), t.GetTaskResult)
                report(task)
            payload = t.GetTaskPayloadRequestParams(task_id=task.task_id)
            return await exchange.request("tasks/result", payload, timeouts=timeouts)
    except (asyncio.CancelledError, TimeoutError):
        await _cancel(exchange, task.task_id)
        raise


async def _cancel(exchange: Exchange, id: str) -> None:
    """Cancel an abandoned task, with a timeout, so that the user is not asked for nothing."""
    params, timeouts = t.CancelTaskRequestParams(task_id=id), Timeouts(idle=None, total=_CANCEL_SECONDS)
    with suppress(RequestFailed, LinkError):
        # Not on the exchange, which may have ended.
        await exchange.connection.request("tasks/cancel", params, timeouts=timeouts)


def _decode(raw: Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams(f"Invalid params: the client's task is not valid: {error}") from error
