"""Jobs to poll, for clients without tasks and with short timeouts: an id in the result, and two tools.

A call that takes too long is answered with the id of a job. The model passes the id to ``job_status`` or
``job_result`` like any argument. Only clients without tasks are offered these tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec.structs import replace

import trunkline.types as t
from trunkline.errors import InvalidParams, RequestFailed, ToolError
from trunkline.protocol.extensions import TASKS, declared_extension
from trunkline.protocol.revisions import Feature
from trunkline.server.context import Context
from trunkline.server.tasks.methods import find_task, follow, tasks_of
from trunkline.server.tasks.wire import task_outcome
from trunkline.server.tools import ToolDefinition, ToolOptions

if TYPE_CHECKING:
    from trunkline.protocol.caller import Caller
    from trunkline.server.server import Server
    from trunkline.server.tasks.record import TaskRecord
    from trunkline.server.tasks.service import Tasks

__all__ = ["JOB_TOOLS", "JobTool", "PolledListing", "has_tasks", "job_answer", "make_job_tools"]

JOB_STATUS = "job_status"
JOB_RESULT = "job_result"
JOB_TOOLS = frozenset({JOB_STATUS, JOB_RESULT})
_LONGEST_WAIT = 20.0  # Seconds that ``job_result`` waits: shorter than the shortest timeouts of known clients.


def has_tasks(caller: Caller) -> bool:
    """Return True if a caller supports tasks."""
    if Feature.CORE_TASKS in caller.revision.features:
        # The revision has tasks, but only a request shows whether this client uses them.
        return False
    return not caller.revision.handshake and declared_extension(caller.capabilities, TASKS) is not None


def job_answer(record: TaskRecord) -> t.CallToolResult:
    """Return the result of a call that continues as a job."""
    text = (
        f"This is still running as the job {record.id}. Its result is not here yet: call {JOB_RESULT} with "
        f'{{"job": "{record.id}"}} to wait for it, or {JOB_STATUS} to see how far it is.'
    )
    return t.CallToolResult(
        content=[t.TextContent(text=text)], structured_content={"job": record.id, "status": record.status}
    )


class JobTool(ToolDefinition):
    """One of the two tools; they belong to the server that clients connect to, not to a mounted one."""

    __slots__ = ()

    mountable: ClassVar[bool] = False


class PolledListing:
    """Lists tools for clients with and without tasks; the job tools are for those without.

    A slow call of a client without tasks may return a job, which does not match the tool's output schema.
    """

    def kind(self, caller: Caller | None) -> bool:
        """Return True if a caller supports tasks."""
        return caller is not None and has_tasks(caller)

    def is_visible(self, kind: bool, definition: Any) -> bool:
        """Return False for the job tools if the caller supports tasks."""
        return not (kind and isinstance(definition, JobTool))

    def listed(self, kind: bool, definition: Any) -> Any:
        """Return a definition, without its output schema if a call may return a job."""
        listed = definition.listed()
        return listed if kind or getattr(definition, "task", None) is None else replace(listed, output_schema=None)


def make_job_tools(server: Server) -> tuple[JobTool, JobTool]:
    """Return the two tools."""

    async def status(job: Annotated[str, "The id of the job, from the result that named it."], ctx: Context) -> Any:
        """Return how far a job is."""
        tasks = tasks_of(ctx.exchange)
        record = tasks.latest(await _find(tasks, ctx, job))
        return {"job": record.id, "status": record.status, "message": record.message}

    async def result(
        job: Annotated[str, "The id of the job, from the result that named it."],
        ctx: Context,
        wait: Annotated[float, "Seconds to wait for the job to finish, at most 20."] = _LONGEST_WAIT,
    ) -> Any:
        """Return the result of a job; one that is still running is waited for."""
        tasks = tasks_of(ctx.exchange)
        record = await _find(tasks, ctx, job)
        seconds = min(max(0.0, wait), _LONGEST_WAIT)
        record = await follow(tasks, ctx.exchange, record, seconds=seconds)
        if not record.finished:
            return job_answer(record)
        try:
            return task_outcome(record)
        except RequestFailed as error:
            raise ToolError(error.message) from error

    hints = t.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    return (
        JobTool(status, ToolOptions(name=JOB_STATUS, annotations=hints, output_schema=None), owner=server),
        JobTool(result, ToolOptions(name=JOB_RESULT, annotations=hints, output_schema=None), owner=server),
    )


async def _find(tasks: Tasks, ctx: Context, id: str) -> TaskRecord:
    try:
        return await find_task(tasks, ctx.exchange, id)
    except InvalidParams as error:
        raise ToolError(f"There is no job {msgspec.json.encode(id).decode()}: it may have expired.") from error
