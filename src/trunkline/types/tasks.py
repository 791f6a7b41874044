"""Tasks of the core protocol: requests whose result is fetched later."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import field

from trunkline.types.base import NotificationParams, PaginatedResult, RequestParams, Wire

__all__ = [
    "CancelTaskRequestParams",
    "CancelTaskResult",
    "CreateTaskResult",
    "GetTaskPayloadRequestParams",
    "GetTaskPayloadResult",
    "GetTaskRequestParams",
    "GetTaskResult",
    "ListTasksResult",
    "RelatedTaskMetadata",
    "Task",
    "TaskMetadata",
    "TaskStatus",
    "TaskStatusNotificationParams",
]

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]

#: The result that the request would have had without becoming a task.
GetTaskPayloadResult: TypeAlias = dict[str, Any]


class TaskMetadata(Wire, frozen=True, kw_only=True):
    """Requests that a call become a task, kept for this many milliseconds."""

    ttl: int | None = None


class RelatedTaskMetadata(Wire, frozen=True, kw_only=True):
    """The task that a message belongs to, as it stands in ``_meta``."""

    task_id: str


class Task(Wire, frozen=True, kw_only=True):
    """The state of a task; times are ISO 8601, ``ttl`` and ``poll_interval`` milliseconds, a null ``ttl`` unlimited."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None


class CreateTaskResult(Wire, frozen=True, kw_only=True):
    """The task that the request became."""

    task: Task
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class GetTaskRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``tasks/get``."""

    task_id: str


class GetTaskPayloadRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``tasks/result``."""

    task_id: str


class CancelTaskRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``tasks/cancel``."""

    task_id: str


class GetTaskResult(Task, frozen=True, kw_only=True):
    """The state of a task."""

    meta: dict[str, Any] | None = field(name="_meta", default=None)


class CancelTaskResult(Task, frozen=True, kw_only=True):
    """The state of a task after the request to cancel it."""

    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ListTasksResult(PaginatedResult, frozen=True, kw_only=True):
    """One page of the tasks."""

    tasks: list[Task]


class TaskStatusNotificationParams(NotificationParams, frozen=True, kw_only=True):
    """A task has changed its state."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None
