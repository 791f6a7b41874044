"""FastMCP's tasks extension: calls of tools that go on in the background, kept in this process.

A tool with ``task=`` becomes a task when the client declares the extension in the request: the answer is a stub, and
the client asks for the rest with ``tasks/get``. A tool that returns ``InputRequiredResult`` waits for
``tasks/update``. Only the caller that started a task can see it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trunkline.compat.auth.current import authenticated_principal
from trunkline.compat.context import CURRENT_REQUEST
from trunkline.compat.exceptions import McpError
from trunkline.compat.features.server_extensions import (
    ExtensionMethod,
    ServerExtension,
    read_client_extension_settings,
)
from trunkline.compat.input_required import is_input_required, with_input
from trunkline.compat.providers.base import supports_tasks
from trunkline.compat.task_config import TASKS_EXTENSION_ID
from trunkline.compat.types import to_plain

__all__ = [
    "CancelTaskResult",
    "CreateTaskResult",
    "GetTaskParams",
    "GetTaskResult",
    "TaskContext",
    "TasksExtension",
    "UpdateTaskParams",
    "UpdateTaskResult",
    "get_task_context",
    "is_client_call",
    "recall_snapshot",
    "serving_client_tool_call",
    "tasks_cancel",
    "tasks_get",
    "tasks_update",
]

#: The protocol's code for a capability that the client did not declare.
_MISSING_CAPABILITY = -32021
#: How long clients are told that a task can be asked for: as FastMCP's.
_KEPT_SECONDS = 15 * 60
#: A background call holds its arguments and result; more at once than this is a client that asks for nothing else.
_MOST_TASKS = 10_000
#: Whether a call of a tool is that of a client, though it was made in code.
_CLIENT_CALL: ContextVar[bool] = ContextVar("trunkline.compat.client_call", default=False)


@contextmanager
def serving_client_tool_call() -> Any:
    """Treat calls of tools from code as those of a client."""
    token = _CLIENT_CALL.set(True)
    try:
        yield
    finally:
        _CLIENT_CALL.reset(token)


def is_client_call() -> bool:
    """Return whether calls of tools from code are treated as those of a client."""
    return _CLIENT_CALL.get()


class _Wire(BaseModel):
    model_config = ConfigDict(populate_by_name=True)


class _TaskFields(_Wire):
    task_id: str = Field(alias="taskId")
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    created_at: str = Field(alias="createdAt")
    last_updated_at: str = Field(alias="lastUpdatedAt")
    ttl_ms: int | None = Field(alias="ttlMs")
    status_message: str | None = Field(default=None, alias="statusMessage")
    poll_interval_ms: int | None = Field(default=None, alias="pollIntervalMs")


class CreateTaskResult(_TaskFields):
    """The answer to a call that became a task."""

    result_type: Literal["task"] = Field(default="task", alias="resultType")


class GetTaskResult(_TaskFields):
    """A task, with its result, its error or its questions."""

    result_type: Literal["complete"] = Field(default="complete", alias="resultType")
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = Field(default=None, alias="inputRequests")


class UpdateTaskResult(_Wire):
    """The answer to ``tasks/update``."""

    result_type: Literal["complete"] = Field(default="complete", alias="resultType")


class CancelTaskResult(UpdateTaskResult):
    """The answer to ``tasks/cancel``."""


class GetTaskParams(_Wire):
    """The params of ``tasks/get`` and ``tasks/cancel``."""

    task_id: str = Field(alias="taskId")


class UpdateTaskParams(GetTaskParams):
    """The params of ``tasks/update``."""

    input_responses: dict[str, Any] = Field(alias="inputResponses")


def _now() -> str:
    return datetime.now(UTC).isoformat()


class _Running:
    """One task: what it was called with, and how far it is."""

    def __init__(self, call: Any, owner: str | None, interval: float) -> None:
        self.call = call
        self.owner = owner
        self.poll_ms = int(interval * 1000)
        self.id = secrets.token_urlsafe(24)
        self.created = self.updated = _now()
        self.expires_at = time.monotonic() + _KEPT_SECONDS
        self.status = "working"
        self.result: dict[str, Any] | None = None
        self.error: dict[str, Any] | None = None
        self.questions: Any = None
        self.answers: dict[str, Any] = {}
        self.work: asyncio.Task[None] | None = None
        request = CURRENT_REQUEST.get()
        #: The headers of the request that started the task: it goes on after that has been answered.
        self.http_headers: dict[str, str] | None = None if request is None else dict(request.headers)

    def move(self, status: str) -> None:
        """Change the status."""
        self.status, self.updated = status, _now()

    def fields(self) -> dict[str, Any]:
        """Return what every answer says about the task."""
        return {
            "task_id": self.id,
            "status": self.status,
            "created_at": self.created,
            "last_updated_at": self.updated,
            "ttl_ms": _KEPT_SECONDS * 1000,
            "poll_interval_ms": self.poll_ms,
        }

    async def run(self, given: tuple[Any, Any]) -> None:
        """Run the call, from the beginning or with answers."""
        _TASK.set(self)
        try:
            with with_input(*given):
                result = await self.call()
            questions = getattr(result, "input_required", result)
            if is_input_required(questions):
                self.questions, self.answers = questions, {}
                self.move("input_required")
                return
            self.result = to_plain(result.to_struct()) if hasattr(result, "to_struct") else to_plain(result)
            self.move("completed")
        except asyncio.CancelledError:
            self.move("cancelled")
        except McpError as error:
            self.error = {"code": error.error.code, "message": str(error)}
            self.move("failed")
        except Exception as error:  # noqa: BLE001 - a tool that fails is a result, in the background as well
            self.result = {"content": [{"type": "text", "text": str(error)}], "isError": True}
            self.move("completed")

    def start(self, given: tuple[Any, Any]) -> None:
        """Go on in the background."""
        self.move("working")
        self.work = asyncio.get_running_loop().create_task(self.run(given))


#: The task that is running.
_TASK: ContextVar[_Running | None] = ContextVar("trunkline.compat.task", default=None)


@dataclass(frozen=True)
class TaskContext:
    """The task that code runs in."""

    task_id: str


def get_task_context() -> TaskContext | None:
    """Return the task that the running code belongs to, or None."""
    task = _TASK.get()
    return None if task is None else TaskContext(task.id)


def recall_snapshot(task_id: str) -> Any:
    """Return what is known of the request that started the running task (``http_headers``); None for another task."""
    task = _TASK.get()
    return task if task is not None and task.id == task_id else None


class TasksExtension(ServerExtension):
    """Runs calls of tools in the background."""

    identifier = TASKS_EXTENSION_ID

    def __init__(self, **_: Any) -> None:
        """Start without tasks; options about queues and workers have no use here: tasks run in this process."""
        self._tasks: dict[str, _Running] = {}

    def methods(self) -> Sequence[ExtensionMethod]:
        """Return the methods of tasks."""

        async def get(ctx: Any, params: GetTaskParams) -> Any:
            self._check(ctx)
            return await tasks_get(self.server, params.task_id)

        async def update(ctx: Any, params: UpdateTaskParams) -> Any:
            self._check(ctx)
            return await tasks_update(self.server, params.task_id, params.input_responses)

        async def cancel(ctx: Any, params: GetTaskParams) -> Any:
            self._check(ctx)
            return await tasks_cancel(self.server, params.task_id)

        return [
            ExtensionMethod("tasks/get", GetTaskParams, get),
            ExtensionMethod("tasks/update", UpdateTaskParams, update),
            ExtensionMethod("tasks/cancel", GetTaskParams, cancel),
        ]

    def _check(self, ctx: Any) -> None:
        if self.client_settings(ctx) is None:
            raise _missing()

    async def intercept_tool_call(self, params: Any, context: Any, call_next: Any) -> Any:
        """Run a call in the background if the tool allows it and the client asked for it."""
        from trunkline.compat.request_context import fastmcp_request_ctx

        tool = await context.fastmcp.get_tool(params.name)
        given = fastmcp_request_ctx.get()
        if tool is None or not supports_tasks(tool) or given is None or _TASK.get() is not None:
            return await call_next()
        if not is_client_call() and context._exchange is None:
            return await call_next()
        if read_client_extension_settings(given._srctx or given, self.identifier) is None:
            if tool.task_config.mode == "required":
                raise _missing()
            return await call_next()
        interval = tool.task_config.poll_interval.total_seconds()
        task = _Running(call_next, authenticated_principal(), interval)
        self._forget_expired()
        if len(self._tasks) >= _MOST_TASKS:
            raise McpError(code=-32603, message=f"Too many tasks: {_MOST_TASKS} are kept; try again later")
        self._tasks[task.id] = task
        task.start((None, None))
        return CreateTaskResult(**task.fields())

    def _forget_expired(self) -> None:
        """Forget the tasks whose time is over, oldest first; what still runs is cancelled."""
        now = time.monotonic()
        while self._tasks and (oldest := next(iter(self._tasks.values()))).expires_at <= now:
            del self._tasks[oldest.id]
            if oldest.work is not None:
                oldest.work.cancel()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Stop what still runs when the server stops."""
        try:
            yield
        finally:
            running = [each.work for each in self._tasks.values() if each.work is not None]
            for work in running:
                work.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self._tasks.clear()

    def find(self, task_id: str) -> _Running:
        """Return a task of the caller.

        Raises:
            McpError: there is none; one of another caller looks the same.
        """
        task = self._tasks.get(task_id)
        if task is None or task.owner != authenticated_principal():
            raise McpError(code=-32602, message=f"Task {task_id} not found")
        return task


def _missing() -> McpError:
    return McpError(
        code=_MISSING_CAPABILITY,
        message=f"Missing required client capability: the extension {TASKS_EXTENSION_ID}",
        data={"requiredCapabilities": {"extensions": {TASKS_EXTENSION_ID: {}}}},
    )


def _find(server: Any, task_id: str) -> _Running:
    extension = server._extensions.get(TASKS_EXTENSION_ID)
    if not isinstance(extension, TasksExtension):
        raise McpError(code=-32602, message=f"Task {task_id} not found")
    return extension.find(task_id)


async def tasks_get(server: Any, task_id: str) -> GetTaskResult:
    """Answer ``tasks/get``."""
    task = _find(server, task_id)
    questions = None
    if task.status == "input_required":
        questions = {name: to_plain(each) for name, each in (task.questions.input_requests or {}).items()}
    return GetTaskResult(**task.fields(), result=task.result, error=task.error, inputRequests=questions)


async def tasks_update(server: Any, task_id: str, input_responses: dict[str, Any]) -> UpdateTaskResult:
    """Answer ``tasks/update``: with all its answers the task goes on; unknown ones are ignored."""
    task = _find(server, task_id)
    if task.status == "input_required":
        wanted = set(task.questions.input_requests or ())
        task.answers |= {name: value for name, value in input_responses.items() if name in wanted}
        if wanted <= set(task.answers):
            task.start((task.answers, task.questions.request_state))
    return UpdateTaskResult()


async def tasks_cancel(server: Any, task_id: str) -> CancelTaskResult:
    """Answer ``tasks/cancel``."""
    task = _find(server, task_id)
    if task.status in ("working", "input_required"):
        if task.work is not None:
            task.work.cancel()
        task.move("cancelled")
    return CancelTaskResult()
