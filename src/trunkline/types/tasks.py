"""Tasks: requests whose result is fetched later.

There are two forms. One revision has tasks in its core (``Task`` and what is built on it); stateless revisions have
them as the extension ``io.modelcontextprotocol/tasks`` (``TaskResult``, ``TaskNotificationParams``).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType, field

from trunkline.types.base import (
    ErrorObject,
    InputRequests,
    InputResponses,
    NotificationParams,
    OptionalRaw,
    PaginatedResult,
    RequestParams,
    Result,
    Wire,
)

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
    "TaskNotificationParams",
    "TaskResult",
    "TaskStatus",
    "TaskStatusNotificationParams",
    "UpdateTaskRequestParams",
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
    #: Required, but may be null; the official Python SDK 1.x omits it then.
    ttl: int | UnsetType | None = UNSET
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


# --- the extension ----------------------------------------------------------------------------------------------------


class TaskResult(Result, frozen=True, kw_only=True):
    """A task of the extension: the result of a call that became one (``result_type`` task), and of ``tasks/get``.

    ``ttl_ms`` is null if there is no limit. A completed task has its result, a failed one its error, and one in
    ``input_required`` the requests.
    """

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None
    status_message: str | None = None
    result: OptionalRaw = None
    error: ErrorObject | None = None
    input_requests: InputRequests | None = None


class TaskNotificationParams(NotificationParams, frozen=True, kw_only=True):
    """The params of ``notifications/tasks``: the whole state of a task of the extension."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None
    status_message: str | None = None
    result: OptionalRaw = None
    error: ErrorObject | None = None
    input_requests: InputRequests | None = None


class UpdateTaskRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``tasks/update``: answers to requests of the task, by their keys."""

    task_id: str
    input_responses: InputResponses
