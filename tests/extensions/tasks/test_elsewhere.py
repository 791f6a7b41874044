"""Tasks that several processes share, in a file or on a store: what is done at another one than the runner."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.tasks.talk import CORE, EXTENSION, FINISHED, FORMS, Gate, TaskPeer, opened
from tests.extensions.tasks.test_polling import job_of
from tests.extensions.tasks.test_subscriptions import listen, told
from tests.server.talk import accept, again
from trunkline import Context, Server
from trunkline.extensions import SqliteTaskBackend, TaskBackend, TaskOptions, TaskSettings
from trunkline.extensions.tasks.store_backend import StoreTaskBackend
from trunkline.store.memory import MemoryContents, MemoryEngine

ASKS: dict[str, Any] = {"elicitation": {"form": {}}}
Pair = Callable[..., AbstractAsyncContextManager[tuple[TaskPeer, TaskPeer]]]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, so that no test waits."""
    monkeypatch.setattr("trunkline.extensions.tasks.other_processes._LOOK_SECONDS", 0.01)


def make(backend: TaskBackend | Path, gate: Gate, **settings: Any) -> Server:
    """Create one of the servers that share tasks."""
    server = Server("s", tasks=TaskSettings(backend=backend, **settings), state_keys=["k" * 43])

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


@pytest.fixture(params=["file", "store"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    """Return what connects a client to each of two servers that share their tasks; the first runs them."""
    contents = MemoryContents(now=time.time, random=os.urandom)

    @asynccontextmanager
    async def connect(
        revision: str, gate: Gate | None = None, **settings: Any
    ) -> AsyncIterator[tuple[TaskPeer, TaskPeer]]:
        async with AsyncExitStack() as stack:
            backends: list[Any] = [tmp_path / "t"] * 2
            if request.param == "store":
                backends = [StoreTaskBackend(MemoryEngine(contents), now=time.time) for _ in range(2)]
                for backend in backends:
                    stack.push_async_callback(backend.aclose)
            servers = [make(backend, gate or Gate(), **settings) for backend in backends]
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


@pytest.mark.parametrize("pair", ["file"], indirect=True)
async def test_a_file_that_cannot_be_read_for_a_while_is_read_later(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(EXTENSION) as (here, there):
        id = await here.start("ask")
        key, _ = await there.question(id)
        failed = asyncio.Event()
        with monkeypatch.context() as broken:
            get = SqliteTaskBackend.get

            async def fail_here(self: SqliteTaskBackend, id: str) -> Any:
                if asyncio.current_task() is not None and "_follow" in repr(asyncio.current_task()):
                    failed.set()
                    raise sqlite3.OperationalError("database is locked")
                return await get(self, id)

            broken.setattr(SqliteTaskBackend, "get", fail_here)
            await there.answer(id, key, accept("red"))
            await failed.wait()
        outcome = await there.outcome(id)
    assert outcome["content"][0]["text"] == "accept red"
    assert "could not be polled" in caplog.text


async def test_nothing_is_looked_at_when_no_task_runs(tmp_path: Path) -> None:
    gate = Gate()
    server = make(tmp_path / "t", gate)
    async with opened(server, EXTENSION, ASKS) as peer:
        id = await peer.start("work")
        gate.open.set()
        await peer.until(id)
        assert server.tasks is not None
        while server.tasks._chores:  # type: ignore[attr-defined]
            await peer.peer.settle()
