"""Tasks that several servers share on one store: what is done at another one than the runner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.server.talk import accept, again
from tests.server.tasks.talk import CORE, EXTENSION, FINISHED, FORMS, Gate, TaskPeer, opened
from tests.server.tasks.test_polling import job_of
from tests.server.tasks.test_subscriptions import listen, told
from trunkline import Context, Server
from trunkline.extensions import TaskOptions, TaskSettings
from trunkline.server.runtime import runtime_for

ASKS: dict[str, Any] = {"elicitation": {"form": {}}}
Pair = Callable[..., AbstractAsyncContextManager[tuple[TaskPeer, TaskPeer]]]


def make(options: dict[str, Any], gate: Gate, **settings: Any) -> Server:
    """Create one of the servers that share tasks."""
    server = Server("s", tasks=TaskSettings(**settings), **{"state_keys": ["5a" * 32], **options})

    @server.tool(task=TaskOptions(poll=0.05))
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Colour?", str)
        return f"{answer.action} {answer.data if answer.accepted else ''}".strip()

    @server.tool(task=TaskOptions(poll=0.05))
    async def late(ctx: Context) -> str:
        await asyncio.sleep(0.05)
        return await ask(ctx)

    @server.tool(task=TaskOptions(poll=0.05))
    async def work() -> str:
        await gate.wait()
        return "done"

    return server


@pytest.fixture
def pair(durable: dict[str, Any]) -> Pair:
    """Return what connects a client to each of two servers that share their tasks; the first runs them."""

    @asynccontextmanager
    async def connect(
        revision: str, gate: Gate | None = None, **settings: Any
    ) -> AsyncIterator[tuple[TaskPeer, TaskPeer]]:
        async with AsyncExitStack() as stack:
            servers = [make(durable, gate or Gate(), **settings) for _ in range(2)]
            here, there = [await stack.enter_async_context(opened(each, revision, ASKS)) for each in servers]
            yield here, there

    return connect


async def test_a_question_can_be_answered_at_another_process(pair: Pair) -> None:
    async with pair(EXTENSION) as (here, there):
        id = await here.start("ask")
        key, _ = await there.question(id)
        await there.answer(id, key, accept("red"))
        outcome = await there.outcome(id)
        state = await here.get(id)
    assert outcome["content"][0]["text"] == "accept red"
    assert state["status"] == "completed"


async def test_listeners_at_each_process_are_told_of_the_question_and_once_of_the_end(pair: Pair) -> None:
    async with pair(EXTENSION) as (here, there):
        id = await here.start("late")
        for peer in (here, there):
            _, acknowledged = await listen(peer, id)
            assert acknowledged["notifications"] == {"taskIds": [id]}
        asked = [await told(peer, "input_required") for peer in (here, there)]
        await there.answer(id, next(iter(asked[0]["inputRequests"])), accept("red"))
        ended = [await told(peer, *FINISHED) for peer in (here, there)]
        await asyncio.gather(here.peer.settle(), there.peer.settle())
        ends = [[each["status"] for each in peer.peer.notices("notifications/tasks")] for peer in (here, there)]
    assert [each["result"]["content"][0]["text"] for each in ended] == ["accept red"] * 2
    assert [statuses.count("completed") for statuses in ends] == [1, 1]


async def test_who_waits_at_another_process_is_asked_there(pair: Pair) -> None:
    async with pair(CORE) as (here, there):
        id = await here.start("ask")
        await here.until(id, "input_required")
        waiting = await there.peer.send("tasks/result", {"taskId": id})
        asked, question = await there.question(id)
        await there.answer(id, asked, accept("red"))
        answer = await there.peer.answer(waiting)
    assert question["params"]["message"] == "Colour?"
    assert question["params"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": id}
    assert answer["result"]["content"][0]["text"] == "accept red"


async def test_an_error_of_a_client_at_another_process_is_that_of_the_question(pair: Pair) -> None:
    async with pair(CORE) as (here, there):
        id = await here.start("ask")
        await here.until(id, "input_required")
        waiting = await there.peer.send("tasks/result", {"taskId": id})
        asked, _ = await there.question(id)
        await there.peer.say({"jsonrpc": "2.0", "id": asked, "error": {"code": -32603, "message": "no screen"}})
        answer = await there.peer.answer(waiting)
    assert answer["error"]["message"] == "The client could not answer the question"


async def test_the_result_of_a_job_is_asked_for_at_another_process(pair: Pair) -> None:
    async with pair(EXTENSION, slow_calls="poll", poll_after=0.01) as (here, there):
        for peer in (here, there):
            peer.peer.capabilities = dict(ASKS)
        job = job_of(await here.peer.call("late"))
        params = {"name": "job_result", "arguments": {"job": job}}
        asked = await there.peer.result("tools/call", params)
        while asked.get("resultType") != "input_required":
            asked = await there.peer.result("tools/call", params)
        answered = await there.peer.result("tools/call", again(params, asked, accept("red")))
    assert answered["content"][0]["text"] == "accept red"


@FORMS
async def test_a_task_that_is_cancelled_at_another_process_stops(revision: str, pair: Pair) -> None:
    gate = Gate()
    async with pair(revision, gate) as (here, there):
        id = await here.start("work")
        await gate.entered.wait()
        await there.cancel(id)
        await gate.cancelled.wait()
        state = await here.get(id)
    assert state["status"] == "cancelled"


async def test_nothing_runs_for_other_workers_in_the_memory_of_one_process() -> None:
    gate = Gate()
    server = make({}, gate)
    async with opened(server, EXTENSION, ASKS) as peer:
        id = await peer.start("work")
        await gate.entered.wait()
        tasks: Any = runtime_for(server).tasks
        chores, subscriptions = set(tasks._chores), list(tasks._others._subscriptions)
        gate.open.set()
        await peer.until(id)
    assert (chores, subscriptions) == (set(), [])
