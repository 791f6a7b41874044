"""Which call becomes a task, in every revision, and what becomes of it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.server.talk import accept, again, reach
from tests.server.tasks.talk import (
    ALL,
    CORE,
    DECLARES_NOTHING,
    EXTENSION,
    FORMS,
    OLDER,
    PLAIN,
    Gate,
    at_workshop,
    opened,
    serving,
    workshop,
)
from trunkline import Context, Server
from trunkline.errors import ConfigError, InvalidParams, RequestFailed, ToolError
from trunkline.extensions import TaskLimits, TaskOptions, TaskSettings
from trunkline.server import BlockingContext
from trunkline.server.tasks.records import TaskRecords
from trunkline.store.interface import Commit, Enqueue, Put, Step
from trunkline.store.memory import MemoryContents, MemoryEngine

# --- what is declared -------------------------------------------------------------------------------------------------


@PLAIN
async def test_tasks_are_declared_in_the_form_of_the_revision(revision: str) -> None:
    server, _ = workshop()
    async with reach(server, revision) as peer:
        declared = (await peer.met())["capabilities"]
    core: Any = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    assert declared.get("tasks") == (core if revision == CORE else None)
    extensions: Any = {"io.modelcontextprotocol/tasks": {}}
    assert declared.get("extensions", {}) == (extensions if revision == EXTENSION else {})


@PLAIN
async def test_a_server_without_task_tools_declares_none(revision: str) -> None:
    server, _ = workshop(task=False)
    async with reach(server, revision) as peer:
        declared = (await peer.met())["capabilities"]
    assert not {"tasks", "extensions"} & declared.keys()


@pytest.mark.parametrize(
    ("task", "support"),
    [(True, "optional"), ("optional", "optional"), ("required", "required"), (TaskOptions(required=True), "required")],
    ids=["true", "optional", "required", "options"],
)
async def test_a_tool_says_in_the_core_form_whether_it_is_called_as_a_task(task: Any, support: str) -> None:
    server, _ = workshop(task=task)
    async with reach(server, CORE) as peer:
        (tool,) = (await peer.result("tools/list"))["tools"]
    assert tool["execution"] == {"taskSupport": support}


@pytest.mark.parametrize("revision", [*OLDER, EXTENSION])
async def test_a_tool_says_nothing_of_tasks_in_other_revisions(revision: str) -> None:
    server, _ = workshop(task="required")
    async with reach(server, revision) as peer:
        (tool,) = (await peer.result("tools/list"))["tools"]
    assert "execution" not in tool


@pytest.mark.parametrize("task", ["always", 1.5, 0], ids=str)
def test_a_wrong_declaration_is_refused(task: Any) -> None:
    with pytest.raises(TypeError, match="task= must be True"):
        workshop(task=task)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match='use "hold" or "poll"'):
        workshop(tasks=TaskSettings(slow_calls="wait"))  # type: ignore[arg-type]


# --- which call becomes one -------------------------------------------------------------------------------------------


async def test_a_task_of_the_extension_is_flat_and_marked() -> None:
    async with at_workshop(EXTENSION, task=TaskOptions(ttl=60.0, poll=5.0)) as (peer, _):
        task = await peer.create("work")
    assert task["resultType"] == "task"
    expected = {"resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "_meta"}
    assert task.keys() == expected
    assert task["ttlMs"] == 60_000
    assert isinstance(task["pollIntervalMs"], int)


async def test_a_task_of_the_core_is_a_member_of_the_result() -> None:
    async with at_workshop(CORE, task=TaskOptions(ttl=60.0, poll=5.0)) as (peer, _):
        task = await peer.create("work")
    assert task.keys() == {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}
    assert task["ttl"] == 60_000


@pytest.mark.parametrize(
    ("revision", "task", "wish"),
    [
        *((revision, "optional", {}) for revision in ALL),
        *((revision, "optional", {"task": {"ttl": 1000}}) for revision in (*OLDER, EXTENSION)),
        *((revision, "required", {}) for revision in OLDER),
    ],
)
async def test_a_client_without_tasks_gets_the_held_call(revision: str, task: Any, wish: dict[str, Any]) -> None:
    server, gate = workshop(task=task)
    gate.open.set()
    async with reach(server, revision) as peer:
        result = await peer.result("tools/call", {"name": "work", "arguments": {"n": 3}, **wish})
    assert result["content"][0]["text"] == "3"


async def test_a_required_task_is_refused_to_a_plain_call_of_the_core_revision() -> None:
    server, _ = workshop(task="required")
    async with reach(server, CORE) as peer:
        error = await peer.error("tools/call", {"name": "work", "arguments": {}})
    assert error["code"] == -32601
    assert "must be called as a task" in error["message"]


async def test_a_required_task_is_refused_to_a_client_without_the_extension() -> None:
    server, _ = workshop(task="required")
    async with reach(server, EXTENSION) as peer:
        error = await peer.error("tools/call", {"name": "work", "arguments": {}})
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


async def test_a_tool_without_tasks_cannot_be_called_as_one_in_the_core_form() -> None:
    server, _ = workshop()

    @server.tool
    async def plain() -> str:
        return "done"

    async with opened(server, CORE) as peer:
        error = await peer.peer.error("tools/call", {"name": "plain", "arguments": {}, "task": {}})
    assert (error["code"], error["data"]) == (-32601, {"method": "tools/call", "taskSupport": "forbidden"})


async def test_the_extension_declared_in_another_request_does_not_count() -> None:
    async with at_workshop(EXTENSION, task="required") as (peer, gate):
        gate.open.set()
        await peer.create("work")
        error = await peer.peer.error("tools/call", {"name": "work", "arguments": {}}, meta=DECLARES_NOTHING)
    assert error["code"] == -32021


@FORMS
async def test_arguments_that_do_not_fit_are_an_error_of_the_tool(revision: str) -> None:
    async with at_workshop(revision) as (peer, _):
        id = await peer.start("work", n="many")
        outcome = await peer.outcome(id)
        state = await peer.get(id)
    assert outcome["isError"]
    assert state["status"] == ("failed" if revision == CORE else "completed")


@FORMS
async def test_an_unknown_tool_is_an_error_and_no_task(revision: str) -> None:
    async with at_workshop(revision) as (peer, _):
        error = await peer.peer.error("tools/call", {"name": "other", "arguments": {}, "task": {}})
    assert error["code"] == -32602


# --- ``after`` --------------------------------------------------------------------------------------------------------


async def test_a_call_that_is_done_in_time_is_answered_directly() -> None:
    async with at_workshop(EXTENSION, task=TaskOptions(after=30.0)) as (peer, gate):
        gate.open.set()
        result = await peer.create("work", n=5)
    assert (result["resultType"], result["content"][0]["text"]) == ("complete", "5")


async def test_a_call_that_takes_longer_becomes_a_task() -> None:
    async with at_workshop(EXTENSION, task=TaskOptions(after=0.01)) as (peer, gate):
        task = await peer.create("work", n=5)
        gate.open.set()
        outcome = await peer.outcome(task["taskId"])
    assert (task["resultType"], outcome["content"][0]["text"], gate.count) == ("task", "5", 1)


async def test_the_core_form_asks_for_a_task_whatever_the_tool_would_wait_for() -> None:
    async with at_workshop(CORE, task=TaskOptions(after=30.0)) as (peer, _):
        assert (await peer.create("work"))["status"] == "working"


async def test_progress_before_the_call_is_a_task_belongs_to_the_request() -> None:
    gate = Gate()

    async def work(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "first")
        await gate.wait()
        await ctx.report_progress(2, 2, "second")
        return "done"

    async with opened(serving(work, task=TaskOptions(after=0.05)), EXTENSION) as peer:
        task = await peer.create("work", meta={"progressToken": "p"})
        gate.open.set()
        state = await peer.until(task["taskId"])
        notices = peer.peer.notices("notifications/progress")
    assert [each["message"] for each in notices] == ["first"]
    assert state["statusMessage"] == "2/2: second"


async def test_cancelling_the_request_before_it_is_a_task_stops_the_handler() -> None:
    async with at_workshop(EXTENSION, task=TaskOptions(after=30.0)) as (peer, gate):
        id = await peer.peer.send("tools/call", {"name": "work", "arguments": {}})
        await gate.entered.wait()
        await peer.peer.tell("notifications/cancelled", {"requestId": id})
        await gate.cancelled.wait()


async def test_a_handler_that_fails_while_it_is_cancelled_does_no_harm() -> None:
    gate = Gate()

    async def work() -> str:
        try:
            await gate.wait()
        finally:
            raise ToolError("could not clean up")

    async with opened(serving(work, task=TaskOptions(after=30.0)), EXTENSION) as peer:
        id = await peer.peer.send("tools/call", {"name": "work", "arguments": {}})
        await gate.entered.wait()
        await peer.peer.tell("notifications/cancelled", {"requestId": id})
        await gate.cancelled.wait()
        assert await peer.peer.settle() == []


async def test_an_error_in_time_is_the_answer_to_the_request() -> None:
    async def work() -> str:
        raise RequestFailed("No such thing", code=-32002, data={"what": 1})

    async with opened(serving(work, task=TaskOptions(after=30.0)), EXTENSION) as peer:
        error = await peer.peer.error("tools/call", {"name": "work", "arguments": {}})
    assert error == {"code": -32002, "message": "No such thing", "data": {"what": 1}}


# --- ``continue_as_task`` ---------------------------------------------------------------------------------------------


def continuing(after: float | None) -> tuple[Server, Gate, list[bool]]:
    """Return a server whose tool decides itself when it becomes a task."""
    server, gate, told = Server("s"), Gate(), list[bool]()

    @server.tool(task=TaskOptions(after=after))
    async def work(ctx: Context) -> str:
        told.append(await ctx.continue_as_task())
        await gate.wait()
        told.append(await ctx.continue_as_task())
        return "done"

    return server, gate, told


@pytest.mark.parametrize("after", [None, 30.0], ids=str)
async def test_a_handler_can_make_its_call_a_task(after: float | None) -> None:
    server, gate, told = continuing(after)
    async with opened(server, EXTENSION) as peer:
        task = await peer.create("work")
        gate.open.set()
        outcome = await peer.outcome(task["taskId"])
    assert (task["resultType"], outcome["content"][0]["text"], told) == ("task", "done", [True, True])


@pytest.mark.parametrize("after", [None, 0.0], ids=str)
async def test_in_the_core_form_the_client_has_decided(after: float | None) -> None:
    server, gate, told = continuing(after)
    async with opened(server, CORE) as peer:
        id = await peer.start("work")
        gate.open.set()
        await peer.outcome(id)
    assert told == [True, True]


@PLAIN
async def test_a_call_that_cannot_become_a_task_goes_on_as_it_is(revision: str) -> None:
    server, gate, told = continuing(None)
    gate.open.set()
    async with reach(server, revision) as peer:
        result = await peer.call("work")
    assert (result["content"][0]["text"], told) == ("done", [False, False])


async def test_a_tool_without_tasks_cannot_become_one() -> None:
    server, told = Server("s"), list[bool]()

    @server.tool
    async def work(ctx: Context) -> str:
        told.append(await ctx.continue_as_task())
        return "done"

    async with opened(server, EXTENSION) as peer:
        await peer.peer.call("work")
    assert told == [False]


# --- how a task ends --------------------------------------------------------------------------------------------------


class _Surprise(Exception):
    """An error that no caller is meant to see."""


FAILURES: dict[str, Exception] = {
    "request": RequestFailed("Out of stock", code=-32050, data={"left": 0}),
    "params": InvalidParams("Invalid params: no such city"),
    "tool": ToolError("The printer is on fire"),
    "unexpected": _Surprise("password=hunter2"),
    "exit": SystemExit("bye"),  # type: ignore[dict-item]
    "group": ExceptionGroup("several", [_Surprise("secret"), RequestFailed("Inner", code=-32051)]),
}


def failing(**options: Any) -> Server:
    """Return a server whose tool fails as it is told."""
    server = Server("s", **options)

    @server.tool(task=True)
    async def work(how: str) -> str:
        raise FAILURES[how]

    return server


@FORMS
@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("request", {"code": -32050, "message": "Out of stock", "data": {"left": 0}}),
        ("params", {"code": -32602, "message": "Invalid params: no such city"}),
        ("group", {"code": -32051, "message": "Inner"}),
    ],
    ids=["request", "params", "group"],
)
async def test_a_protocol_error_makes_the_task_fail_with_that_error(revision: str, how: str, error: Any) -> None:
    async with opened(failing(), revision) as peer:
        id = await peer.start("work", how=how)
        outcome = await peer.outcome(id)
        state = await peer.get(id)
    assert outcome == {"error": error}
    assert (state["status"], state["statusMessage"]) == ("failed", error["message"])


@FORMS
@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("tool", "The printer is on fire"),
        ("unexpected", "Tool 'work' failed unexpectedly."),
        ("exit", "Tool 'work' failed unexpectedly."),
    ],
    ids=["tool", "unexpected", "exit"],
)
async def test_an_error_of_the_tool_is_its_result(revision: str, how: str, text: str) -> None:
    async with opened(failing(), revision) as peer:
        id = await peer.start("work", how=how)
        outcome = await peer.outcome(id)
        state = await peer.get(id)
    assert (outcome["isError"], outcome["content"][0]["text"]) == (True, text)
    # The extension: failed is for protocol errors alone. The core: a result with isError is a failed task.
    assert state["status"] == ("failed" if revision == CORE else "completed")
    assert state["statusMessage"] == text


@FORMS
async def test_an_unexpected_error_is_shown_where_that_is_wanted(revision: str) -> None:
    async with opened(failing(mask_error_details=False), revision) as peer:
        outcome = await peer.outcome(await peer.start("work", how="unexpected"))
    assert outcome["content"][0]["text"] == "password=hunter2"


@FORMS
async def test_a_handler_that_is_cancelled_by_something_else_has_failed(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> str:
        waiting = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(waiting.cancel)
        await waiting
        return "never"

    async with opened(serving(work), revision) as peer:
        outcome = await peer.outcome(await peer.start("work"))
    assert outcome == {"error": {"code": -32603, "message": "Internal error"}}
    assert "cancelled by its own handler" in caplog.text


@FORMS
async def test_a_tool_that_takes_longer_than_its_timeout_has_failed(revision: str) -> None:
    server, gate = Server("s"), Gate()

    @server.tool(task=True, timeout=0.02)
    async def work() -> str:
        await gate.wait()
        return "never"

    async with opened(server, revision) as peer:
        outcome = await peer.outcome(await peer.start("work"))
    assert outcome["isError"]
    assert "took longer than 0.02 s" in outcome["content"][0]["text"]


class BrokenDisk(MemoryEngine):
    """A store that does not write records with some text."""

    def __init__(self, text: bytes, error: str) -> None:
        super().__init__(MemoryContents(now=time.time, random=os.urandom))
        self._text = text
        self._error = error

    async def commit(self, *steps: Step) -> Commit:
        if any(isinstance(step, Put) and step.old is not None and self._text in step.value for step in steps):
            raise OSError(self._error)
        return await super().commit(*steps)


@FORMS
async def test_a_result_that_cannot_be_stored_is_a_failure_that_can(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    # What a disk does that has no room for a result.
    async with at_workshop(revision, store=BrokenDisk(b'"result":', "disk full")) as (peer, gate):
        id = await peer.start()
        gate.open.set()
        outcome = await peer.outcome(id)
    assert outcome == {"error": {"code": -32603, "message": "The result of the task could not be stored"}}
    assert "disk full" in caplog.text


@FORMS
async def test_a_task_of_a_server_whose_disk_is_broken_is_logged(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with at_workshop(revision, store=BrokenDisk(b"", "broken")) as (peer, gate):
        id = await peer.start()
        gate.open.set()
        while "could not be ended" not in caplog.text:
            assert (await peer.get(id))["status"] == "working"


# --- limits and times -------------------------------------------------------------------------------------------------


@FORMS
@pytest.mark.parametrize("after", [0.0, 0.01], ids=["at-once", "later"])
async def test_a_task_too_many_is_refused(revision: str, after: float) -> None:
    async with at_workshop(
        revision, task=TaskOptions(after=after), tasks=TaskSettings(limits=TaskLimits(per_caller=2))
    ) as (peer, _):
        first = [await peer.start(), await peer.start()]
        params = {"name": "work", "arguments": {}, "task": {}}
        error = await peer.peer.error("tools/call", params)
        await peer.cancel(first[0])
        again = await peer.start()
    assert error["data"] == {"limit": "per_caller", "allowed": 2}
    assert again not in first


async def test_a_handler_whose_task_was_refused_is_stopped() -> None:
    async with at_workshop(
        EXTENSION, task=TaskOptions(after=0.01), tasks=TaskSettings(limits=TaskLimits(per_caller=0))
    ) as (peer, gate):
        await peer.peer.error("tools/call", {"name": "work", "arguments": {}})
        await gate.cancelled.wait()


async def test_a_client_of_the_core_form_says_how_long_a_task_is_kept() -> None:
    async with at_workshop(CORE, tasks=TaskSettings(max_ttl=100.0)) as (peer, gate):
        gate.open.set()
        wanted = [(await peer.create("work", ttl=ttl))["ttl"] for ttl in (5_000, 10_000_000)]
    assert wanted == [5_000, 100_000]


@FORMS
async def test_a_task_may_be_kept_for_ever(revision: str) -> None:
    async with at_workshop(revision, task=TaskOptions(ttl=None)) as (peer, gate):
        gate.open.set()
        id = await peer.start()
        state = await peer.until(id)
    assert state["ttl" if revision == CORE else "ttlMs"] is None


# --- ids --------------------------------------------------------------------------------------------------------------


async def test_ids_cannot_be_guessed() -> None:
    async with at_workshop(EXTENSION) as (peer, gate):
        gate.open.set()
        ids = [await peer.start() for _ in range(20)]
    assert len(set(ids)) == 20
    # 192 bits of the system's random numbers, as text.
    assert {len(id) for id in ids} == {32}


# --- lifespans, mounts, middleware, sync functions --------------------------------------------------------------------


@FORMS
async def test_a_task_that_outlives_its_connection_still_has_its_lifespan(revision: str) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[str]:
        events.append("entered")
        yield "resource"
        events.append("left")

    server, gate = Server("s", lifespan=lifespan), Gate()

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        await gate.wait()
        events.append(ctx.lifespan_context)
        return "done"

    async with opened(server, revision) as peer:
        id = await peer.start("work")
        await gate.entered.wait()
        await peer.peer.carrier.end()
        await peer.peer.ended.wait()
        gate.open.set()
        async with reach(server, revision, peer.peer.capabilities) as other:
            again = type(peer)(other)
            await again.until(id)
    assert events == ["entered", "resource", "left"]


@FORMS
async def test_the_tool_of_a_mounted_server_runs_as_a_task_in_its_middleware(revision: str) -> None:
    seen: list[Any] = []

    async def outer(request: Any, call_next: Any) -> Any:
        if request.method == "tools/call":
            seen.append("outer")
        return await call_next(request)

    async def inner(request: Any, call_next: Any) -> Any:
        seen.append("inner")
        result = await call_next(request)
        seen.append(type(result).__name__)
        return result

    child, gate = workshop(middleware=[inner])
    gate.open.set()
    root = Server("root", middleware=[outer])
    root.mount(child, "child")
    async with opened(root, revision) as peer:
        outcome = await peer.outcome(await peer.start("child_work", n=4))
    assert outcome["content"][0]["text"] == "4"
    assert seen == ["outer", "inner", "CallToolResult"]


@FORMS
async def test_middleware_shares_its_state_with_a_task(revision: str) -> None:
    async def remember(request: Any, call_next: Any) -> Any:
        request.context.set_state("user", "ann")
        return await call_next(request)

    async def work(ctx: Context) -> str:
        return str(ctx.get_state("user"))

    async with opened(serving(work, middleware=[remember]), revision) as peer:
        outcome = await peer.outcome(await peer.start("work"))
    assert outcome["content"][0]["text"] == "ann"


@FORMS
async def test_an_error_of_the_middleware_inside_a_task_is_the_error_of_the_task(revision: str) -> None:
    async def broken(request: Any, call_next: Any) -> Any:
        raise {"tool": ToolError("closed today"), "bug": ZeroDivisionError()}[kind]

    child, _ = workshop(middleware=[broken])
    root = Server("root")
    root.mount(child, "child")
    async with opened(root, revision) as peer:
        kind = "tool"
        meant = await peer.outcome(await peer.start("child_work"))
        kind = "bug"
        masked = await peer.outcome(await peer.start("child_work"))
    assert meant == {"error": {"code": -32603, "message": "closed today"}}
    assert masked == {"error": {"code": -32603, "message": "Internal error"}}


@FORMS
async def test_a_sync_function_runs_as_a_task_in_a_thread(revision: str) -> None:
    def work(ctx: BlockingContext) -> str:
        ctx.report_progress(1, 2, "half")
        answer = ctx.elicit("Go on?", bool)
        value = ctx.once("pay", lambda: 42)
        return f"{answer.data} {value}"

    async with opened(serving(work), revision, {"elicitation": {}}) as peer:
        id = await peer.start("work")
        key, _ = await peer.question(id)
        state = await peer.get(id)
        await peer.answer(id, key, {"action": "accept", "content": {"value": True}})
        outcome = await peer.outcome(id)
    assert (state["status"], state["statusMessage"]) == ("input_required", "1/2: half")
    assert outcome["content"][0]["text"] == "True 42"


@FORMS
async def test_a_sync_function_is_told_that_its_task_was_cancelled(revision: str) -> None:
    entered, left = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work(ctx: BlockingContext) -> str:
        loop.call_soon_threadsafe(entered.set)
        while not ctx.cancelled:
            time.sleep(0.001)
        loop.call_soon_threadsafe(left.set)
        return "never"

    async with opened(serving(work), revision) as peer:
        id = await peer.start("work")
        await entered.wait()
        await peer.cancel(id)
        await left.wait()
        assert (await peer.get(id))["status"] == "cancelled"


async def test_a_single_use_tool_that_asks_before_it_is_a_task_is_resumed_once() -> None:
    server = Server("s")

    @server.tool(task=TaskOptions(after=None), single_use=True)
    async def work(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", bool)
        await ctx.continue_as_task()
        return str(answer.data)

    async with opened(server, EXTENSION, {"elicitation": {}}) as peer:
        params = {"name": "work", "arguments": {}}
        asked = await peer.peer.result("tools/call", params)
        resumed = again(params, asked, accept(True))
        task = await peer.peer.result("tools/call", resumed)
        outcome = await peer.outcome(task["taskId"])
        error = await peer.peer.error("tools/call", resumed)
    assert (asked["resultType"], task["resultType"]) == ("input_required", "task")
    assert outcome["content"][0]["text"] == "True"
    assert "used already" in error["message"]


# --- many -------------------------------------------------------------------------------------------------------------


@FORMS
async def test_many_tasks_run_at_once_and_all_end(revision: str, stored: dict[str, Any]) -> None:
    async with at_workshop(revision, **stored) as (peer, gate):
        ids = [await peer.start("work", n=number) for number in range(20)]
        states = [(await peer.get(id))["status"] for id in ids]
        gate.open.set()
        outcomes = [await peer.outcome(id) for id in ids]
    assert set(states) == {"working"}
    assert [int(each["content"][0]["text"]) for each in outcomes] == list(range(20))


# --- the end of a process ---------------------------------------------------------------------------------------------


class SlowStore(MemoryEngine):
    """A store that writes a task and then does not answer."""

    def __init__(self) -> None:
        super().__init__(MemoryContents(now=time.time, random=os.urandom))
        self.storing = asyncio.Event()

    async def commit(self, *steps: Step) -> Commit:
        commit = await super().commit(*steps)
        if any(isinstance(step, Enqueue) for step in steps):
            self.storing.set()
            await asyncio.Event().wait()
        return commit


async def test_a_caller_that_leaves_while_its_task_is_stored_leaves_no_task_behind() -> None:
    store = SlowStore()
    server, gate = workshop(task=TaskOptions(after=0.01), store=store)
    records = TaskRecords(store, runner="other", now=time.time)
    async with opened(server, EXTENSION) as peer:
        id = await peer.peer.send("tools/call", {"name": "work", "arguments": {}})
        await store.storing.wait()
        await peer.peer.tell("notifications/cancelled", {"requestId": id})
        await gate.cancelled.wait()
        while not (page := await records.page(None, after=None, limit=9))[0].finished:
            await peer.peer.settle()
    assert [record.status for record in page] == ["cancelled"]
