"""Tasks in wire form: that of the extension and that of the core protocol."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

import trunkline.types as t
from trunkline.errors import RequestFailed, request_failed
from trunkline.extensions.tasks.record import TaskRecord, timestamp
from trunkline.protocol.downgrade import adapt_params
from trunkline.protocol.revisions import find_revision

__all__ = [
    "FIRST_POLL",
    "StatusProgress",
    "core_task",
    "encode_result",
    "error_text",
    "extension_task",
    "from_milliseconds",
    "is_progress",
    "progress_text",
    "related",
    "status_line",
    "task_notification",
    "task_outcome",
    "with_related",
]

# A number as ``_number`` writes it.
_NUMBER = r"([0-9]{1,20}(?:\.[0-9]{1,10})?(?:e[+-]?[0-9]{1,2})?)"
#: A status message with progress: ``3/10``, ``2.5/1e+30: step 3``.
_PROGRESS = re.compile(rf"{_NUMBER}/{_NUMBER}(?:: (.*))?", re.DOTALL)
_encode = msgspec.json.Encoder().encode
FIRST_POLL = 0.1  # First poll interval: many tasks take less than a second.
_LARGEST_INTEGER = 2**53  # The largest that every JSON parser reads exactly; as milliseconds 285,000 years.
_MAX_MESSAGE = 500  # Characters of a status message, which is one line; a handler may log whole documents.


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
        input_requests=None
        if created or not record.questions
        else {key: each.request for key, each in record.questions.items()},
    )


def task_notification(
    record: TaskRecord, now: float, meta: dict[str, Any], sent: dict[str, object]
) -> tuple[str, t.NotificationParams] | None:
    """Return the notification with the state of a task, in the form of the extension; None if it was sent already.

    Of two changes in quick succession the first notice may read the state after the second. ``sent`` has what the
    stream was told of each task.
    """
    told = (record.updated, record.status, record.message, tuple(record.questions))
    if sent.get(record.id) == told:
        return None
    sent[record.id] = told
    state = extension_task(record, now)
    members = {name: getattr(state, name) for name in t.TaskNotificationParams.__struct_fields__ if name != "meta"}
    return "notifications/tasks", t.TaskNotificationParams(**members, meta=meta)


def core_task(record: TaskRecord, now: float) -> dict[str, Any]:
    """Return a task in the form of the core protocol."""
    failed = record.status == "completed" and record.is_error
    return {
        "task_id": record.id,
        # That revision: a tool whose result is an error has failed.
        "status": "failed" if failed else record.status,
        "created_at": timestamp(record.created),
        "last_updated_at": timestamp(record.updated),
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


def related(id: str) -> dict[str, Any]:
    """Return the ``_meta`` that relates a message to a task."""
    return {t.META_RELATED_TASK: {"taskId": id}}


def with_related(params: Any, id: str) -> Any:
    """Return the params of a notification with the ``_meta`` of a task."""
    plain = {} if params is None else msgspec.to_builtins(params)
    return {**plain, "_meta": {**(plain.get("_meta") or {}), **related(id)}}


def progress_text(method: str, params: Any) -> str | None:
    """Return the status message for a progress notification or log message; None for other notifications."""
    if isinstance(params, t.ProgressNotificationParams):
        total = "" if params.total is None else f"/{_number(params.total)}"
        line = f"{_number(params.progress)}{total}" + (f": {params.message}" if params.message else "")
    elif isinstance(params, t.LoggingMessageNotificationParams):
        data = params.data
        text = data.get("message") if isinstance(data, dict) else data
        line = text if isinstance(text, str) else msgspec.json.encode(data).decode()
    else:
        return None
    return _shortened(line)


def is_progress(status: t.TaskStatus, message: str) -> bool:
    """Return True if a status message of a task tells of its progress.

    The message of a task that has ended is about the end, such as the text of an error. A completed task may still have
    the last progress that it reported.
    """
    if status == "completed":
        return _PROGRESS.fullmatch(message) is not None
    return status in ("working", "input_required")


class StatusProgress:
    """The progress that the status messages of a task tell of.

    A task of the extension has no progress notifications, only a status message. `progress_text` is how a server of
    ours writes progress into it; any other message is shown as it is.
    """

    def __init__(self) -> None:
        """Start before the first message."""
        self._progress = 0.0
        self._total: float | None = None

    def read(self, message: str) -> tuple[float, float | None, str | None]:
        """Return the progress, the total if there is one, and the rest of the next message."""
        found = _PROGRESS.fullmatch(message)
        if found is not None:
            self._progress, self._total = float(found[1]), float(found[2])
            return self._progress, self._total, found[3]
        if self._total is None:
            # Without numbers each message is one step.
            self._progress += 1
        return self._progress, self._total, message


def _number(number: float) -> str:
    """Return a number as text; an integer has all of its digits."""
    whole = -_LARGEST_INTEGER < number < _LARGEST_INTEGER and number == int(number)
    return str(int(number)) if whole else f"{number:g}"


def error_text(result: t.CallToolResult) -> str | None:
    """Return the text of a failed result as a status message."""
    text = next((each.text for each in result.content if isinstance(each, t.TextContent)), None)
    return None if text is None else _shortened(text)


def _shortened(line: str) -> str:
    return status_line(line)


def status_line(text: str) -> str:
    """Return a text as a status message, cut if it is too long."""
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"


def from_milliseconds(given: int) -> float:
    """Return a number of milliseconds from the other side in seconds; a peer may send more than a float can hold."""
    return max(-_LARGEST_INTEGER, min(given, _LARGEST_INTEGER)) / 1000


def _poll_ms(record: TaskRecord, now: float) -> int:
    """Return the advised poll interval: that of the tool, or one that grows with the age of the task."""
    seconds = min(record.poll, max(FIRST_POLL, (now - record.created) / 4)) if record.poll_grows else record.poll
    return max(1, int(seconds * 1000))


def _ttl_ms(record: TaskRecord, now: float) -> int | None:
    """Return how long after its creation the task is kept at least.

    It is kept for ``ttl`` after its end, which is not known while it runs. The declared time is ``ttl`` from the
    creation, and grows by half of it whenever only half is left; so it seldom changes, and the task does not seem to
    expire while it runs.
    """
    if record.ttl is None:
        return None
    age = (record.updated if record.finished else max(now, record.created)) - record.created
    half = record.ttl / 2
    return max(1, int((record.ttl + (age // half) * half if half else 0.0) * 1000))


def encode_result(result: t.CallToolResult, revision: str) -> Raw:
    """Encode a result in the form of its caller's revision."""
    found = find_revision(revision)
    if found is None:
        return Raw(_encode(result))
    if found.result_type:
        # Every result of that revision has it; the official TypeScript package of the extension reads no other.
        result = replace(result, result_type="complete")
    return Raw(_encode(adapt_params(result, found)))
