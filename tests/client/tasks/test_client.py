"""Tasks of a client: handles, waiting, questions, restarts, and servers that behave oddly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.client.scripted_server import DIE, Fail, Scripted, handshake_server, stateless
from tests.server.tasks.talk import CORE, EXTENSION, FORMS, OLDER, Gate, serving, workshop
from trunkline import Client, Context, Server
from trunkline.client import TaskHandle
from trunkline.errors import (
    ConnectionLost,
    InvalidParams,
    MissingCapability,
    RemoteProtocolError,
    RequestFailed,
    RequestTimeout,
    ToolError,
)
from trunkline.extensions import TASKS

NAME = "io.modelcontextprotocol/tasks"
TOOL = {"name": "work", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
CONTENT = {"content": [{"type": "text", "text": "done"}]}
CORE_TASKS: Any = {"tools": {}, "tasks": {"cancel": {}, "list": {}, "requests": {"tools": {"call": {}}}}}
MEMBERS = {"taskId": "one", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
QUESTION = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Which?",
        "requestedSchema": {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]},
    },
}


def extension_server(*states: Any, poll: int | None = 20) -> Scripted:
    """Return a server of the extension whose task goes through these states."""
    left = list(states)
    interval = {} if poll is None else {"pollIntervalMs": poll}

    def get(params: Any) -> Any:
        state = left.pop(0) if len(left) > 1 else left[0]
        return (
            state
            if not isinstance(state, dict)
            else {"resultType": "complete", **MEMBERS, "ttlMs": None, **interval, **state}
        )

    created = {"resultType": "task", **MEMBERS, "status": "working", "ttlMs": None, **interval}
    empty = {"resultType": "complete"}
    whole = {"tools/call": created, "tasks/get": get, "tasks/update": empty, "tasks/cancel": empty}
    return stateless(whole, tools={}, extensions={NAME: {}})


def core_server(*states: Any) -> Scripted:
    """Return a server of the core form whose task goes through these states."""
    left = list(states)

    def get(params: Any) -> Any:
        state = left.pop(0) if len(left) > 1 else left[0]
        return state if not isinstance(state, dict) else {**MEMBERS, "ttl": None, "pollInterval": 20, **state}

    created = {"task": {**MEMBERS, "status": "working", "ttl": None, "pollInterval": 20}}
    whole = {"tools/list": {"tools": [TOOL]}, "tools/call": created, "tasks/get": get, "tasks/result": CONTENT}
    return handshake_server(whole, **CORE_TASKS)


# --- with a real server -----------------------------------------------------------------------------------------------


@FORMS
async def test_a_handle_is_there_at_once_and_the_result_later(revision: str) -> None:
    server, gate = workshop()
    async with Client(server, revision=revision) as client:
        handle = await client.start_task("work", {"n": 5})
        before = handle.status, handle.done, (await handle.refresh()) is not None
        gate.open.set()
        result = await handle.result()
    assert before == ("working", False, True)
    assert (result.data, handle.status, handle.done) == (5, "completed", True)
    assert handle.id in repr(handle)


@FORMS
async def test_a_task_is_found_again_by_the_next_program(revision: str, stored: dict[str, Any]) -> None:
    server, gate = workshop(**stored)
    async with Client(server, revision=revision) as client:
        id = (await client.start_task("work", {"n": 5})).id
    gate.open.set()
    async with Client(server, revision=revision) as client:
        handle = client.task(id, tool="work")
        unknown = handle.status, handle.message, handle.done
        result = await handle.result()
        plain = await client.task(id).result()
    await server.aclose()
    assert (unknown, result.data) == (("working", None, False), 5)
    assert plain.structured_content == {"result": 5}


@FORMS
async def test_every_change_of_the_state_is_seen(revision: str) -> None:
    steps = asyncio.Queue[str]()

    async def work(ctx: Context) -> str:
        while (step := await steps.get()) != "end":
            await ctx.info(step)
        return "done"

    seen: list[Any] = []
    async with Client(serving(work), revision=revision) as client:
        handle = await client.start_task("work")
        steps.put_nowait("dig")
        async for state in handle.updates():
            seen.append((state.status, state.message))
            steps.put_nowait("end" if len(seen) > 1 else "fill")
    assert seen[-1] == ("completed", "fill")
    assert ("working", "dig") in seen


@FORMS
async def test_a_cancelled_task_has_no_result(revision: str) -> None:
    server, gate = workshop()
    async with Client(server, revision=revision) as client:
        handle = await client.start_task("work")
        await gate.entered.wait()
        await handle.cancel()
        with pytest.raises(RequestFailed, match="cancelled"):
            await handle.result()
        await handle.cancel()
    assert handle.status == "cancelled"
    assert gate.cancelled.is_set()


@FORMS
async def test_cancelling_a_task_that_has_finished_meanwhile_is_no_error(revision: str) -> None:
    server, gate = workshop()
    gate.open.set()
    async with Client(server, revision=revision) as client:
        handle = await client.start_task("work")
        await client.task(handle.id).result()
        assert not handle.done
        await handle.cancel()
        assert (await handle.result()).data == 1


@FORMS
async def test_cancelling_an_unknown_task_is_an_error(revision: str) -> None:
    server, _ = workshop()
    async with Client(server, revision=revision) as client:
        with pytest.raises(InvalidParams):
            await client.task("unknown").cancel()


@FORMS
@pytest.mark.parametrize("how", ["tool", "request"])
async def test_a_failure_is_raised_as_it_would_be_by_a_call(revision: str, how: str) -> None:
    async def work() -> str:
        raise ToolError("on fire") if how == "tool" else RequestFailed("out of stock", code=-32050, data=[1])

    async with Client(serving(work), revision=revision) as client:
        handle = await client.start_task("work")
        with pytest.raises(ToolError if how == "tool" else RequestFailed) as caught:
            await handle.result()
        if how == "tool":
            assert (await handle.result(raise_on_error=False)).is_error
    assert ("on fire" if how == "tool" else "out of stock") in str(caught.value)


@FORMS
async def test_waiting_for_a_result_may_be_bounded_and_the_task_goes_on(revision: str) -> None:
    server, gate = workshop()
    async with Client(server, revision=revision) as client:
        handle = await client.start_task("work")
        with pytest.raises(RequestTimeout, match=r"did not finish within 0\.05 s"):
            await handle.result(timeout=0.05)
        gate.open.set()
        assert (await handle.result(timeout=30.0)).data == 1
    assert not gate.cancelled.is_set()


@FORMS
async def test_a_call_that_becomes_a_task_shows_its_status_as_progress(revision: str) -> None:
    steps = asyncio.Queue[str]()

    async def work(ctx: Context) -> str:
        while (step := await steps.get()) != "end":
            await ctx.report_progress(float(step), 10, f"step {step}")
        return "done"

    seen: list[Any] = []

    def progress(*each: Any) -> None:
        seen.append(each)
        steps.put_nowait("end" if len(seen) > 1 else "7")

    steps.put_nowait("3")
    async with Client(serving(work, task="required"), revision=revision) as client:
        result = await client.call_tool("work", on_progress=progress)
    assert result.data == "done"
    assert seen == [(3, 10, "step 3"), (7, 10, "step 7")]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (["reading", "writing"], [(1, None, "reading"), (2, None, "writing")]),
        (["1/2", "tidying up", "2/2: done"], [(1, 2, None), (1, 2, "tidying up"), (2, 2, "done")]),
        (["1234567/20000000"], [(1234567, 20000000, None)]),
        (["0.5/1: a\nb"], [(0.5, 1, "a\nb")]),
        (["1/2/2027", "on 17/11", "-1/2", "1/-2", "nan/inf", "1" * 400 + "/2"], None),
    ],
    ids=["texts", "mixed", "large", "fractions", "other"],
)
async def test_the_status_of_any_server_is_shown_as_progress(said: list[str], shown: Any) -> None:
    states = [{"status": "working", "statusMessage": each} for each in said]
    server = extension_server(*states, {"status": "completed", "result": CONTENT}, poll=1)
    seen: list[Any] = []
    async with Client(server) as client:
        await client.call_tool("work", on_progress=lambda *each: seen.append(each))
    # A text that is no progress is shown as it is.
    assert seen == (shown or [(number, None, text) for number, text in enumerate(said, 1)])


@pytest.mark.parametrize(
    "end",
    [
        {"status": "failed", "error": {"code": -32603, "message": "The oven is broken"}},
        {"status": "cancelled"},
        {"status": "completed", "result": CONTENT},
    ],
    ids=["failed", "cancelled", "completed"],
)
async def test_the_message_of_a_task_that_has_ended_is_no_progress(end: dict[str, Any]) -> None:
    states = [{"status": "working", "statusMessage": "2/2: step 2"}, {**end, "statusMessage": "The oven is broken"}]
    seen: list[Any] = []
    async with Client(extension_server(*states, poll=1)) as client:
        with suppress(RequestFailed):
            await client.call_tool("work", on_progress=lambda *each: seen.append(each))
    assert seen == [(2, 2, "step 2")]


async def test_the_last_progress_of_a_completed_task_is_reported() -> None:
    states = [{"status": "working"}, {"status": "completed", "statusMessage": "2/2: step 2", "result": CONTENT}]
    seen: list[Any] = []
    async with Client(extension_server(*states, poll=1)) as client:
        await client.call_tool("work", on_progress=lambda *each: seen.append(each))
    assert seen == [(2, 2, "step 2")]


async def test_a_poll_interval_larger_than_any_number_is_bounded() -> None:
    server = extension_server({"status": "working"}, {"status": "completed", "result": CONTENT}, poll=10**400)
    async with Client(server) as client:
        assert (await client.call_tool("work")).text


@FORMS
async def test_a_call_that_takes_too_long_cancels_its_task(revision: str) -> None:
    server, gate = workshop(task="required")
    async with Client(server, revision=revision) as client:
        with pytest.raises(RequestTimeout, match=r"no answer within 0\.05 s"):
            await client.call_tool("work", total_timeout=0.05)
        await gate.cancelled.wait()


@FORMS
async def test_a_caller_that_gives_up_cancels_its_task(revision: str) -> None:
    server, gate = workshop(task="required")
    async with Client(server, revision=revision) as client:
        calling = asyncio.ensure_future(client.call_tool("work"))
        await gate.entered.wait()
        await client.list_tools()
        calling.cancel()
        await gate.cancelled.wait()
        await asyncio.wait([calling])
    assert calling.cancelled()


async def test_the_meta_of_a_call_reaches_a_required_task_of_the_core() -> None:
    async def work(ctx: Context) -> str:
        return str(ctx.meta.get("trace"))

    async with Client(serving(work, task="required"), revision=CORE) as client:
        first = await client.call_tool("work", meta={"trace": "abc"})
        second = await client.call_tool("work", meta={"trace": "def"})
    assert (first.data, second.data) == ("abc", "def")


@FORMS
async def test_a_tool_without_tasks_is_called_and_the_handle_is_done(revision: str) -> None:
    server, _ = workshop()

    @server.tool
    async def plain(n: int) -> int:
        return n

    async with Client(server, revision=revision) as client:
        handle = await client.start_task("plain", {"n": 3})
        assert (handle.id, handle.done, handle.status, await handle.refresh()) == ("", True, "completed", None)
        assert [state async for state in handle.updates()] == []
        await handle.cancel()
        assert (await handle.result()).data == 3
    assert "answered directly" in repr(handle)


@pytest.mark.parametrize("revision", [*OLDER, CORE, EXTENSION])
async def test_a_server_without_tasks_is_named_as_such(revision: str) -> None:
    server, _ = workshop(task=revision in OLDER)
    async with Client(server, revision=revision) as client:
        with pytest.raises(MissingCapability, match="The server has no tasks"):
            await client.start_task("work")


async def test_a_client_that_declared_no_tasks_starts_none() -> None:
    server, _ = workshop()
    async with Client(server, revision=EXTENSION, extensions={TASKS: None}) as client:
        with pytest.raises(MissingCapability):
            await client.start_task("work")


async def test_how_long_a_task_is_kept_can_be_asked_for_in_the_core_form() -> None:
    server, gate = workshop()
    async with Client(server, revision=CORE) as client:
        handle = await client.start_task("work", ttl=12.5)
        state = await client.request("tasks/get", {"taskId": handle.id})
        gate.open.set()
    assert 12_500 <= state["ttl"] < 20_000


# --- with odd servers -------------------------------------------------------------------------------------------------


async def test_a_question_is_asked_once_however_often_it_is_listed() -> None:
    waiting = {"status": "input_required", "inputRequests": {"which": QUESTION}}
    server = extension_server(waiting, waiting, waiting, {"status": "completed", "result": CONTENT})
    asked: list[Any] = []

    def answer(request: Any) -> Any:
        asked.append(request.message)
        return {"value": "red"}

    async with Client(server, revision=EXTENSION, elicitation=answer) as client:
        await client.call_tool("work")
    assert asked == ["Which?"]
    (update,) = server.params_of("tasks/update")
    assert update["inputResponses"]["which"] == {"action": "accept", "content": {"value": "red"}}


async def test_an_answer_that_was_lost_is_sent_again_and_nobody_is_asked_twice() -> None:
    waiting = {"status": "input_required", "inputRequests": {"which": QUESTION}}
    server = extension_server(waiting, waiting, {"status": "completed", "result": CONTENT})
    outcomes: list[Any] = [Fail(-32603, "try later"), {"resultType": "complete"}]
    server.table["tasks/update"] = lambda params: outcomes.pop(0)
    asked: list[Any] = []

    def answer(request: Any) -> Any:
        asked.append(request.message)
        return {"value": "red"}

    async with Client(server, revision=EXTENSION, elicitation=answer) as client:
        handle = await client.start_task("work")
        with pytest.raises(RequestFailed, match="try later"):
            await handle.result()
        await handle.result()
    assert (asked, len(server.params_of("tasks/update"))) == (["Which?"], 2)


async def test_a_question_for_which_the_client_has_no_answer_ends_the_wait() -> None:
    waiting = {"status": "input_required", "inputRequests": {"which": QUESTION}}
    async with Client(extension_server(waiting), revision=EXTENSION) as client:
        with pytest.raises(RemoteProtocolError, match="did not declare"):
            await client.call_tool("work")


async def test_a_task_that_waits_without_questions_is_looked_at_again() -> None:
    server = extension_server({"status": "input_required"}, {"status": "completed", "result": CONTENT})
    async with Client(server, revision=EXTENSION) as client:
        await client.call_tool("work")
    assert "tasks/result" not in server.methods


UNREADABLE = [{"status": "resting"}, {"status": 5}, "text"]


@pytest.mark.parametrize("state", UNREADABLE, ids=["status", "number", "text"])
@pytest.mark.parametrize("make", [extension_server, core_server], ids=["extension", "core"])
async def test_a_state_that_cannot_be_read_is_the_servers_fault(make: Callable[..., Scripted], state: Any) -> None:
    revision = EXTENSION if make is extension_server else CORE
    async with Client(make(state), revision=revision) as client:
        handle = await client.start_task("work")
        with pytest.raises(RemoteProtocolError, match="cannot be read"):
            await handle.result()


async def test_a_created_task_that_cannot_be_read_is_the_servers_fault() -> None:
    server = extension_server({"status": "working"})
    server.table["tools/call"] = {"resultType": "task", "taskId": 5}
    async with Client(server, revision=EXTENSION) as client:
        with pytest.raises(RemoteProtocolError, match="The task cannot be read"):
            await client.call_tool("work")


@pytest.mark.parametrize("make", [extension_server, core_server], ids=["extension", "core"])
async def test_a_result_that_cannot_be_read_is_the_servers_fault(make: Callable[..., Scripted]) -> None:
    bad = {"content": 5}
    server = make({"status": "completed", "result": bad})
    server.table["tasks/result"] = bad
    async with Client(server, revision=EXTENSION if make is extension_server else CORE) as client:
        handle = await client.start_task("work")
        with pytest.raises(RemoteProtocolError, match="The result of the task cannot be read"):
            await handle.result()


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"status": "completed"}, "is completed, without a result"),
        ({"status": "failed", "statusMessage": "oh"}, "is failed, without a result: oh"),
        ({"status": "cancelled", "statusMessage": "no more"}, "was cancelled: no more"),
        ({"status": "failed", "error": {"code": -32050, "message": "gone", "data": 1}}, "gone"),
        ({"status": "failed", "error": {"code": -32050, "message": "gone"}}, "gone"),
    ],
    ids=["no-result", "no-error", "cancelled", "data", "error"],
)
async def test_an_end_without_a_result_is_an_error(state: Any, says: str) -> None:
    async with Client(extension_server(state), revision=EXTENSION) as client:
        with pytest.raises(RequestFailed, match=says):
            await client.call_tool("work")


async def test_a_server_of_the_core_that_ignores_the_wish_answers_directly() -> None:
    server = core_server({"status": "working"})
    server.table["tools/call"] = CONTENT
    async with Client(server, revision=CORE) as client:
        handle = await client.start_task("work")
        assert (await handle.result()).content[0].text == "done"  # type: ignore[union-attr]
        direct = await client.call_tool("work")
    assert handle.done
    assert direct.content[0].text == "done"  # type: ignore[union-attr]


async def test_the_timeouts_of_a_call_hold_for_the_request_that_starts_its_task() -> None:
    server = core_server({"status": "working"})
    server.table["tools/call"] = None
    async with Client(server, revision=CORE) as client:
        await client.list_tools()
        with pytest.raises(RequestTimeout) as caught:
            await client.call_tool("work", timeout=0.05, on_progress=lambda *report: None, meta={"trace": "abc"})
    sent = next(params for method, params in server.received if method == "tools/call")
    assert (caught.value.clock, caught.value.seconds) == ("idle", 0.05)
    # The progress of a task is its status, so no token is sent.
    assert sent["_meta"] == {"trace": "abc"}


async def test_a_task_is_looked_at_again_after_the_connection_was_lost() -> None:
    server = extension_server(DIE, {"status": "completed", "result": CONTENT})
    async with Client(server, revision=EXTENSION) as client:
        assert (await client.call_tool("work")).content[0].text == "done"  # type: ignore[union-attr]
    assert len(server.stages) == 2


async def test_a_task_of_a_server_that_is_gone_cannot_be_cancelled_and_that_is_no_reason_to_hang() -> None:
    server = extension_server({"status": "working"})
    server.table["tasks/cancel"] = DIE
    async with Client(server, revision=EXTENSION) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("work", total_timeout=0.05)
        handle: TaskHandle = await client.start_task("work")
        with pytest.raises(ConnectionLost):
            await handle.cancel()


async def test_a_refused_cancellation_of_a_task_that_still_runs_is_an_error() -> None:
    server = core_server({"status": "working"})
    server.table["tasks/cancel"] = Fail(-32603, "not now")
    async with Client(server, revision=CORE) as client:
        handle = await client.start_task("work")
        with pytest.raises(RequestFailed, match="not now"):
            await handle.cancel()


async def test_the_updates_of_a_task_end_with_who_reads_them() -> None:
    gate = Gate()
    server = Server("s")

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        await ctx.elicit("Which?", str)
        return "never"

    async def never(_: Any) -> Any:
        await gate.wait()

    async with Client(server, revision=CORE, elicitation=never) as client:
        handle = await client.start_task("work")
        updates = handle.updates()
        async for state in updates:
            if state.status == "input_required":
                break
        await updates.aclose()  # type: ignore[attr-defined]
    await server.aclose()
    assert handle.status == "input_required"


@FORMS
async def test_a_task_that_ends_quickly_loses_neither_progress_nor_log_messages(revision: str) -> None:
    server = Server("s")

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half")
        await ctx.info("a log message")
        await ctx.report_progress(2, 2, "all")
        return "done"

    progress: list[Any] = []
    messages: list[Any] = []
    async with Client(server, revision=revision, logging=lambda params: messages.append(params.data)) as client:
        await client.call_tool("work", on_progress=lambda *report: progress.append(report))
    assert (progress, messages) == ([(1, 2, "half"), (2, 2, "all")], ["a log message"])
