"""Tasks of a file that several processes use: what is done at another one than the one that runs the task."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.tasks.talk import CORE, EXTENSION, FORMS, Gate, TaskPeer, opened
from tests.extensions.tasks.test_polling import job_of
from tests.server.talk import accept, again, reach
from trunkline import Context, Server
from trunkline.extensions import SqliteTaskBackend, TaskOptions, TaskSettings

ASKS: dict[str, Any] = {"elicitation": {"form": {}}}
POLLED = TaskSettings(slow_calls="poll", poll_after=0.01)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, so that no test waits."""
    monkeypatch.setattr("trunkline.extensions.tasks.other_processes._LOOK_SECONDS", 0.01)


def make(path: Path, gate: Gate, settings: TaskSettings | None = None) -> Server:
    """Create one of the servers that share a file."""
    given = settings or TaskSettings()
    tasks = TaskSettings(backend=path, slow_calls=given.slow_calls, poll_after=given.poll_after)
    server = Server("s", tasks=tasks, state_keys=["k" * 43])

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


@asynccontextmanager
async def pair(
    path: Path, gate: Gate, revision: str, settings: TaskSettings | None = None
) -> AsyncIterator[tuple[TaskPeer, TaskPeer]]:
    """Connect a client to each of two servers with one file; the first runs the tasks."""
    first, second = make(path, gate, settings), make(path, gate, settings)
    async with opened(first, revision, ASKS) as here, opened(second, revision, ASKS) as there:
        yield here, there


async def test_a_question_can_be_answered_at_another_process(tmp_path: Path) -> None:
    async with pair(tmp_path / "t", Gate(), EXTENSION) as (here, there):
        id = await here.start("ask")
        key, _ = await there.question(id)
        await there.answer(id, key, accept("red"))
        outcome = await there.outcome(id)
        state = await here.get(id)
    assert outcome["content"][0]["text"] == "accept red"
    assert state["status"] == "completed"


async def test_who_waits_at_another_process_is_asked_there(tmp_path: Path) -> None:
    async with pair(tmp_path / "t", Gate(), CORE) as (here, there):
        id = await here.start("ask")
        await here.until(id, "input_required")
        waiting = await there.peer.send("tasks/result", {"taskId": id})
        asked, question = await there.question(id)
        await there.answer(id, asked, accept("red"))
        while (message := await there.peer.hear()).get("id") != waiting:
            pass
    assert question["params"]["message"] == "Colour?"
    assert question["params"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": id}
    assert message["result"]["content"][0]["text"] == "accept red"


async def test_the_result_of_a_job_is_asked_for_at_another_process(tmp_path: Path) -> None:
    servers = [make(tmp_path / "t", Gate(), POLLED) for _ in range(2)]
    async with reach(servers[0], EXTENSION, ASKS) as here, reach(servers[1], EXTENSION, ASKS) as there:
        job = job_of(await here.call("late"))
        params = {"name": "job_result", "arguments": {"job": job}}
        asked = await there.result("tools/call", params)
        while asked.get("resultType") != "input_required":
            asked = await there.result("tools/call", params)
        answered = await there.result("tools/call", again(params, asked, accept("red")))
    for server in servers:
        await server.aclose()
    assert answered["content"][0]["text"] == "accept red"


async def test_an_error_of_a_client_at_another_process_is_that_of_the_question(tmp_path: Path) -> None:
    async with pair(tmp_path / "t", Gate(), CORE) as (here, there):
        id = await here.start("ask")
        await here.until(id, "input_required")
        waiting = await there.peer.send("tasks/result", {"taskId": id})
        asked, _ = await there.question(id)
        await there.peer.say({"jsonrpc": "2.0", "id": asked, "error": {"code": -32603, "message": "no screen"}})
        while (message := await there.peer.hear()).get("id") != waiting:
            pass
    assert message["error"]["message"] == "The client could not answer the question"


@FORMS
async def test_a_task_that_is_cancelled_at_another_process_stops(revision: str, tmp_path: Path) -> None:
    gate = Gate()
    async with pair(tmp_path / "t", gate, revision) as (here, there):
        id = await here.start("work")
        await gate.entered.wait()
        await there.cancel(id)
        await gate.cancelled.wait()
        state = await here.get(id)
    assert state["status"] == "cancelled"


async def test_a_file_that_cannot_be_read_for_a_while_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path / "t", Gate(), EXTENSION) as (here, there):
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
        await asyncio.sleep(0.05)
        assert server.tasks is not None
        assert not server.tasks._chores  # type: ignore[attr-defined]
