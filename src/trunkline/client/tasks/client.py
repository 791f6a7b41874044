"""Tasks of a client: starts tasks, waits for them, answers their questions, and finds them again by id.

A handle needs only the id of its task, so a restarted program can continue with ``client.task(id)``. The API is the
same for both forms: in the extension the state includes the result, in the core protocol it is a separate request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.connect import FOREVER
from trunkline.client.options import CallOptions
from trunkline.client.request_handlers import UNREADABLE, ExtensionResult
from trunkline.client.session import ClientSession, sleep
from trunkline.errors import (
    LinkError,
    MissingCapability,
    RemoteProtocolError,
    RequestFailed,
    RequestTimeout,
    request_failed,
)
from trunkline.protocol.caller import EXTENSIONS
from trunkline.protocol.extensions import TASKS
from trunkline.protocol.revisions import Feature
from trunkline.protocol.tasks import FINISHED, StatusProgress, from_milliseconds, is_progress

if TYPE_CHECKING:
    from trunkline.client.client import Client
    from trunkline.client.connector import Connector
    from trunkline.client.options import ProgressCallback
    from trunkline.client.tool_cache import CallResult

__all__ = ["ClientTasks", "TaskHandle", "TaskState"]

_SHORTEST_POLL = 0.02  # Minimum poll interval, for servers that advise a shorter one.
_USUAL_POLL = 1.0  # Poll interval for a server that advises none.
# The first polls come sooner than advised; the interval doubles until it reaches the advised one. Some servers advise
# the same interval for every task (FastMCP: five seconds), but most tasks, and most answers, take less.
_FIRST_POLL = 0.1
_LONGEST_POLL = 60.0  # Maximum poll interval; a server may advise any.
_CANCEL_SECONDS = 10.0  # Timeout for the request that cancels an abandoned task.

# Decoders are made once: a call of ``msgspec.json.decode`` looks its type up.
_decode_task = msgspec.json.Decoder(t.TaskResult).decode


class _Created(Struct):
    """The result of a call that may have become a task."""

    task: t.Task | msgspec.UnsetType = msgspec.UNSET


_decode_created = msgspec.json.Decoder(_Created).decode


class TaskState(Struct, frozen=True, kw_only=True):
    """The state of a task, in either form; ``result`` and ``error`` are set only if the response included them."""

    id: str
    status: t.TaskStatus
    message: str | None = None
    #: Seconds until the next poll, as advised by the server.
    poll: float = _USUAL_POLL
    result: Raw | None = None
    error: t.ErrorObject | None = None
    questions: Mapping[str, t.InputRequest] = msgspec.field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether the task is in a final state."""
        return self.status in FINISHED


class TaskHandle:
    """A task at a server: its state and its result, and methods to wait for it and cancel it."""

    def __init__(
        self,
        tasks: Any,
        id: str,
        *,
        tool: str | None = None,
        state: TaskState | None = None,
        direct: t.CallToolResult | None = None,
    ) -> None:
        """Create the handle of a task; internal: ``Client.start_task`` and ``Client.task`` return handles."""
        self._tasks: ClientTasks = tasks
        #: The id of the task; store it to find the task again. Empty if the server answered directly.
        self.id: str = id
        self.tool: str | None = tool
        #: The last known state; None before the first poll.
        self.state: TaskState | None = state
        #: The result of a call that the server answered directly.
        self.direct = direct
        #: The keys of the answered questions.
        self._answered: set[str] = set()
        #: Maximum seconds until the next poll.
        self._pace = _FIRST_POLL
        #: Whether the last poll came sooner than the server advised.
        self._early = False
        #: The pending request for the result, if it is sent before the task is finished.
        self._fetching: asyncio.Task[Raw] | None = None
        #: Answers that were not delivered yet.
        self._unsent: dict[str, Raw] = {}

    def __repr__(self) -> str:
        """Return the id and the state."""
        return f"<TaskHandle {self.id or '(answered directly)'} {self.status}>"

    @property
    def status(self) -> t.TaskStatus:
        """The last known status."""
        if self.direct is not None:
            return "completed"
        return "working" if self.state is None else self.state.status

    @property
    def message(self) -> str | None:
        """The status message of the server."""
        return None if self.state is None else self.state.message

    @property
    def done(self) -> bool:
        """Whether the last known state is final."""
        return self.direct is not None or (self.state is not None and self.state.finished)

    async def refresh(self) -> TaskState | None:
        """Poll the task once and answer its questions; return its state, or None if the server answered directly."""
        if self.direct is None:
            self.state = await self._tasks.poll(self)
        return self.state

    async def updates(self) -> AsyncIterator[TaskState]:
        """Yield every change of the state until the task is finished."""
        seen: TaskState | None = None
        while self.direct is None:
            state = await self._tasks.poll(self)
            self.state = state
            if seen is None or (state.status, state.message) != (seen.status, seen.message):
                yield state
            if state.finished:
                return
            seen = state
            await self._tasks.pause(self, state.poll)

    async def result(
        self,
        *,
        timeout: float | None = None,
        raise_on_error: bool = True,
        on_progress: ProgressCallback | None = None,
    ) -> CallResult:
        """Wait for the result of the call; after a timeout, the task continues.

        ``on_progress`` is called with each new status: the progress, the total if there is one, and the message.

        Raises:
            ToolError: the tool reported a failure.
            RequestFailed: the task failed, was cancelled, or no longer exists.
            RequestTimeout: it did not finish within ``timeout`` seconds.
        """
        result = self.direct
        if result is None:
            try:
                async with asyncio.timeout(timeout):
                    result = await self._tasks.wait_for_result(self, self._tasks.status_reporter(on_progress))
            except TimeoutError as error:
                assert timeout is not None
                raise RequestTimeout(
                    f"the task did not finish within {timeout:g} s", clock="total", seconds=timeout
                ) from error
        return await self._tasks.read(self.tool, result, raise_on_error=raise_on_error)

    async def cancel(self) -> None:
        """Ask the server to cancel the task; a finished one is not changed."""
        if self.direct is None and not self.done:
            await self._tasks.cancel(self)


class ClientTasks:
    """The tasks of one client."""

    def __init__(self, client: Client, core: Connector) -> None:
        """Use the connection of a client."""
        self._client = client
        self._core = core

    # --- starting -----------------------------------------------------------------------------------------------------

    async def start(
        self, params: t.CallToolRequestParams, options: CallOptions, *, ttl: float | None = None
    ) -> TaskHandle:
        """Call a tool as a task and return its handle.

        Raises:
            MissingCapability: the server has no tasks.
        """
        session = await self._core.get_session()
        if Feature.CORE_TASKS in session.revision.features:
            return await self._start_core(session, params, options, ttl)
        if ("tools/call", "task") not in session.result_kinds or not session.declared(f"{EXTENSIONS}{TASKS}"):
            raise MissingCapability(
                f"The server has no tasks in {session.revision.name}; use call_tool",
                capability=f"{EXTENSIONS}{TASKS}",
            )
        result, _ = await self._client._send_call(session, params, options)
        if isinstance(result, ExtensionResult):
            return self.handle(result, params.name)
        return TaskHandle(self, "", tool=params.name, direct=result)

    async def _start_core(
        self, session: ClientSession, params: t.CallToolRequestParams, options: CallOptions, ttl: float | None
    ) -> TaskHandle:
        if not session.declared("tasks.requests.tools.call"):
            raise MissingCapability("The server has no tasks; use call_tool", capability="tasks.requests.tools.call")
        name = params.name
        members: dict[str, Any] = {"name": name}
        if params.arguments is not None:
            members["arguments"] = params.arguments
        if await self._client._allows_task(name):
            # The specification: any other tool MUST NOT be called as a task.
            members["task"] = {} if ttl is None else {"ttl": int(ttl * 1000)}
        # The status of the task is its progress.
        if options.on_progress is not None:
            options = replace(options, on_progress=None)
        raw = await self._request("tools/call", members, options)
        try:
            task = _decode_created(raw).task
            if task is msgspec.UNSET:
                # A server that ignores the ``task`` member answers directly.
                return TaskHandle(self, "", tool=name, direct=_read_result(raw))
        except UNREADABLE as error:
            raise RemoteProtocolError(f"The task cannot be read: {error}") from error
        return TaskHandle(self, task.task_id, tool=name, state=_core_state(task))

    def handle(self, result: ExtensionResult, name: str | None) -> TaskHandle:
        """Return the handle of a task that a server created.

        Raises:
            RemoteProtocolError: the result cannot be read.
        """
        state = _extension_state(result.raw)
        return TaskHandle(self, state.id, tool=name, state=state)

    def find(self, id: str, tool: str | None) -> TaskHandle:
        """Return the handle of a task by its id."""
        return TaskHandle(self, id, tool=tool)

    # --- looking ------------------------------------------------------------------------------------------------------

    async def poll(self, handle: TaskHandle) -> TaskState:
        """Poll the state of a task, and answer its questions."""
        try:
            raw = await self._request("tasks/get", {"taskId": handle.id})
        except RequestFailed as error:
            if 429 not in (error.code, error.status) or handle.state is None or not handle._early:
                raise
            # The specification: a server may reject clients that poll more often than advised.
            handle._pace = _LONGEST_POLL
            return handle.state
        session = await self._core.get_session()
        if session.revision.handshake:
            try:
                core_state = _core_state(msgspec.json.decode(raw, type=t.GetTaskResult))
            except UNREADABLE as error:
                raise RemoteProtocolError(f"The state of the task cannot be read: {error}") from error
            if core_state.status == "input_required":
                # 2025-11-25, basic/utilities/tasks, Input Required Status: a server may ask only on this request.
                self._fetch(handle)
            return core_state
        state = _extension_state(raw)
        if state.status == "input_required":
            await self._answer(handle, state, session)
        return state

    async def _answer(self, handle: TaskHandle, state: TaskState, session: ClientSession) -> None:
        """Answer the open questions of a task; answers that could not be delivered are sent again."""
        new = {key: each for key, each in state.questions.items() if key not in handle._answered}
        if new:
            # The specification: each is treated like the same request sent directly; a key is answered once.
            handle._unsent.update(await session.answer_all(new))
            handle._answered.update(new)
        unsent = {key: raw for key, raw in handle._unsent.items() if key in state.questions}
        if unsent:
            handle._pace = _FIRST_POLL
            await self._request("tasks/update", {"taskId": handle.id, "inputResponses": unsent})
            handle._unsent.clear()

    async def wait_for_result(
        self, handle: TaskHandle, on_state: Callable[[TaskState], None] | None = None
    ) -> t.CallToolResult:
        """Wait until a task is finished and return its result.

        Raises:
            RequestFailed: it failed, or was cancelled.
        """
        last: str | None = None
        while handle.state is None or not handle.state.finished:
            if handle.state is not None and await self._wait_for_change(handle, handle.state.poll):
                return await self._core_result(handle)
            state = handle.state = await self.poll(handle)
            if on_state is None or state.message is None or state.message == last:
                continue
            if is_progress(state.status, state.message):
                last = state.message
                on_state(state)
        return await self._outcome(handle, handle.state)

    async def _outcome(self, handle: TaskHandle, state: TaskState) -> t.CallToolResult:
        session = await self._core.get_session()
        if session.revision.handshake and state.status != "cancelled":
            return await self._core_result(handle)
        if state.status == "completed" and state.result is not None:
            return _read_result(state.result)
        if state.error is not None:
            data = None if state.error.data is msgspec.UNSET else state.error.data
            raise request_failed(state.error.code, state.error.message, data)
        ended = "was cancelled" if state.status == "cancelled" else f"is {state.status}, without a result"
        raise RequestFailed(f"The task {handle.id} {ended}" + (f": {state.message}" if state.message else ""))

    def _fetch(self, handle: TaskHandle) -> asyncio.Task[Raw]:
        """Return the pending request for the result, which is answered when the task finishes; there is only one."""
        fetching = handle._fetching
        lost = fetching is not None and fetching.done() and isinstance(fetching.exception(), LinkError)
        if fetching is None or lost:
            work = self._request("tasks/result", {"taskId": handle.id}, CallOptions(FOREVER))
            fetching = handle._fetching = asyncio.get_running_loop().create_task(work)
            # Retrieve the exception, in case no caller waits for the request; a caller that does gets it too.
            fetching.add_done_callback(lambda done: done.cancelled() or done.exception())
        return fetching

    async def _wait_for_change(self, handle: TaskHandle, seconds: float) -> bool:
        """Wait until the next poll is due; return True if the result arrived first."""
        fetching = handle._fetching
        if fetching is None:
            await self.pause(handle, seconds)
            return False
        pausing = asyncio.get_running_loop().create_task(self.pause(handle, seconds))
        try:
            await asyncio.wait((fetching, pausing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            pausing.cancel()
        return fetching.done() and not isinstance(fetching.exception(), LinkError)

    async def _core_result(self, handle: TaskHandle) -> t.CallToolResult:
        raw = await asyncio.shield(self._fetch(handle))
        result = _read_result(raw)
        if handle.state is None or not handle.state.finished:
            # That revision: a tool whose result is an error has failed.
            handle.state = TaskState(id=handle.id, status="failed" if result.is_error else "completed")
        return result

    async def cancel(self, handle: TaskHandle) -> None:
        """Cancel a task."""
        try:
            await self._request("tasks/cancel", {"taskId": handle.id})
        except RequestFailed:
            # It may have just finished; the core protocol answers this with an error.
            handle.state = await self.poll(handle)
            if not handle.state.finished:
                raise

    # --- for ``Client.call_tool`` -------------------------------------------------------------------------------------

    async def call(self, params: t.CallToolRequestParams, options: CallOptions) -> t.CallToolResult:
        """Call a tool as a task and wait for its result."""
        handle = await self.start(params, options)
        return handle.direct if handle.direct is not None else await self.wait(handle, options)

    async def wait(self, handle: TaskHandle, options: CallOptions) -> t.CallToolResult:
        """Wait for a task on behalf of ``call_tool``: forward progress, and cancel the task if the caller gives up."""
        seconds = options.task_timeout
        try:
            async with asyncio.timeout(seconds):
                return await self.wait_for_result(handle, _status_reporter(options.on_progress))
        except TimeoutError as error:
            await self._give_up(handle)
            assert seconds is not None
            raise RequestTimeout(f"no answer within {seconds:g} s", clock="total", seconds=seconds) from error
        except (asyncio.CancelledError, Exception) as error:
            # Such as a failed answer to a question: otherwise the task would never end.
            if not handle.done and not isinstance(error, LinkError):
                await self._give_up(handle)
            raise

    def status_reporter(self, on_progress: ProgressCallback | None) -> Callable[[TaskState], None] | None:
        """Return a function that passes the status of a task to a callback for progress."""
        return _status_reporter(self._client._progress(on_progress))

    async def _give_up(self, handle: TaskHandle) -> None:
        """Cancel an abandoned task, with a timeout."""
        with suppress(RequestFailed, LinkError, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.cancel(handle)

    async def read(self, tool: str | None, result: t.CallToolResult, *, raise_on_error: bool) -> CallResult:
        """Decode a result as ``call_tool`` does."""
        return await self._client._read_call(tool, result, raise_on_error=raise_on_error)

    async def pause(self, handle: TaskHandle, seconds: float) -> None:
        """Wait until the next poll is due, given the interval that the server advises."""
        pace, handle._pace = handle._pace, min(2 * handle._pace, _LONGEST_POLL)
        advised = min(max(seconds, _SHORTEST_POLL), _LONGEST_POLL)
        handle._early = pace < advised
        await sleep(self._core.clock, min(advised, pace))

    async def _request(self, method: str, params: dict[str, Any], options: CallOptions | None = None) -> Raw:
        if options is None:
            options = self._core.options
        # Sending an answer again does no harm: the server ignores a duplicate.
        repeat = method in ("tasks/get", "tasks/result", "tasks/update", "tasks/cancel")
        return await self._core.with_session(lambda session: session.request(method, params, options), repeat=repeat)


def _status_reporter(
    on_progress: Callable[[t.ProgressNotificationParams], None] | None,
) -> Callable[[TaskState], None] | None:
    if on_progress is None:
        return None
    shown = StatusProgress()

    def report(state: TaskState) -> None:
        if state.message is not None:
            done, total, message = shown.read(state.message)
            on_progress(t.ProgressNotificationParams(progress_token=0, progress=done, total=total, message=message))

    return report


def _read_result(raw: Raw) -> t.CallToolResult:
    try:
        return msgspec.json.decode(raw, type=t.CallToolResult)
    except UNREADABLE as error:
        raise RemoteProtocolError(f"The result of the task cannot be read: {error}") from error


def _extension_state(raw: Raw) -> TaskState:
    try:
        task = _decode_task(raw)
    except UNREADABLE as error:
        raise RemoteProtocolError(f"The task cannot be read: {error}") from error
    return TaskState(
        id=task.task_id,
        status=task.status,
        message=task.status_message,
        poll=_seconds(task.poll_interval_ms),
        result=task.result,
        error=task.error,
        questions=task.input_requests or {},
    )


def _core_state(task: t.Task) -> TaskState:
    return TaskState(
        id=task.task_id, status=task.status, message=task.status_message, poll=_seconds(task.poll_interval)
    )


def _seconds(milliseconds: int | None) -> float:
    return _USUAL_POLL if milliseconds is None else from_milliseconds(milliseconds)
