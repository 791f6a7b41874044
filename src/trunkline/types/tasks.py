"""Tasks of the core protocol: requests whose answer is fetched later."""

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

#: Whatever the request that became a task would have been answered with.
GetTaskPayloadResult: TypeAlias = dict[str, Any]


class TaskMetadata(Wire, frozen=True, kw_only=True):
    """The wish that a request become a task, and for how many milliseconds it be kept."""

    ttl: int | None = None


class RelatedTaskMetadata(Wire, frozen=True, kw_only=True):
    """The task a message belongs to, as it stands in ``_meta``."""

    task_id: str


class Task(Wire, frozen=True, kw_only=True):
    """The state of a task; times are ISO 8601, ``ttl`` and ``poll_interval`` milliseconds, a null ``ttl`` for ever."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None


class CreateTaskResult(Wire, frozen=True, kw_only=True):
    """The request became this task."""

    task: Task
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class GetTaskRequestParams(RequestParams, frozen=True, kw_only=True):
    """A question after the state of a task."""

    task_id: str


class GetTaskPayloadRequestParams(RequestParams, frozen=True, kw_only=True):
    """A question after the result of a task."""

    task_id: str


class CancelTaskRequestParams(RequestParams, frozen=True, kw_only=True):
    """A wish to end a task."""

    task_id: str


class GetTaskResult(Task, frozen=True, kw_only=True):
    """The state of a task."""

    meta: dict[str, Any] | None = field(name="_meta", default=None)


class CancelTaskResult(Task, frozen=True, kw_only=True):
    """The state of a task after the wish to end it."""

    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ListTasksResult(PaginatedResult, frozen=True, kw_only=True):
    """One page of the tasks."""

    tasks: list[Task]


class TaskStatusNotificationParams(NotificationParams, frozen=True, kw_only=True):
    """A task has come to another state."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None
