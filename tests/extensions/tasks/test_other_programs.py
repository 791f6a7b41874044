"""Tasks as other programs do them: habits of clients and servers that ours must cope with."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

import trunkline.types as t
from tests.interaction.script import Script
from tests.interaction.web import served
from tests.recordings.raw_peer import RawPeer, initialize, initialized
from tests.support import run_async
from trunkline import Client, Context, RequestFailed, Server, ToolError
from trunkline.errors import MethodNotFound, RemoteProtocolError, TooManyRequests
from trunkline.server import CallNext, ServerRequest
from trunkline.testing import FakeClock

CORE, EXTENSION = "2025-11-25", "2026-07-28"


def asking_server(**options: Any) -> Server:
    """Return a server with a task that asks for a name, one that cannot be a task, and one that must be."""
    server = Server("asking", **options)

    @server.tool(task=True)
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"Hello, {answer.data['name']}!" if answer.accepted else "Hello!"

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool(task="required")
    async def research() -> str:
        return "done"

    return server


def ann(question: t.ElicitRequestParams) -> Any:
    return {"name": "Ann"}


# --- servers ---------------------------------------------------------------------------------------------------------


def test_questions_that_come_only_with_tasks_result_are_answered_by_whoever_follows_the_task() -> None:
    """Over HTTP there is no other request to ask on; the official TypeScript SDK does so on every transport."""

    async def main() -> tuple[str, str]:
        async with served(asking_server()) as (url, _), Client(url, revision=CORE, elicitation=ann) as client:
            task = await client.start_task("greet")
            statuses = [state.status async for state in task.updates()]
            return statuses[-1], (await task.result()).text

    assert run_async(main()) == ("completed", "Hello, Ann!")


def test_progress_goes_on_after_a_question() -> None:
    server = Server("slow")

    @server.tool(task="required")
    async def count(ctx: Context) -> str:
        await ctx.elicit("Go on?", None)
        await ctx.info("after the question")
        await heard.wait()
        return "done"

    heard = asyncio.Event()

    def hear(progress: float, total: float | None, message: str | None) -> None:
        if message == "after the question":
            heard.set()

    async def main() -> str:
        async with (
            served(server) as (url, _),
            Client(url, revision=CORE, elicitation=lambda question: {}) as client,
        ):
            return (await client.call_tool("count", on_progress=hear)).text

    assert run_async(main()) == "done"


@pytest.mark.parametrize("words", ["MCP error -32601: {}", "This tool requires task-augmented invocation"])
def test_a_tool_that_says_in_words_that_it_must_be_a_task_is_called_as_one(words: str) -> None:
    """The official SDKs 1.x turn the error that the specification demands into a result."""

    async def put_into_words(request: ServerRequest, call_next: CallNext) -> Any:
        try:
            return await call_next(request)
        except MethodNotFound as error:
            return t.CallToolResult(content=[t.TextContent(text=words.format(error.message))], is_error=True)

    async def main() -> str:
        async with Client(asking_server(middleware=[put_into_words]), revision=CORE) as client:
            return (await client.call_tool("research")).text

    assert run_async(main()) == "done"


def test_a_task_that_does_not_say_how_long_it_is_kept_is_read() -> None:
    """The official Python SDK 1.x leaves null out, also where the specification demands the member."""
    plain = {"taskId": "t1", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
    table = {
        "tools/call": {"task": {**plain, "status": "working"}},
        "tasks/get": {**plain, "status": "completed"},
        "tasks/result": {"content": [{"type": "text", "text": "done"}]},
    }

    async def main() -> str:
        script = Script(CORE, table, capabilities={"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}})
        async with script.client() as client:
            return (await (await client.start_task("greet")).result()).text

    assert run_async(main()) == "done"


def test_a_task_that_cannot_be_read_is_an_error_of_the_server() -> None:
    async def main() -> None:
        declared: dict[str, Any] = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
        async with Script(CORE, {"tools/call": {"task": {"taskId": 7}}}, capabilities=declared).client() as client:
            await client.start_task("greet")

    with pytest.raises(RemoteProtocolError, match="The task cannot be read"):
        run_async(main())


def test_a_failure_in_the_same_words_of_any_other_tool_stays_a_failure() -> None:
    server = asking_server()

    @server.tool
    async def upstream() -> str:
        raise ToolError("This tool requires task-augmented invocation")

    async def main() -> None:
        async with Client(server, revision=CORE) as client:
            await client.call_tool("upstream")

    with pytest.raises(ToolError, match="requires task-augmented"):
        run_async(main())


def looked(*, advice: float, strict: bool) -> list[float]:
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

    server = Server("slow", middleware=[advise])

    @server.tool(task=True)
    async def count() -> str:
        await enough.wait()
        return "done"

    async def main() -> None:
        async with Client(server, revision=EXTENSION, clock=clock) as client:
            call = asyncio.ensure_future(client.call_tool("count"))
            while not call.done():
                clock.advance(0.05)
                for _ in range(10):
                    await asyncio.sleep(0)
            await call

    run_async(main())
    return [round(later - earlier, 1) for earlier, later in pairwise(looks)][:5]


def test_a_task_is_looked_at_soon_and_then_as_often_as_the_server_advises() -> None:
    """FastMCP advises five seconds for every task, however quick."""
    assert looked(advice=1.0, strict=False) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0], abs=0.11)


def test_a_server_that_insists_on_its_advice_is_not_asked_more_often_again() -> None:
    assert looked(advice=1.0, strict=True)[1:] == pytest.approx([1.0] * 4, abs=0.11)


# --- clients ---------------------------------------------------------------------------------------------------------


def test_a_client_that_answers_at_once_instead_of_with_a_task_is_understood() -> None:
    server = Server("asking")
    states: list[t.Task] = []

    @server.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", schema={"type": "object", "properties": {}}, task=states.append)
        return f"{answer.action} {answer.data if answer.accepted else ''}"

    async def main() -> Any:
        peer = RawPeer()
        server.accept(peer)
        able: dict[str, object] = {"elicitation": {}, "tasks": {"requests": {"elicitation": {"create": {}}}}}
        await peer.ask(initialize(CORE, able))
        await peer.say(initialized())
        question = await peer.request("tools/call", {"name": "greet", "arguments": {}})
        assert question["params"]["task"]["ttl"] > 0
        answer = {"action": "accept", "content": {"name": "Ann"}}
        return await peer.ask({"jsonrpc": "2.0", "id": question["id"], "result": answer})

    result = run_async(main())["result"]
    assert (result["content"][0]["text"], states) == ("accept {'name': 'Ann'}", [])


def test_a_handler_is_told_every_state_of_the_clients_task() -> None:
    server = Server("asking")
    states: list[str] = []

    @server.tool
    async def greet(ctx: Context) -> str:
        return (await ctx.sample("Hi", task=lambda task: states.append(task.status))).text

    async def main() -> str:
        async with Client(server, revision=CORE, sampling=lambda question: "hello") as client:
            return (await client.call_tool("greet")).text

    assert (run_async(main()), states) == ("hello", ["working", "completed"])


async def poll_only(client: Client) -> str:
    """Run a task as the official TypeScript package does: questions are waited for, and the result comes at the end."""
    created = await client.request("tools/call", {"name": "greet", "arguments": {}, "task": {}})
    id, status = created["task"]["taskId"], "working"
    while status in ("working", "input_required"):
        status = (await client.request("tasks/get", {"taskId": id}))["status"]
    return str((await client.request("tasks/result", {"taskId": id}))["content"][0]["text"])


def test_a_client_that_waits_for_questions_without_asking_for_the_result_is_asked() -> None:
    async def main() -> str:
        async with Client(asking_server(), revision=CORE, elicitation=ann) as client:
            return await poll_only(client)

    assert run_async(main()) == "Hello, Ann!"


def test_over_http_it_is_asked_on_the_stream_of_its_session() -> None:
    async def main() -> str:
        async with served(asking_server()) as (url, _), Client(url, revision=CORE, elicitation=ann) as client:
            return await poll_only(client)

    assert run_async(main()) == "Hello, Ann!"


def test_the_result_of_a_task_says_what_kind_it_is_where_every_result_does() -> None:
    """The official TypeScript package of the extension reads no other; in the older form it says nothing."""

    async def main(revision: str, method: str) -> Any:
        async with Client(asking_server(), revision=revision) as client:
            task = await client.start_task("research")
            await task.result()
            return await client.request(method, {"taskId": task.id})

    assert run_async(main(EXTENSION, "tasks/get"))["result"]["resultType"] == "complete"
    assert "resultType" not in run_async(main(CORE, "tasks/result"))


def test_a_cancelled_task_is_not_asked_for_its_result() -> None:
    """The official TypeScript SDK answers that with an internal error: there is none."""

    async def refuse(request: ServerRequest, call_next: CallNext) -> Any:
        if request.method == "tasks/result":
            raise RequestFailed("Task has no result stored")
        return await call_next(request)

    async def main() -> None:
        async with Client(asking_server(middleware=[refuse]), revision=CORE, elicitation=never) as client:
            task = await client.start_task("greet")
            await task.cancel()
            await task.refresh()
            await task.result()

    async def never(question: t.ElicitRequestParams) -> Any:
        await asyncio.Event().wait()

    with pytest.raises(RequestFailed, match="was cancelled"):
        run_async(main())


def test_a_tool_that_is_no_task_cannot_be_called_as_one() -> None:
    async def main() -> RequestFailed:
        async with Client(asking_server(), revision=CORE) as client:
            with pytest.raises(RequestFailed) as failed:
                await client.request("tools/call", {"name": "echo", "arguments": {"text": "x"}, "task": {}})
            return failed.value

    error = run_async(main())
    assert (error.code, error.data) == (-32601, {"method": "tools/call", "taskSupport": "forbidden"})


def test_where_tasks_are_an_extension_the_older_wish_for_one_is_ignored() -> None:
    async def main() -> Any:
        async with Client(asking_server(), revision=EXTENSION) as client:
            return await client.request("tools/call", {"name": "echo", "arguments": {"text": "x"}, "task": {}})

    assert run_async(main())["content"][0]["text"] == "x"


def test_a_question_that_the_client_answers_with_an_error_is_no_longer_waited_for() -> None:
    server = Server("asking")
    failed, seen = asyncio.Event(), asyncio.Event()

    @server.tool(task=True)
    async def greet(ctx: Context) -> str:
        try:
            await ctx.elicit("Who?", str)
        except RequestFailed as error:
            failed.set()
            await seen.wait()
            return error.message
        return "answered"

    def fail(question: t.ElicitRequestParams) -> Any:
        raise RequestFailed("there is no screen")

    async def main() -> tuple[str, str]:
        async with Client(server, revision=CORE, elicitation=fail) as client:
            task = await client.start_task("greet")
            await failed.wait()
            state = await task.refresh()
            seen.set()
            assert state is not None
            return state.status, (await task.result()).text

    assert run_async(main()) == ("working", "there is no screen")


def test_a_call_whose_question_cannot_be_answered_cancels_its_task() -> None:
    server = Server("asking")
    cancelled = asyncio.Event()

    @server.tool(task=True)
    async def greet(ctx: Context) -> str:
        try:
            await ctx.elicit("Who?", str)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "answered"

    def fail(question: t.ElicitRequestParams) -> Any:
        raise RequestFailed("there is no screen")

    async def main() -> None:
        async with Client(server, revision=EXTENSION, elicitation=fail) as client:
            with pytest.raises(RequestFailed, match="there is no screen"):
                await client.call_tool("greet")
            await cancelled.wait()

    run_async(main())
