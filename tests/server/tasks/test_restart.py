"""What becomes of tasks when their server ends: in order, by a signal, and for the next process."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from tests.server.talk import accept, reach
from tests.server.tasks.conftest import ENGINES
from tests.server.tasks.records import make_record
from tests.server.tasks.talk import CORE, EXTENSION, FORMS, TaskPeer, at_workshop, opened, serving, workshop
from tests.support import run_async
from trunkline import Context, Server
from trunkline.extensions import TaskOptions
from trunkline.protocol.caller import Principal
from trunkline.server.runtime import runtime_for
from trunkline.server.tasks.leases import Leases
from trunkline.server.tasks.record import CallerFacts, TaskRecord
from trunkline.server.tasks.records import TaskRecords
from trunkline.store.interface import Store
from trunkline.store.memory import MemoryContents, MemoryEngine

ASKS: Mapping[str, Any] = {"elicitation": {}}
Make = Callable[[Server, "list[str]"], None]


@asynccontextmanager
async def restarted(
    stored: dict[str, Any], revision: str, make: Make, begin: Callable[[TaskPeer], Any], **options: Any
) -> AsyncIterator[tuple[TaskPeer, str, list[str]]]:
    """Start a task at one server, end that server, and connect to the next one; ``make`` adds the tools to both."""
    events: list[str] = []
    first = Server("s", **stored, **options)
    make(first, events)
    async with opened(first, revision, ASKS) as peer:
        id = await begin(peer)
    events.append("--")
    second = Server("s", **stored, **options)
    make(second, events)
    async with opened(second, revision, ASKS) as peer:
        yield peer, id, events


def slow(retry: int) -> Make:
    """Return what adds a tool that ends only in its second run."""

    def make(server: Server, events: list[str]) -> None:
        @server.tool(task=TaskOptions(retry=retry))
        async def work() -> str:
            events.append("run")
            if "--" not in events:
                await asyncio.Event().wait()
            return "done"

    return make


async def begin_work(peer: TaskPeer) -> str:
    """Start the task and let it run."""
    id = await peer.start("work")
    await peer.peer.settle()
    return id


# --- unfinished work --------------------------------------------------------------------------------------------------


@FORMS
async def test_unfinished_work_fails_by_default(revision: str, durable: dict[str, Any]) -> None:
    async with restarted(durable, revision, slow(0), begin_work) as (peer, id, events):
        state = await peer.until(id)
    assert (state["status"], events) == ("failed", ["run", "--"])
    assert "The server stopped while the task was running" in state["statusMessage"]


@FORMS
async def test_unfinished_work_runs_again_where_that_is_allowed(revision: str, durable: dict[str, Any]) -> None:
    async with restarted(durable, revision, slow(1), begin_work) as (peer, id, events):
        outcome = await peer.outcome(id)
    assert outcome["content"][0]["text"] == "done"
    assert events == ["run", "--", "run"]


@FORMS
async def test_a_result_is_there_after_a_restart(revision: str, durable: dict[str, Any]) -> None:
    def make(server: Server, events: list[str]) -> None:
        @server.tool(task=True)
        async def work() -> str:
            events.append("run")
            return "done"

    async def begin(peer: TaskPeer) -> str:
        id = await peer.start("work")
        await peer.until(id)
        return id

    async with restarted(durable, revision, make, begin) as (peer, id, events):
        outcome = await peer.outcome(id)
    assert (outcome["content"][0]["text"], events) == ("done", ["run", "--"])


@FORMS
async def test_a_tool_that_is_gone_makes_its_task_fail(revision: str, durable: dict[str, Any]) -> None:
    def make(server: Server, events: list[str]) -> None:
        name = "work" if "--" not in events else "other"

        @server.tool(name=name, task=TaskOptions(retry=1))
        async def work() -> str:
            await asyncio.Event().wait()
            return "never"

    async with restarted(durable, revision, make, begin_work) as (peer, id, _):
        outcome = await peer.outcome(id)
    assert outcome["error"]["message"] == "The server no longer has the tool 'work'"


async def left_behind(store: Store, *records: TaskRecord) -> None:
    """Store tasks whose runner has ended."""
    ended = TaskRecords(store, runner="gone", now=time.time)
    for record in records:
        await ended.create(record)
    await Leases(ended, 30.0).release("gone", list(ended.held))


async def test_a_record_that_cannot_run_again_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryEngine(MemoryContents(now=time.time, random=os.urandom))
    now = time.time()
    whole = b'{"name":"work","arguments":{}}'
    members: dict[str, Any] = {"retry": 1, "runner": "gone", "created": now, "updated": now}
    await left_behind(
        store, make_record("bad", params=Raw(b"[]"), **members), make_record("good", params=Raw(whole), **members)
    )
    async with at_workshop(EXTENSION, store=store) as (peer, gate):
        gate.open.set()
        bad, good = await peer.until("bad"), await peer.until("good")
    assert (bad["status"], good["status"]) == ("failed", "completed")
    assert "cannot run again" in caplog.text


# --- what a second run finds ------------------------------------------------------------------------------------------


@FORMS
async def test_what_ran_once_is_not_repeated(revision: str, durable: dict[str, Any]) -> None:
    def make(server: Server, events: list[str]) -> None:
        @server.tool(task=TaskOptions(retry=1))
        async def work(ctx: Context) -> str:
            def pay() -> int:
                events.append("pay")
                return 7

            receipt = await ctx.once("pay", pay)
            if "--" not in events:
                events.append("stored")
                stored.set()
                await asyncio.Event().wait()
            return f"receipt {receipt}"

    async def begin(peer: TaskPeer) -> str:
        id = await peer.start("work")
        await stored.wait()
        return id

    stored = asyncio.Event()
    async with restarted(durable, revision, make, begin) as (peer, id, events):
        outcome = await peer.outcome(id)
    assert outcome["content"][0]["text"] == "receipt 7"
    assert events == ["pay", "stored", "--"]


def asking(server: Server, events: list[str]) -> None:
    """Add a tool that asks two questions."""

    @server.tool(task=TaskOptions(retry=2))
    async def work(ctx: Context) -> str:
        first = await ctx.elicit("First?", int, key="q")
        events.append(f"first {first.data}")
        second = await ctx.elicit("Second?", str, key="q.2")
        return f"{first.data} {second.data}"


async def answer_first(peer: TaskPeer) -> str:
    """Answer the first question, wrongly at first, and leave the second one open."""
    id = await peer.start("work")
    key, _ = await peer.question(id)
    await peer.answer(id, key, accept("many"))
    while (retried := (await peer.question(id))[0]) == key:
        pass
    await peer.answer(id, retried, accept(1))
    while (await peer.question(id))[1]["params"]["message"] != "Second?":
        pass
    return id


async def test_answers_are_kept_and_open_questions_are_asked_again_under_new_keys(durable: dict[str, Any]) -> None:
    async with restarted(durable, EXTENSION, asking, answer_first) as (peer, id, events):
        key, question = await peer.question(id)
        await peer.answer(id, key, accept("two"))
        outcome = await peer.outcome(id)
    assert question["params"]["message"] == "Second?"
    # The keys of the first run, of which the handler chose one that looks like a key of the second.
    assert key not in ("q", "q-2", "q.2")
    assert outcome["content"][0]["text"] == "1 two"
    assert events == ["first 1", "--", "first 1"]


async def test_a_question_of_the_core_is_asked_again_by_the_next_process(durable: dict[str, Any]) -> None:
    async with restarted(durable, CORE, asking, answer_first) as (peer, id, events):
        # The session that created the task is gone; the caller that fetches the result is asked.
        waiting = await peer.peer.send("tasks/result", {"taskId": id})
        key, question = await peer.question(id)
        await peer.answer(id, key, accept("two"))
        result = (await peer.peer.answer(waiting))["result"]
    assert question["params"]["message"] == "Second?"
    assert result["content"][0]["text"] == "1 two"
    assert events == ["first 1", "--", "first 1"]


@FORMS
async def test_a_second_run_has_its_lifespan_and_middleware(revision: str, durable: dict[str, Any]) -> None:
    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[str]:
        await asyncio.sleep(0.01)
        yield "database"

    async def remember(request: Any, call_next: Any) -> Any:
        request.context.set_state("user", "ann")
        return await call_next(request)

    def make(server: Server, events: list[str]) -> None:
        @server.tool(task=TaskOptions(retry=1))
        async def work(ctx: Context) -> str:
            events.append("run")
            if "--" not in events:
                await asyncio.Event().wait()
            return f"{ctx.lifespan_context} {ctx.get_state('user')}"

    options = {"lifespan": lifespan, "middleware": [remember]}
    async with restarted(durable, revision, make, begin_work, **options) as (peer, id, _):
        outcome = await peer.outcome(id)
    assert outcome["content"][0]["text"] == "database ann"


@FORMS
async def test_a_lifespan_that_fails_makes_the_second_run_fail(revision: str) -> None:
    runs: list[int] = []

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[None]:
        runs.append(1)
        if len(runs) > 1:
            raise OSError("no database")
        yield

    store = MemoryEngine(MemoryContents(now=time.time, random=os.urandom))
    first, second = Server("s", store=store, lifespan=lifespan), Server("s", store=store, lifespan=lifespan)
    events: list[str] = []
    for server in (first, second):
        slow(1)(server, events)
    async with opened(first, revision) as peer:
        id = await begin_work(peer)
    records = TaskRecords(store, runner="other", now=time.time)
    async with reach(second, revision, greet=False) as raw:
        while (record := await records.get(id)) is None or not record.finished:
            await raw.settle()
    await second.aclose()
    assert (record.status, record.message, events) == ("failed", "Internal error", ["run"])


@FORMS
async def test_a_second_run_knows_whose_task_it_is(revision: str) -> None:
    store = MemoryEngine(MemoryContents(now=time.time, random=os.urandom))
    facts = CallerFacts(revision, {}, principal=Principal(subject="ann", scopes=frozenset({"dig"})), transport="http")
    now, told = time.time(), asyncio.Event()
    seen: list[Any] = []
    params = Raw(b'{"name":"work","arguments":{}}')
    if revision == EXTENSION:
        params = Raw(
            b'{"name":"work","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
            b'"io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},'
            b'"io.modelcontextprotocol/clientCapabilities":{}}}'
        )
    record = make_record("one", caller=facts, params=params, retry=1, runner="gone", created=now, updated=now)
    await left_behind(store, record)

    async def work(ctx: Context) -> str:
        ctx.require_scopes("dig")
        seen.append((ctx.auth and ctx.auth.subject, ctx.transport, ctx.client.revision))
        told.set()
        return "done"

    async with opened(serving(work, store=store), revision):
        await told.wait()
    assert seen == [("ann", "http", revision)]


# --- the end of a server ----------------------------------------------------------------------------------------------


@FORMS
async def test_the_end_of_a_server_stops_its_tasks(revision: str, stored: dict[str, Any]) -> None:
    server, gate = workshop(**stored)
    async with reach(server, revision, {"extensions": {"io.modelcontextprotocol/tasks": {}}}) as raw:
        await TaskPeer(raw).start()
        await gate.entered.wait()
        await server.aclose()
    assert gate.cancelled.is_set()


async def test_closing_without_waiting_stops_the_tasks_too(stored: dict[str, Any]) -> None:
    server, gate = workshop(**stored)
    async with reach(server, CORE) as raw:
        await TaskPeer(raw).start()
        await gate.entered.wait()
        server.close()
        server.close()
        await gate.cancelled.wait()
        await server.aclose()


async def test_servers_that_share_a_store_do_not_take_each_others_tasks(durable: dict[str, Any]) -> None:
    first, gate = workshop(task=TaskOptions(retry=5), **durable)
    second, _ = workshop(task=TaskOptions(retry=5), **durable)
    async with opened(first, CORE) as peer:
        id = await peer.start()
        await gate.entered.wait()
        async with opened(second, CORE) as other:
            await other.peer.settle()
            assert (await other.get(id))["status"] == "working"
        gate.open.set()
        assert (await peer.until(id))["status"] == "completed"
    assert gate.count == 1


@FORMS
async def test_a_server_can_be_used_again_after_its_end(revision: str, stored: dict[str, Any]) -> None:
    server, gate = workshop(task=TaskOptions(retry=1), **stored)
    async with opened(server, revision) as peer:
        id = await peer.start("work", n=8)
        await gate.entered.wait()
    gate.open.set()
    async with opened(server, revision) as peer:
        outcome = await peer.outcome(id)
    assert (outcome["content"][0]["text"], gate.count) == ("8", 2)


# In memory alone: a loop that ends without a word leaves the sockets of other engines open.
@pytest.mark.parametrize("stored", ENGINES[:2], indirect=True)
def test_a_loop_that_ends_leaves_its_work_to_the_next(stored: dict[str, Any]) -> None:
    server = Server("s", **stored)
    runs: list[int] = []

    @server.tool(task=TaskOptions(retry=1))
    async def work() -> str:
        runs.append(1)
        if len(runs) == 1:
            await asyncio.Event().wait()
        return "done"

    async def first() -> str:
        async with reach(server, CORE) as raw:
            return await begin_work(TaskPeer(raw))

    async def second(id: str) -> Any:
        async with opened(server, CORE) as peer:
            return await peer.outcome(id)

    outcome = run_async(second(run_async(first())))
    assert (outcome["content"][0]["text"], len(runs)) == ("done", 2)


class UnusableStore(MemoryEngine):
    """A store that cannot be used at all."""

    async def connect(self) -> None:
        raise OSError("is a directory")

    @property
    def generation(self) -> str:
        return ""


async def test_a_store_that_cannot_be_used_is_reported_and_does_not_stop_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, _ = workshop(store=UnusableStore(MemoryContents(now=time.time, random=os.urandom)))

    @server.tool
    async def plain() -> str:
        return "fine"

    async with opened(server, CORE) as peer:
        result = await peer.peer.call("plain")
        error = await peer.peer.error("tools/call", {"name": "work", "arguments": {}, "task": {}})
    assert result["content"][0]["text"] == "fine"
    assert error["code"] == -32603
    assert "could not be taken over" in caplog.text


# --- draining ---------------------------------------------------------------------------------------------------------


async def test_draining_waits_for_tasks_that_would_be_lost() -> None:
    server, gate = workshop()
    async with opened(server, CORE) as peer:
        id = await peer.start()
        await gate.entered.wait()
        tasks = runtime_for(server).tasks
        assert tasks is not None
        draining = asyncio.ensure_future(tasks.drain(30.0))
        await peer.peer.settle()
        assert not draining.done()
        gate.open.set()
        await draining
        assert (await peer.get(id))["status"] == "completed"


async def test_draining_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    server, gate = workshop()
    async with opened(server, CORE) as peer:
        await peer.start()
        await gate.entered.wait()
        tasks = runtime_for(server).tasks
        assert tasks is not None
        await tasks.drain(0.0)
        await tasks.drain(0.01)
    assert "1 tasks did not finish in 0.01 s" in caplog.text


async def test_draining_does_not_wait_for_tasks_that_another_process_runs_again(durable: dict[str, Any]) -> None:
    server, gate = workshop(task=TaskOptions(retry=1), **durable)
    async with opened(server, CORE) as peer:
        await peer.start()
        await gate.entered.wait()
        tasks = runtime_for(server).tasks
        assert tasks is not None
        await tasks.drain(1000.0)


async def test_draining_does_not_wait_for_people() -> None:
    server = Server("s")

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        return str((await ctx.elicit("Well?", str)).data)

    async with opened(server, EXTENSION, ASKS) as peer:
        await peer.question(await peer.start("work"))
        tasks = runtime_for(server).tasks
        assert tasks is not None
        await tasks.drain(1000.0)
