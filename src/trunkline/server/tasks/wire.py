"""Tasks in wire form: that of the extension and that of the core protocol."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

import trunkline.types as t
from trunkline.errors import RequestFailed, request_failed
from trunkline.protocol.downgrade import adapt_result
from trunkline.protocol.revisions import find_revision
from trunkline.protocol.tasks import related, status_line, timestamp
from trunkline.server.tasks.record import TaskRecord

__all__ = [
    "FIRST_POLL",
    "core_task",
    "encode_result",
    "error_text",
    "extension_task",
    "task_notification",
    "task_outcome",
    "with_related",
]

_encode = msgspec.json.Encoder().encode
FIRST_POLL = 0.1  # First poll interval: many tasks take less than a second.


def extension_task(record: TaskRecord, now: float, *, created: bool = False) -> t.TaskResult:
    """Return a task in the form of the extension; ``created`` omits result, error and questions."""
    return t.TaskResult(
        result_type="task" if created else None,
        task_id=record.id,
        status=record.status,
        created_at=timestamp(record.created),
        last_updated_at=timestamp(record.updated),
        ttl_ms=_ttl_ms(record, now),
        poll_interval_ms=_poll_ms(record, now),
        status_message=record.message,
        result=None if created or record.status != "completed" else record.result,
        error=None if created or record.status != "failed" else record.error,
        input_requests=None if created or not record.requests else record.requests,
    )


def task_notification(
    record: TaskRecord, now: float, meta: dict[str, Any], sent: dict[str, object]
) -> tuple[str, t.NotificationParams] | None:
    """Return the notification with the state of a task, in the form of the extension; None if it was sent already.

    Of two changes in quick succession the first notice may read the state after the second. ``sent`` has what the
    stream was told of each task.
    """
    told = (record.updated, record.status, record.message, tuple(record.requests))
    if sent.get(record.id) == told:
        return None
    sent[record.id] = told
    state = extension_task(record, now)
    members = {name: getattr(state, name) for name in t.TaskNotificationParams.__struct_fields__ if name != "meta"}
    return "notifications/tasks", t.TaskNotificationParams(**members, meta=meta)


def core_task(record: TaskRecord, now: float) -> dict[str, Any]:
    """Return a task in the form of the core protocol."""
    failed = record.status == "completed" and record.is_error
    created = timestamp(record.created)
    return {
        "task_id": record.id,
        # That revision: a tool whose result is an error has failed.
        "status": "failed" if failed else record.status,
        "created_at": created,
        "last_updated_at": created if record.updated == record.created else timestamp(record.updated),
        "ttl": _ttl_ms(record, now),
        "poll_interval": _poll_ms(record, now),
        "status_message": record.message,
    }


def task_outcome(record: TaskRecord) -> t.CallToolResult:
    """Return the result of a finished task.

    Raises:
        RequestFailed: it failed, or was cancelled.
    """
    if record.result is not None:
        return msgspec.json.decode(record.result, type=t.CallToolResult)
    if record.error is not None:
        error = record.error
        raise request_failed(error.code, error.message, None if error.data is msgspec.UNSET else error.data)
    raise RequestFailed(f"The task was cancelled{f': {record.message}' if record.message else ''}")


def with_related(params: Any, id: str) -> Any:
    """Return the params of a notification with the ``_meta`` of a task."""
    plain = {} if params is None else msgspec.to_builtins(params)
    return {**plain, "_meta": {**(plain.get("_meta") or {}), **related(id)}}


def error_text(result: t.CallToolResult) -> str | None:
    """Return the text of a failed result as a status message."""
    text = next((each.text for each in result.content if isinstance(each, t.TextContent)), None)
    return None if text is None else status_line(text)


def _poll_ms(record: TaskRecord, now: float) -> int:
    """Return the advised poll interval: that of the tool, or one that grows with the age of the task."""
    seconds = record.poll
    if record.poll_grows:
        growing = (now - record.created) / 4
        if growing < FIRST_POLL:
            growing = FIRST_POLL
        if growing < seconds:
            seconds = growing
    milliseconds = int(seconds * 1000)
    return milliseconds if milliseconds > 0 else 1


def _ttl_ms(record: TaskRecord, now: float) -> int | None:
    """Return how long after its creation the task is kept at least.

    It is kept for ``ttl`` after its end, which is not known while it runs. The declared time is ``ttl`` from the
    creation, and grows by half of it whenever only half is left; so it seldom changes, and the task does not seem to
    expire while it runs.
    """
    if record.ttl is None:
        return None
    age = (record.updated if record.finished else now) - record.created
    half = record.ttl / 2
    extension = (age // half) * half if age >= half > 0 else 0.0
    milliseconds = int((record.ttl + extension) * 1000)
    return milliseconds if milliseconds > 0 else 1


def encode_result(result: t.CallToolResult, revision: str) -> Raw:
    """Encode a result in the form of its caller's revision."""
    found = find_revision(revision)
    if found is None:
        return Raw(_encode(result))
    # With its kind, in a revision that has kinds: the official TypeScript package of the extension reads no other.
    return Raw(_encode(adapt_result(result, found)))
