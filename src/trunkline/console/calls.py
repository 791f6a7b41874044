"""The calls of the console: tools, resources, prompts and skills, each in a task of its own, and those of chats.

A call is a record that every page sees: it runs, reports progress and its task, and ends with a result or an error.
Results are stored encoded, up to a total number of bytes; the oldest are dropped first, and their calls show that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET

import trunkline.types as t
from trunkline.console.inbox import asked_by
from trunkline.console.plain_requests import plain_request
from trunkline.console.requesters import CallObserver
from trunkline.console.routing import ApiError, error_code
from trunkline.errors import PolicyDenied, RequestFailed
from trunkline.host.requester import Requester
from trunkline.host.upstreams.catalog.items import CatalogItem
from trunkline.host.upstreams.catalog.names import item_id
from trunkline.protocol.json_schema import SchemaError, compile_schema

if TYPE_CHECKING:
    from trunkline.console.console import Console

__all__ = ["Call", "CallBy", "CallKind", "CallLog", "NoResult", "cut_result"]

log = logging.getLogger("trunkline.http")

#: ``request`` is a list or another request that is sent again unchanged (``plain_requests``).
CallKind: TypeAlias = Literal["tool", "resource", "prompt", "skill", "request"]
CallBy: TypeAlias = Literal["you", "chat", "app", "replay", "saved"]
#: The end of a call without a result.
NoResult: TypeAlias = Literal["failed", "denied", "cancelled"]
CallState: TypeAlias = Literal["running", "done", NoResult]
#: Performs a call for a requester and returns its result as a JSON value.
Perform: TypeAlias = Callable[[Requester], Any]

_MOST_CALLS = 500  # Calls that are stored: more than a day's work; older calls are in the audit trail.
_MOST_RUNNING = 100  # Running calls: more than a user starts; stops a page in a loop.
_MOST_BYTES = 64 * 1024 * 1024  # Bytes of all stored results and arguments: as much as one message may have.
_LARGE_ARGUMENTS = 16 * 1024  # Bytes of arguments that are included in a list of calls.
_LONGEST_TEXT = 256 * 1024  # Characters of one text that a page shows; the download has all.
_MOST_SHOWN = 4 * 1024 * 1024  # Characters of all texts and members of a result that a page shows.
_LARGEST_BLOB = 16 * 1024 * 1024  # Characters of an image or a sound, which cannot be cut.
_PROGRESS_SECONDS = 0.1  # Progress is published at most this often.
_MOST_LOGS = 100  # Log messages a second; more are dropped.
_NODE_COST = 8  # The size of a number or an empty member, in characters.
_CLOSE_SECONDS = 5.0  # Timeout for cancelled calls to end.


class Call(CallObserver):
    """The record of one call."""

    def __init__(self, kind: CallKind, server: str, target: str, arguments: Mapping[str, Any], by: CallBy) -> None:
        """Create a record; ``target`` is the id of the item."""
        self.id: str = os.urandom(8).hex()
        self.kind: CallKind = kind
        self.server = server
        self.target = target
        self.arguments: dict[str, Any] | None = None
        self.argument_bytes: int = 0
        self.set_arguments(arguments)
        self.by: CallBy = by
        self.state: CallState = "running"
        self.started: float = time.time()
        self.seconds: float | None = None
        self.progress: dict[str, Any] | None = None
        self.task: dict[str, Any] | None = None
        self.is_error = False
        self.error: dict[str, Any] | None = None
        #: The encoded result; None before the end, if there is none, or if it was dropped to save memory.
        self.result: bytes | None = None
        self.bytes: int | None = None
        self.validation: dict[str, Any] | None = None
        #: The difference to the last result of the same saved call.
        self.changes: dict[str, Any] | None = None
        self.on_change: Callable[[Call], None] = lambda call: None
        self.on_log: Callable[[Call, t.LoggingMessageNotificationParams], None] = lambda call, message: None

    def set_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Replace the arguments, if the user edited them before the call was sent."""
        self.arguments = dict(arguments)
        self.argument_bytes = len(msgspec.json.encode(self.arguments))

    # --- what the host reports ---------------------------------------------------------------------------------------

    def progressed(self, news: t.ProgressNotificationParams) -> None:
        """Store the progress."""
        self.progress = {"progress": news.progress, "total": news.total, "message": news.message}
        self.on_change(self)

    def logged(self, message: t.LoggingMessageNotificationParams) -> None:
        """Publish a log message."""
        self.on_log(self, message)

    def became_task(self, id: str) -> None:
        """Store the id of the task."""
        self.task = {"id": id, "status": "working", "message": None}
        self.on_change(self)

    def task_changed(self, status: str, message: str | None) -> None:
        """Store the status of the task."""
        before = self.task or {"id": None, "message": None}
        self.task = {"id": before["id"], "status": status, "message": message or before["message"]}
        self.on_change(self)

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish(self, state: CallState) -> None:
        """Set the final state."""
        self.state = state
        self.seconds = time.time() - self.started
        if self.task is not None:
            self.task["status"] = {"done": "completed", "cancelled": "cancelled"}.get(state, "failed")

    def succeed(self, result: Any) -> None:
        """Store the result."""
        self.result = msgspec.json.encode(result)
        self.bytes = len(self.result)
        self.is_error = isinstance(result, t.CallToolResult) and result.is_error is True
        self.finish("done")

    def fail(self, error: Exception) -> None:
        """Store the error."""
        code = error_code(error)[0]
        if code == "internal":
            log.error("a call of the console failed", exc_info=error)
        self.error = {"code": code, "message": str(error) or type(error).__name__}
        if isinstance(error, RequestFailed):
            self.error["rpc_code"] = error.code
            if error.data is not None:
                self.error["data"] = error.data
        self.is_error = True
        self.finish("denied" if isinstance(error, PolicyDenied) else "failed")

    @property
    def weight(self) -> int:
        """The bytes of its arguments and result."""
        return len(self.result or b"") + (0 if self.arguments is None else self.argument_bytes)

    def shed(self) -> None:
        """Drop the result, and the arguments if they are large."""
        self.result = None
        if self.argument_bytes > _LARGE_ARGUMENTS:
            self.arguments = None

    # --- views -------------------------------------------------------------------------------------------------------

    def view(self) -> dict[str, Any]:
        """Return the call without its result, for lists and events; large arguments are left out."""
        small = self.argument_bytes <= _LARGE_ARGUMENTS
        return {
            "id": self.id,
            "kind": self.kind,
            "target": self.target,
            "server": self.server,
            "arguments": self.arguments if small else None,
            "state": self.state,
            "by": self.by,
            "started": self.started,
            "seconds": self.seconds,
            "progress": self.progress,
            "task": self.task,
            "is_error": self.is_error,
            "error": self.error,
            "bytes": self.bytes,
            "validation": self.validation,
            "changes": self.changes,
        }

    def full_view(self) -> dict[str, Any]:
        """Return the call with its result; very long texts are cut."""
        found = {**self.view(), "arguments": self.arguments}
        if self.bytes is None:
            return found
        if self.result is None:
            return {**found, "truncated": {"bytes": self.bytes, "shown": 0}}
        found["result"], shown = cut_result(self.result)
        if shown is not None:
            found["truncated"] = {"bytes": self.bytes, "shown": shown}
        return found


class CallLog:
    """The calls of a console, newest last."""

    def __init__(self, console: Console) -> None:
        """Start without calls."""
        self._console = console
        self._calls: dict[str, Call] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        #: The current second, and the number of log messages published in it.
        self._log_second = 0
        self._log_count = 0

    def latest(self, count: int) -> list[Call]:
        """Return the latest calls, newest first."""
        return list(reversed(self._calls.values()))[:count]

    def get(self, id: str) -> Call:
        """Return a call.

        Raises:
            ApiError: there is none of this id.
        """
        found = self._calls.get(id)
        if found is None:
            raise ApiError(404, "not_found", "There is no such call; older calls were removed.")
        return found

    async def start(
        self,
        kind: str,
        id: str,
        arguments: Mapping[str, Any],
        *,
        by: CallBy = "you",
        requester: Callable[[CallObserver], Requester] | None = None,
        on_end: Callable[[Call], Any] | None = None,
    ) -> Call:
        """Start a call and return its record at once; without a requester, it is the user's own call.

        ``on_end`` is called with the call once it has a result, before the end is published.

        Raises:
            ApiError: there is no such item, or too many calls are running.
        """
        if len(self._tasks) >= _MOST_RUNNING:
            raise ApiError(429, "busy", f"{_MOST_RUNNING} calls are running; wait for one to end, or cancel one.")
        server, target, item, perform = await self._resolve(kind, id, arguments)
        call = Call(kind, server, target, arguments, by)  # type: ignore[arg-type]
        call.on_change, call.on_log = self._changed_soon, self._logged
        made = self._console.requesters.typed(observer=call) if requester is None else requester(call)
        self._calls[call.id] = call
        self._trim()
        self._publish(call)
        task = asyncio.get_running_loop().create_task(self._run(call, item, made, perform, on_end))
        self._tasks[call.id] = task
        task.add_done_callback(lambda done: self._tasks.pop(call.id, None))
        return call

    # --- calls that a chat makes ----------------------------------------------------------------------------------

    def begin(self, kind: CallKind, server: str, target: str, arguments: Mapping[str, Any], *, by: CallBy) -> Call:
        """Add the record of a call that another part of the console makes; it ends with ``end`` or ``abandon``."""
        call = Call(kind, server, target, arguments, by)
        call.on_change, call.on_log = self._changed_soon, self._logged
        self._calls[call.id] = call
        self._trim()
        self._publish(call)
        return call

    def progress(self, call: Call, news: dict[str, Any]) -> None:
        """Store the progress of a call from ``begin``."""
        call.progress = news
        self._changed_soon(call)

    def end(self, call: Call, item: CatalogItem, result: t.CallToolResult) -> None:
        """Store the result of a call from ``begin``."""
        call.succeed(result)
        call.validation = _validate(item, result)
        self._ended(call)

    def abandon(self, call: Call, state: NoResult, reason: str = "") -> None:
        """End a call from ``begin`` that has no result."""
        if state != "cancelled":
            call.is_error = True
            call.error = {"code": "denied" if state == "denied" else "failed", "message": reason}
        call.finish(state)
        self._ended(call)

    # --- calls of the console itself ---------------------------------------------------------------------------------

    async def wait(self, call: Call) -> Call:
        """Wait until a call ends."""
        task = self._tasks.get(call.id)
        if task is not None:
            await asyncio.wait((task,))
        return call

    def cancel(self, id: str) -> Call:
        """Cancel a call; do nothing if it has ended.

        Raises:
            ApiError: a chat makes it.
        """
        call, task = self.get(id), self._tasks.get(id)
        if task is not None:
            task.cancel()
        elif call.state == "running":
            raise ApiError(409, "not_cancellable", "A chat makes this call.", fix="Stop the answer in the chat.")
        return call

    async def aclose(self) -> None:
        """Cancel the running calls."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        for timer in self._timers.values():
            timer.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)

    # --- one call ----------------------------------------------------------------------------------------------------

    async def _resolve(
        self, kind: str, id: str, arguments: Mapping[str, Any]
    ) -> tuple[str, str, CatalogItem | None, Perform]:
        """Return the server, the id, the item if there is one, and the function that performs the call."""
        core = self._console.core
        if kind == "request":
            server, target, send = plain_request(core, id, arguments)
            return server, target, None, send
        if kind == "skill":
            skill = await core.skills.find(id, self._console.session)
            return skill.server, item_id(skill.server, skill.uri), None, lambda who: _load_skill(core, skill, who)
        if kind == "resource":
            found = core.catalog.find_resource(id)
            if found is None:
                await core.find_late(id.partition("/")[0])
                found = core.catalog.find_resource(id)
            if found is None:
                raise ApiError(404, "not_found", f"No server has a resource {id!r}.")
            server, uri, listed = found
            return server, item_id(server, uri), listed, lambda who: core.read_resource(server, uri, listed, who)
        if kind not in ("tool", "prompt"):
            raise ApiError(400, "invalid_request", f"{kind!r} cannot be called: use tool, resource, prompt or skill.")
        item = self._find(kind, id)
        if item is None:
            await core.find_late(id.partition("/")[0])
            item = self._find(kind, id)
        if item is None:
            raise ApiError(404, "not_found", f"No server has a {kind} {id!r}.")
        known = item
        if kind == "tool":
            return known.server, known.id, known, lambda who: core.call_tool(known, arguments, who)
        texts = {name: value if isinstance(value, str) else str(value) for name, value in arguments.items()}
        return known.server, known.id, known, lambda who: core.get_prompt(known, texts, who)

    def _find(self, kind: str, id: str) -> CatalogItem | None:
        catalog = self._console.core.catalog
        return catalog.find_tool(id) if kind == "tool" else catalog.find_prompt(id)

    async def _run(
        self,
        call: Call,
        item: CatalogItem | None,
        requester: Requester,
        perform: Perform,
        on_end: Callable[[Call], Any] | None,
    ) -> None:
        try:
            with asked_by(call.id):
                result = await perform(requester)
            call.succeed(result)
            call.validation = _validate(item, result)
            if on_end is not None:
                on_end(call)
        except asyncio.CancelledError:
            call.finish("cancelled")
            self._ended(call)
            raise
        except Exception as error:  # noqa: BLE001 - any failure is the outcome of the call
            call.fail(error)
        self._ended(call)

    def _ended(self, call: Call) -> None:
        timer = self._timers.pop(call.id, None)
        if timer is not None:
            timer.cancel()
        self._trim()
        self._publish(call)

    def _changed_soon(self, call: Call) -> None:
        """Publish a running call after a short delay, so that fast progress does not flood the pages."""
        if call.id not in self._timers and call.state == "running":
            loop = asyncio.get_running_loop()
            self._timers[call.id] = loop.call_later(_PROGRESS_SECONDS, self._flush, call)

    def _logged(self, call: Call, message: t.LoggingMessageNotificationParams) -> None:
        """Publish a log message, unless a server floods the pages with them."""
        second = int(time.monotonic())
        self._log_second, self._log_count = second, self._log_count + 1 if second == self._log_second else 1
        if self._log_count <= _MOST_LOGS:
            said = {"level": message.level, "logger": message.logger, "data": message.data}
            self._console.events.publish("log", server=call.server, call=call.id, **said)

    def _flush(self, call: Call) -> None:
        self._timers.pop(call.id, None)
        self._publish(call)

    def _publish(self, call: Call) -> None:
        self._console.events.publish("call", call=call.view())

    def _trim(self) -> None:
        """Drop the oldest calls and results beyond the limits; running calls are kept."""
        ended = [call for call in self._calls.values() if call.state != "running"]
        for call in ended[: max(0, len(self._calls) - _MOST_CALLS)]:
            del self._calls[call.id]
        total = sum(call.weight for call in self._calls.values())
        # The latest result is kept regardless of its size: the page is about to show it.
        for call in [call for call in self._calls.values() if call.state != "running"][:-1]:
            if total <= _MOST_BYTES:
                break
            total -= call.weight
            call.shed()
            total += call.weight


async def _load_skill(core: Any, skill: Any, requester: Requester) -> dict[str, Any]:
    """Load a skill; its other files are read when the user opens them."""
    loaded = await core.skills.load(skill, requester)
    return {
        "uri": loaded.uri,
        "frontmatter": dict(loaded.frontmatter),
        "text": loaded.text,
        "files": list(loaded.files),
        "dynamic": loaded.is_dynamic,
        "requested_tools": loaded.requested_tools,
    }


def _validate(item: CatalogItem | None, result: Any) -> dict[str, Any] | None:
    """Validate the structured output of a tool against its schema; return None if there is nothing to validate."""
    if item is None or not isinstance(item.definition, t.Tool) or not isinstance(result, t.CallToolResult):
        return None
    schema = item.definition.output_schema
    if schema is None or result.is_error:
        return None
    value = result.structured_content
    if value is UNSET or value is None:
        return {"ok": False, "problem": "The tool declares structured output, but the result has none."}
    try:
        problem = compile_schema(schema).first_violation(msgspec.to_builtins(value))
    except SchemaError as error:
        return {"ok": False, "problem": f"The output schema cannot be used: {error}"}
    return {"ok": problem is None, "problem": None if problem is None else f"{problem.path or '/'}: {problem.message}"}


# --- shortening results for pages ------------------------------------------------------------------------------------


def cut_result(result: bytes) -> tuple[Any, int | None]:
    """Return a result shortened for a page, and the number of characters shown (None if nothing is cut)."""
    value = msgspec.json.decode(result)
    cut = _Cut()
    shown = cut.of(value)
    return shown, cut.shown if cut.happened else None


class _Cut:
    """Copies a JSON value within the limits of a page."""

    def __init__(self) -> None:
        self._left = _MOST_SHOWN
        self.shown = 0
        self.happened = False

    def of(self, value: Any, name: str = "") -> Any:
        """Copy a value; ``name`` is that of the member it belongs to."""
        if isinstance(value, str):
            return self._text(value, name)
        self._take(_NODE_COST)
        if isinstance(value, dict):
            return {key: self.of(each, key) for key, each in value.items() if self._has_room(len(key))}
        if isinstance(value, list):
            return [self.of(each) for each in value if self._has_room(0)]
        return value

    def _text(self, text: str, name: str) -> str:
        if name in ("data", "blob") and len(text) > _LONGEST_TEXT:
            kept = text if len(text) <= _LARGEST_BLOB else ""
        else:
            kept = text[: min(_LONGEST_TEXT, max(self._left, 0))]
            self._left -= len(kept)
        self.shown += len(kept)
        self.happened = self.happened or len(kept) < len(text)
        return kept

    def _has_room(self, size: int) -> bool:
        if self._left <= 0:
            self.happened = True
            return False
        self._take(size)
        return True

    def _take(self, size: int) -> None:
        self._left -= size
        self.shown += size
