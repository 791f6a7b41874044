"""Jobs to poll, for clients that have neither tasks nor patience."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.interaction.wire import Peer
from tests.server.talk import accept, again, reach
from tests.server.tasks.talk import ALL, CORE, EXTENSION, OLDER, Gate, at_workshop, workshop
from trunkline import Context, Server
from trunkline.errors import RequestFailed, ToolError
from trunkline.extensions import TaskLimits, TaskOptions, TaskSettings

POLL = TaskSettings(slow_calls="poll", poll_after=0.01)
EVERY = pytest.mark.parametrize("revision", ALL)


def job_of(result: Any) -> str:
    """Return the id of the job that a slow call was answered with."""
    text: str = result["content"][0]["text"]
    return text.partition("as the job ")[2].partition(".")[0]


async def listed(peer: Peer) -> dict[str, Any]:
    """Return the tools that a client sees, by name."""
    return {each["name"]: each for each in (await peer.result("tools/list"))["tools"]}


# --- what is listed ---------------------------------------------------------------------------------------------------


@EVERY
async def test_a_client_without_tasks_sees_the_tools_of_jobs(revision: str) -> None:
    server, _ = workshop(tasks=POLL)
    async with reach(server, revision) as peer:
        tools = await listed(peer)
    assert list(tools) == ["work", "job_status", "job_result"]
    assert not any("outputSchema" in each for each in tools.values())


async def test_a_client_with_the_extension_sees_neither_jobs_nor_less_of_a_tool() -> None:
    async with at_workshop(EXTENSION, tasks=POLL) as (peer, _):
        tools = await listed(peer.peer)
        error = await peer.peer.error("tools/call", {"name": "job_status", "arguments": {"job": "x"}})
    assert list(tools) == ["work"]
    assert "outputSchema" in tools["work"]
    assert error["code"] == -32602


async def test_what_is_listed_depends_on_the_request_and_is_not_shared() -> None:
    async with at_workshop(EXTENSION, tasks=POLL) as (peer, _):
        first = await peer.peer.result("tools/list")
        peer.peer.capabilities.clear()
        second = await peer.peer.result("tools/list")
    assert (len(first["tools"]), len(second["tools"])) == (1, 3)
    assert {first["cacheScope"], second["cacheScope"]} == {"private"}


@EVERY
async def test_other_tools_keep_their_output_schema(revision: str) -> None:
    server, _ = workshop(tasks=POLL)

    @server.tool
    async def quick() -> int:
        return 1

    async with reach(server, revision) as peer:
        tools = await listed(peer)
    assert ("outputSchema" in tools["quick"]) == (revision not in OLDER[:2])


async def test_a_server_that_holds_calls_has_no_tools_of_jobs() -> None:
    server, _ = workshop()
    async with reach(server, CORE) as peer:
        tools = await listed(peer)
    assert list(tools) == ["work"]
    assert "outputSchema" in tools["work"]


async def test_a_server_without_task_tools_has_no_tools_of_jobs() -> None:
    server, _ = workshop(task=False, tasks=POLL)
    async with reach(server, CORE) as peer:
        assert list(await listed(peer)) == ["work"]


async def test_the_tools_of_jobs_belong_to_the_outermost_server() -> None:
    child, gate = workshop(tasks=POLL)
    holding, polling = Server("holding"), Server("polling", tasks=POLL)
    holding.mount(child, "child")
    polling.mount(child, "child")
    async with reach(holding, CORE) as peer:
        assert list(await listed(peer)) == ["child_work"]
    async with reach(polling, CORE) as peer:
        assert list(await listed(peer)) == ["child_work", "job_status", "job_result"]
        job = job_of(await peer.call("child_work", {"n": 5}))
        gate.open.set()
        result = await peer.call("job_result", {"job": job})
    await polling.aclose()
    assert result["content"][0]["text"] == "5"


def test_their_names_are_taken() -> None:
    server, _ = workshop(tasks=POLL)
    with pytest.raises(ValueError, match="job_status"):

        @server.tool
        async def job_status() -> str:
            return "mine"

    assert list(server.registry.tools) == ["work", "job_status", "job_result"]


def test_more_tools_can_be_added_and_removed() -> None:
    server, _ = workshop(tasks=POLL)

    @server.tool(task=True)
    async def more() -> str:
        return "more"

    server.remove_tool("work")
    assert list(server.registry.tools) == ["more", "job_status", "job_result"]


# --- slow calls -------------------------------------------------------------------------------------------------------


@EVERY
async def test_a_quick_call_is_answered_directly(revision: str) -> None:
    server, gate = workshop(tasks=TaskSettings(slow_calls="poll"))
    gate.open.set()
    async with reach(server, revision) as peer:
        assert (await peer.call("work", {"n": 2}))["content"][0]["text"] == "2"


@EVERY
async def test_a_slow_call_is_answered_with_a_job_and_its_result_can_be_fetched(revision: str) -> None:
    server, gate = workshop(tasks=POLL)
    async with reach(server, revision) as peer:
        first = await peer.call("work", {"n": 2})
        job = job_of(first)
        status = await peer.call("job_status", {"job": job})
        early = await peer.call("job_result", {"job": job, "wait": 0})
        gate.open.set()
        results = [await peer.call("job_result", {"job": job}) for _ in range(2)]
    await server.aclose()
    assert '"working"' in status["content"][0]["text"]
    assert job_of(early) == job
    assert [each["content"][0]["text"] for each in results] == ["2", "2"]
    assert ("structuredContent" in first) == (revision not in OLDER[:2])


async def test_a_tool_may_be_polled_sooner_than_others() -> None:
    server, gate = workshop(task=TaskOptions(after=0.01), tasks=TaskSettings(slow_calls="poll", poll_after=1000.0))
    async with reach(server, CORE) as peer:
        assert job_of(await peer.call("work"))
        gate.open.set()
    await server.aclose()


async def test_a_handler_may_become_a_job_by_itself() -> None:
    server, gate = Server("s", tasks=TaskSettings(slow_calls="poll", poll_after=1000.0)), Gate()

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        assert await ctx.continue_as_task()
        await gate.wait()
        return "done"

    async with reach(server, CORE) as peer:
        job = job_of(await peer.call("work"))
        gate.open.set()
        assert (await peer.call("job_result", {"job": job}))["content"][0]["text"] == "done"
    await server.aclose()


async def test_the_result_of_a_job_is_waited_for() -> None:
    server, gate = workshop(tasks=POLL)
    async with reach(server, CORE) as peer:
        job = job_of(await peer.call("work", {"n": 3}))
        waiting = await peer.send("tools/call", {"name": "job_result", "arguments": {"job": job}})
        await peer.settle()
        gate.open.set()
        assert (await peer.answer(waiting))["result"]["content"][0]["text"] == "3"
    await server.aclose()


async def test_the_status_of_a_job_says_what_the_tool_reported() -> None:
    server, gate = Server("s", tasks=POLL), Gate()

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        await gate.wait()
        await ctx.report_progress(3, 4, "digging")
        await asyncio.Event().wait()
        return "never"

    async with reach(server, CORE) as peer:
        job = job_of(await peer.call("work"))
        gate.open.set()
        await peer.settle()
        status = await peer.call("job_status", {"job": job})
    await server.aclose()
    assert "3/4: digging" in status["content"][0]["text"]


@pytest.mark.parametrize("tool", ["job_status", "job_result"])
@pytest.mark.parametrize("revision", [CORE, EXTENSION])
async def test_an_unknown_job_is_an_error_for_the_model(tool: str, revision: str) -> None:
    server, _ = workshop(tasks=POLL)
    async with reach(server, revision) as peer:
        result = await peer.call(tool, {"job": 'my "job"'})
    assert result["isError"]
    assert result["content"][0]["text"] == 'There is no job "my \\"job\\"": it may have expired.'


@pytest.mark.parametrize(
    ("error", "text"),
    [(ToolError("on fire"), "on fire"), (RequestFailed("out of stock"), "out of stock")],
    ids=["tool", "request"],
)
async def test_the_failure_of_a_job_is_an_error_for_the_model(error: Exception, text: str) -> None:
    server, gate = Server("s", tasks=POLL), Gate()

    @server.tool(task=True)
    async def work() -> str:
        await gate.wait()
        raise error

    async with reach(server, CORE) as peer:
        job = job_of(await peer.call("work"))
        gate.open.set()
        result = await peer.call("job_result", {"job": job})
    await server.aclose()
    assert (result["isError"], result["content"][0]["text"]) == (True, text)


async def test_a_job_too_many_is_refused() -> None:
    limits = TaskLimits(per_caller=0)
    server, gate = workshop(tasks=TaskSettings(slow_calls="poll", poll_after=0.01, limits=limits))
    async with reach(server, CORE) as peer:
        error = await peer.error("tools/call", {"name": "work", "arguments": {}})
        await gate.cancelled.wait()
    assert error["data"] == {"limit": "per_caller", "allowed": 0}


@pytest.mark.parametrize("revision", ["2025-06-18", CORE, EXTENSION])
async def test_the_questions_of_a_job_are_asked_by_who_wants_its_result(revision: str) -> None:
    server, gate = Server("s", tasks=POLL), Gate()

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        await gate.wait()
        return str((await ctx.elicit("Which?", str)).data)

    async with reach(server, revision, {"elicitation": {}}) as peer:
        job = job_of(await peer.call("work"))
        gate.open.set()
        params = {"name": "job_result", "arguments": {"job": job}}
        answered = {"elicitation/create": accept("red")}
        conversation = await peer.converse("tools/call", params, answered)
    await server.aclose()
    assert conversation.text == "red"
    assert [each["params"]["message"] for each in conversation.questions] == ["Which?"]


async def test_what_a_plain_client_is_asked_before_the_job_is_asked_as_usual() -> None:
    server, gate = Server("s", tasks=POLL), Gate()

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        answer = await ctx.elicit("Which?", str)
        await gate.wait()
        return str(answer.data)

    async with reach(server, EXTENSION, {"elicitation": {}}) as peer:
        params = {"name": "work", "arguments": {}}
        asked = await peer.result("tools/call", params)
        job = job_of(await peer.result("tools/call", again(params, asked, accept("red"))))
        gate.open.set()
        assert (await peer.call("job_result", {"job": job}))["content"][0]["text"] == "red"
    await server.aclose()
