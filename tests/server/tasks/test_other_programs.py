"""Tasks as other programs do them: habits of clients and servers that ours must cope with."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

import trunkline.types as t
from tests.interaction.script import Script
from tests.interaction.web import served
from tests.server.talk import reach
from tests.server.tasks.talk import CORE, EXTENSION, serving
from trunkline import Client, Context, RequestFailed, Server, ToolError
from trunkline.errors import MethodNotFound, TooManyRequests
from trunkline.server import CallNext, ServerRequest
from trunkline.testing import FakeClock


def asking_server(**options: Any) -> Server:
    """Return a server with a task that asks for a name, one that cannot be a task, and one that must be."""
    server = Server("asking", **options)

    @server.tool(task=True)
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"Hello, {answer.data['name']}!" if answer.accepted else "Hello!"

    @server.tool
    async def failing() -> str:
        raise ToolError("This tool requires task-augmented invocation")

    @server.tool(task="required")
    async def research() -> str:
        return "done"

    return server


def ann(question: t.ElicitRequestParams) -> Any:
    return {"name": "Ann"}


def no_screen(question: t.ElicitRequestParams) -> Any:
    raise RequestFailed("there is no screen")


# --- servers ---------------------------------------------------------------------------------------------------------


async def test_questions_that_come_only_with_tasks_result_are_answered_by_whoever_follows_the_task() -> None:
    """Over HTTP there is no other request to ask on; the official TypeScript SDK does so on every transport."""
    async with served(asking_server()) as (url, _), Client(url, revision=CORE, elicitation=ann) as client:
        task = await client.start_task("greet")
        statuses = [state.status async for state in task.updates()]
        assert (statuses[-1], (await task.result()).text) == ("completed", "Hello, Ann!")


async def test_progress_goes_on_after_a_question() -> None:
    heard = asyncio.Event()

    async def count(ctx: Context) -> str:
        await ctx.elicit("Go on?", None)
        await ctx.info("after the question")
        await heard.wait()
        return "done"

    def hear(progress: float, total: float | None, message: str | None) -> None:
        if message == "after the question":
            heard.set()

    async with (
        served(serving(count, task="required")) as (url, _),
        Client(url, revision=CORE, elicitation=lambda question: {}) as client,
    ):
        assert (await client.call_tool("count", on_progress=hear)).text == "done"


@pytest.mark.parametrize("words", ["MCP error -32601: {}", "This tool requires task-augmented invocation"])
async def test_a_tool_that_says_in_words_that_it_must_be_a_task_is_called_as_one(words: str) -> None:
    """The official SDKs 1.x turn the error that the specification demands into a result."""

    async def put_into_words(request: ServerRequest, call_next: CallNext) -> Any:
        try:
            return await call_next(request)
        except MethodNotFound as error:
            return t.CallToolResult(content=[t.TextContent(text=words.format(error.message))], is_error=True)

    async with Client(asking_server(middleware=[put_into_words]), revision=CORE) as client:
        assert (await client.call_tool("research")).text == "done"


async def test_a_failure_in_the_same_words_of_any_other_tool_stays_a_failure() -> None:
    async with Client(asking_server(), revision=CORE) as client:
        with pytest.raises(ToolError, match="requires task-augmented"):
            await client.call_tool("failing")


async def test_a_task_that_does_not_say_how_long_it_is_kept_is_read() -> None:
    """The official Python SDK 1.x leaves null out, also where the specification demands the member."""
    plain = {"taskId": "t1", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
    table = {
        "tools/call": {"task": {**plain, "status": "working"}},
        "tasks/get": {**plain, "status": "completed"},
        "tasks/result": {"content": [{"type": "text", "text": "done"}]},
    }
    script = Script(CORE, table, capabilities={"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}})
    async with script.client() as client:
        assert (await (await client.start_task("greet")).result()).text == "done"


async def pauses_before_looks(*, advice: float, strict: bool) -> list[float]:
    """Call a tool whose server advises one interval for every task; return the pauses before its first five looks."""
    clock = FakeClock()
    looks = [clock.now()]
    enough = asyncio.Event()

    async def advise(request: ServerRequest, call_next: CallNext) -> Any:
        if request.method == "tasks/get":
            looks.append(clock.now())
            if len(looks) > 5:
                enough.set()
            if strict and looks[-1] - looks[-2] < advice:
                raise TooManyRequests("Ask less often")
        result = await call_next(request)
        return replace(result, poll_interval_ms=int(advice * 1000)) if isinstance(result, t.TaskResult) else result

    async def count() -> str:
        await enough.wait()
        return "done"

    async with Client(serving(count, middleware=[advise]), revision=EXTENSION, clock=clock) as client:
        call = asyncio.ensure_future(client.call_tool("count"))
        while not call.done():
            clock.advance(0.05)
            for _ in range(10):
                await asyncio.sleep(0)
        await call
    return [round(later - earlier, 1) for earlier, later in pairwise(looks)][:5]


async def test_a_task_is_looked_at_soon_and_then_as_often_as_the_server_advises() -> None:
    """FastMCP advises five seconds for every task, however quick."""
    pauses = await pauses_before_looks(advice=1.0, strict=False)
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0], abs=0.11)


async def test_a_server_that_insists_on_its_advice_is_not_asked_more_often_again() -> None:
    pauses = await pauses_before_looks(advice=1.0, strict=True)
    assert pauses[1:] == pytest.approx([1.0] * 4, abs=0.11)


# --- clients ---------------------------------------------------------------------------------------------------------


async def test_a_client_that_answers_at_once_instead_of_with_a_task_is_understood() -> None:
    server = Server("asking")
    states: list[t.Task] = []

    @server.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", schema={"type": "object", "properties": {}}, task=states.append)
        return f"{answer.action} {answer.data if answer.accepted else ''}"

    able: Any = {"elicitation": {}, "tasks": {"requests": {"elicitation": {"create": {}}}}}
    async with reach(server, CORE, able) as peer:
        answer = {"action": "accept", "content": {"name": "Ann"}}
        conversation = await peer.converse_tool("greet", {"elicitation/create": answer})
    assert conversation.questions[0]["params"]["task"]["ttl"] > 0
    assert (conversation.text, states) == ("accept {'name': 'Ann'}", [])


async def test_a_handler_is_told_every_state_of_the_clients_task() -> None:
    server = Server("asking")
    states: list[str] = []

    @server.tool
    async def greet(ctx: Context) -> str:
        return (await ctx.sample("Hi", task=lambda task: states.append(task.status))).text

    async with Client(server, revision=CORE, sampling=lambda question: "hello") as client:
        assert (await client.call_tool("greet")).text == "hello"
    assert states == ["working", "completed"]


@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_client_that_waits_for_questions_without_asking_for_the_result_is_asked(transport: str) -> None:
    """The official TypeScript package does so; over HTTP it is asked on the stream of its session."""
    async with AsyncExitStack() as stack:
        target: Any = asking_server()
        if transport == "http":
            target, _ = await stack.enter_async_context(served(target))
        client = await stack.enter_async_context(Client(target, revision=CORE, elicitation=ann))
        created = await client.request("tools/call", {"name": "greet", "arguments": {}, "task": {}})
        params, status = {"taskId": created["task"]["taskId"]}, "working"
        while status in ("working", "input_required"):
            status = (await client.request("tasks/get", params))["status"]
        result = await client.request("tasks/result", params)
    assert result["content"][0]["text"] == "Hello, Ann!"


async def test_the_result_of_a_task_says_what_kind_it_is_where_every_result_does() -> None:
    """The official TypeScript package of the extension reads no other; in the older form it says nothing."""

    async def read(revision: str, method: str) -> Any:
        async with Client(asking_server(), revision=revision) as client:
            task = await client.start_task("research")
            await task.result()
            return await client.request(method, {"taskId": task.id})

    assert (await read(EXTENSION, "tasks/get"))["result"]["resultType"] == "complete"
    assert "resultType" not in await read(CORE, "tasks/result")


async def test_a_cancelled_task_is_not_asked_for_its_result() -> None:
    """The official TypeScript SDK answers that with an internal error: there is none."""

    async def refuse(request: ServerRequest, call_next: CallNext) -> Any:
        if request.method == "tasks/result":
            raise RequestFailed("Task has no result stored")
        return await call_next(request)

    async def never(question: t.ElicitRequestParams) -> Any:
        await asyncio.Event().wait()

    async with Client(asking_server(middleware=[refuse]), revision=CORE, elicitation=never) as client:
        task = await client.start_task("greet")
        await task.cancel()
        await task.refresh()
        with pytest.raises(RequestFailed, match="was cancelled"):
            await task.result()


async def test_a_question_that_the_client_answers_with_an_error_is_no_longer_waited_for() -> None:
    failed, seen = asyncio.Event(), asyncio.Event()

    async def greet(ctx: Context) -> str:
        try:
            await ctx.elicit("Who?", str)
        except RequestFailed as error:
            failed.set()
            await seen.wait()
            return error.message
        return "answered"

    async with Client(serving(greet), revision=CORE, elicitation=no_screen) as client:
        task = await client.start_task("greet")
        await failed.wait()
        state = await task.refresh()
        seen.set()
        assert state is not None
        assert (state.status, (await task.result()).text) == ("working", "there is no screen")


async def test_a_call_whose_question_cannot_be_answered_cancels_its_task() -> None:
    cancelled = asyncio.Event()

    async def greet(ctx: Context) -> str:
        try:
            await ctx.elicit("Who?", str)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "answered"

    async with Client(serving(greet), revision=EXTENSION, elicitation=no_screen) as client:
        with pytest.raises(RequestFailed, match="there is no screen"):
            await client.call_tool("greet")
        await cancelled.wait()
