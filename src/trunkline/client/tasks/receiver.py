"""Runs requests of a server as tasks of the client: sampling and elicitation, where the core protocol has that.

The server requests it, gets a task at once, and fetches the result later. The tasks of a connection end with it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.errors import InvalidParams, RequestFailed, TooManyRequests
from trunkline.protocol.tasks import FINISHED, related, status_line, timestamp

__all__ = ["ReceivedTasks"]

_MOST = 100  # Tasks of one server at once; each waits for the user or a model.
_LONGEST_TTL_MS = 3_600_000  # Maximum time to live, an hour: an answer is hardly useful for longer.
_USUAL_TTL_MS = 600_000  # Default time to live, ten minutes.
_POLL_MS = 500  # Advised poll interval: a user or a model takes seconds.

Answer = Callable[[str, Any], Awaitable[Struct]]


class _ReceivedTask:
    """One request that runs as a task."""

    __slots__ = ("created", "error", "id", "job", "result", "status", "ttl_ms", "updated")

    def __init__(self, ttl_ms: int) -> None:
        self.id = secrets.token_urlsafe(24)
        self.status: t.TaskStatus = "working"
        self.created = self.updated = time.time()
        self.ttl_ms = ttl_ms
        self.job: asyncio.Task[None]
        self.result: Struct | None = None
        self.error: RequestFailed | None = None

    @property
    def finished(self) -> bool:
        return self.status in FINISHED

    def move(self, status: t.TaskStatus) -> None:
        if not self.finished:
            self.status, self.updated = status, time.time()

    def members(self) -> dict[str, Any]:
        """Return the task in wire form."""
        return {
            "task_id": self.id,
            "status": self.status,
            "created_at": timestamp(self.created),
            "last_updated_at": timestamp(self.updated),
            "ttl": self.ttl_ms,
            "poll_interval": _POLL_MS,
            # The specification: the state of a failed task SHOULD say what went wrong.
            "status_message": None if self.error is None else status_line(self.error.message),
        }


class ReceivedTasks:
    """The tasks that one server has requested on one connection."""

    def __init__(self, answer: Answer) -> None:
        """Create the tasks; the function handles a request, given its method and params."""
        self._answer = answer
        self._tasks: dict[str, _ReceivedTask] = {}

    async def serve(self, method: str, params: Any) -> Struct:
        """Handle a request that becomes a task, or a request about tasks.

        Raises:
            RequestFailed: there is no such task, or too many.
        """
        if method == "tasks/get":
            return t.GetTaskResult(**self._find(params.task_id).members())
        if method == "tasks/result":
            return await self._result(self._find(params.task_id))
        if method == "tasks/cancel":
            return self._cancel(self._find(params.task_id))
        if method == "tasks/list":
            self._forget_expired()
            return t.ListTasksResult(tasks=[t.Task(**each.members()) for each in self._tasks.values()])
        return self._create(method, params)

    def close(self) -> None:
        """Cancel all tasks, when the connection has ended."""
        for task in self._tasks.values():
            task.job.cancel()

    def _create(self, method: str, params: Any) -> t.CreateTaskResult:
        self._forget_expired()
        if len(self._tasks) >= _MOST:
            self._forget_oldest()
        wanted = params.task.ttl
        task = _ReceivedTask(_USUAL_TTL_MS if wanted is None else min(max(1, wanted), _LONGEST_TTL_MS))
        self._tasks[task.id] = task
        task.job = asyncio.get_running_loop().create_task(self._run(task, method, replace(params, task=None)))
        return t.CreateTaskResult(task=t.Task(**task.members()))

    async def _run(self, task: _ReceivedTask, method: str, params: Any) -> None:
        try:
            task.result = await self._answer(method, params)
        except RequestFailed as error:
            task.error = error
        except asyncio.CancelledError:
            task.move("cancelled")
            raise
        except Exception as error:  # noqa: BLE001 - a callback that fails is an error for the server, as in any request
            task.error = RequestFailed(f"The client failed to answer: {type(error).__name__}")
        task.move("completed" if task.error is None else "failed")

    async def _result(self, task: _ReceivedTask) -> Struct:
        if not task.finished:
            await asyncio.wait((task.job,))
        if task.error is not None:
            raise task.error
        if task.result is None or task.status == "cancelled":
            raise RequestFailed("The task was cancelled")
        meta = getattr(task.result, "meta", None) or {}
        result: Struct = replace(task.result, meta={**meta, **related(task.id)})
        return result

    def _cancel(self, task: _ReceivedTask) -> t.CancelTaskResult:
        if task.finished:
            raise InvalidParams(f"Cannot cancel task: already in terminal status {task.status!r}")
        task.move("cancelled")
        task.job.cancel()
        return t.CancelTaskResult(**task.members())

    def _find(self, id: str) -> _ReceivedTask:
        self._forget_expired()
        task = self._tasks.get(id)
        if task is None:
            raise InvalidParams("Task not found: it never existed, or has expired")
        return task

    def _forget_oldest(self) -> None:
        """Delete the task that finished first to make room; the specification allows this at any time."""
        finished = [each for each in self._tasks.values() if each.finished]
        if not finished:
            raise TooManyRequests(f"Too many tasks: this client runs {_MOST} at most", data={"allowed": _MOST})
        del self._tasks[min(finished, key=lambda each: each.updated).id]

    def _forget_expired(self) -> None:
        now = time.time()
        over = [each for each in self._tasks.values() if each.created + each.ttl_ms / 1000 <= now]
        for task in over:
            task.job.cancel()
            del self._tasks[task.id]
