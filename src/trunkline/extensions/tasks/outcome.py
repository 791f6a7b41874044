"""Converts what a handler returned or raised into the final state of its task."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
from msgspec import Raw

import trunkline.types as t
from trunkline.errors import MissingCapability, RequestFailed
from trunkline.extensions.tasks.backend import Change
from trunkline.extensions.tasks.record import TaskRecord, finish
from trunkline.extensions.tasks.wire import encode_result, error_text
from trunkline.protocol.caller import required_capabilities
from trunkline.server.dispatch import error_for_caller
from trunkline.service import public_message

__all__ = ["ending"]

log = logging.getLogger("trunkline")


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
