"""Takes over the unfinished tasks of processes that have ended, and runs those again that may."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import RequestFailed, StoreUnavailable
from trunkline.extensions.tasks.backend import Change
from trunkline.extensions.tasks.exchange import TaskElicitor, TaskExchange
from trunkline.extensions.tasks.outcome import ending
from trunkline.extensions.tasks.patience import when_reachable
from trunkline.extensions.tasks.record import TaskRecord
from trunkline.extensions.tasks.run import Run
from trunkline.protocol.methods import decode_params, requests_to_server
from trunkline.protocol.request_validation import ValidatedRequest
from trunkline.server.elicitors import OnceResults

if TYPE_CHECKING:
    from trunkline.extensions.tasks.service import Tasks

__all__ = ["take_over"]

log = logging.getLogger("trunkline")


async def take_over(tasks: Tasks, runner: str) -> None:
    """Take over unfinished tasks of ended runners; a backend that cannot be used is reported, not raised."""
    try:
        taken = await tasks.backend.claim(runner)
    except StoreUnavailable as error:
        log.debug("the tasks of other workers cannot be taken over now: %s", error.message)
        return
    except Exception:
        log.exception("the unfinished tasks of server %r could not be taken over", tasks.server.name)
        return
    for record in taken:
        try:
            _run_again(tasks, record)
        except Exception:
            log.exception("the task %s of tool %r cannot run again", record.id, record.tool)
            await _fail(tasks, record)


async def _fail(tasks: Tasks, record: TaskRecord) -> None:
    change = ending(RequestFailed("Internal error"), record, tasks.now(), None)
    try:
        await tasks.backend.update(record.id, change)
    except StoreUnavailable:
        # In the background: there may be others to run.
        tasks.spawn(_update(tasks, record, change))


async def _update(tasks: Tasks, record: TaskRecord, change: Change) -> None:
    await when_reachable(lambda: tasks.backend.update(record.id, change))


def _run_again(tasks: Tasks, record: TaskRecord) -> None:
    caller = record.caller.caller()
    row = requests_to_server(caller.revision)["tools/call"]
    params = decode_params(row, record.params)
    run = Run(tasks, lambda exchange: _call_again(tasks, exchange, params), caller.session)
    run.record = record
    run.exchange = TaskExchange(run, ValidatedRequest(caller, row, params), record.params, tasks.connection())
    once = OnceResults(dict(record.once))
    run.exchange.elicitor = TaskElicitor(run, run.exchange, answers=record.answers, once=once)
    tasks.resume(run)


async def _call_again(tasks: Tasks, exchange: Exchange, params: t.CallToolRequestParams) -> Any:
    """Call a tool again as its caller did, with the middleware of the server."""
    server = tasks.server
    if not server.middleware:
        return await server._perform_call(exchange, params)
    return await server.call_in_middleware(exchange, params, server._perform_call)
