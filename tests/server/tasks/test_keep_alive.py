"""Progress of calls that are held open and silent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.interaction.wire import Peer
from tests.server.talk import reach
from tests.server.tasks.talk import ALL, EXTENSION, Gate, opened, serving, workshop
from trunkline import Client, Context
from trunkline.extensions import TASKS, TaskOptions
from trunkline.testing.clock import FakeClock

EVERY = pytest.mark.parametrize("revision", ALL)


async def call(peer: Peer, **params: Any) -> Any:
    """Call the slow tool with a progress token."""
    return await peer.send("tools/call", {"name": "work", "arguments": {}, **params}, meta={"progressToken": "p"})


async def pass_time(peer: Peer, clock: FakeClock, seconds: float) -> list[Any]:
    """Let time pass; return all progress up to now."""
    clock.advance(seconds)
    await peer.settle()
    return [(round(each["progress"], 3), each.get("message")) for each in peer.notices("notifications/progress")]


@EVERY
async def test_a_silent_call_shows_that_it_lives(revision: str) -> None:
    clock = FakeClock()
    server, gate = workshop(clock=clock)
    async with reach(server, revision) as peer:
        id = await call(peer)
        await gate.entered.wait()
        before = await pass_time(peer, clock, 9.0)
        after = await pass_time(peer, clock, 11.0)
        steps = [each["progress"] for each in peer.notices("notifications/progress")]
        gate.open.set()
        answer = await peer.answer(id)
    messages = ["still running (10 s)", "still running (20 s)"] if revision != ALL[0] else [None, None]
    assert before == []
    assert [message for _, message in after] == messages
    assert 0 < steps[0] < steps[1] < 0.001
    assert answer["result"]["content"][0]["text"] == "1"


@EVERY
async def test_nothing_is_sent_to_who_did_not_ask_for_progress(revision: str) -> None:
    clock = FakeClock()
    server, gate = workshop(clock=clock)
    async with reach(server, revision) as peer:
        await peer.send("tools/call", {"name": "work", "arguments": {}})
        await gate.entered.wait()
        assert await pass_time(peer, clock, 30.0) == []
        gate.open.set()


async def test_a_tool_without_tasks_is_left_alone() -> None:
    clock = FakeClock()
    server, gate = workshop(task=False, clock=clock)
    async with reach(server, EXTENSION) as peer:
        await call(peer)
        await gate.entered.wait()
        assert await pass_time(peer, clock, 30.0) == []
        gate.open.set()


@EVERY
async def test_a_tool_that_reports_itself_is_not_spoken_for(revision: str) -> None:
    clock, steps = FakeClock(), asyncio.Queue[float]()

    async def work(ctx: Context) -> str:
        while (step := await steps.get()) < 100:
            await ctx.report_progress(step, 100)
        return "done"

    async with reach(serving(work, clock=clock), revision) as peer:
        id = await call(peer)
        seen = []
        for step in (5.0, 6.0):
            steps.put_nowait(step)
            await peer.settle()
            seen = await pass_time(peer, clock, 10.0)
        silent = await pass_time(peer, clock, 10.0)
        steps.put_nowait(7.0)
        await peer.settle()
        last = await pass_time(peer, clock, 0.0)
        steps.put_nowait(100.0)
        await peer.answer(id)
    assert [progress for progress, _ in seen] == [5.0, 6.0]
    assert [progress for progress, _ in silent] == [5.0, 6.0, 6.0]
    assert [progress for progress, _ in last] == [5.0, 6.0, 6.0, 7.0]


async def test_it_ends_with_the_call() -> None:
    clock = FakeClock()
    server, gate = workshop(clock=clock)
    gate.open.set()
    async with reach(server, EXTENSION) as peer:
        await peer.answer(await call(peer))
        assert await pass_time(peer, clock, 30.0) == []


async def test_it_ends_when_the_call_becomes_a_task() -> None:
    clock, going = FakeClock(), asyncio.Event()
    gate = Gate()

    async def work(ctx: Context) -> str:
        await going.wait()
        await ctx.continue_as_task()
        await gate.wait()
        return "done"

    async with opened(serving(work, task=TaskOptions(after=None), clock=clock), EXTENSION) as peer:
        id = await call(peer.peer)
        await peer.peer.settle()
        held = await pass_time(peer.peer, clock, 10.0)
        going.set()
        task = (await peer.peer.answer(id))["result"]
        later = await pass_time(peer.peer, clock, 60.0)
        state = await peer.get(task["taskId"])
    assert [message for _, message in held] == ["still running (10 s)"]
    assert later == held
    assert "statusMessage" not in state


async def test_it_ends_when_the_caller_leaves() -> None:
    clock = FakeClock()
    server, gate = workshop(clock=clock)
    async with reach(server, EXTENSION) as peer:
        id = await call(peer)
        await gate.entered.wait()
        await peer.tell("notifications/cancelled", {"requestId": id})
        await gate.cancelled.wait()
        assert await pass_time(peer, clock, 30.0) == []


@EVERY
async def test_our_client_waits_longer_than_its_patience_with_silence(revision: str) -> None:
    clock = FakeClock()
    server, gate = workshop(clock=clock)
    seen: list[Any] = []
    options: Any = {
        "revision": revision,
        "extensions": {TASKS: None},
        "clock": clock,
        "on_progress": lambda *each: seen.append(each),
    }
    async with Client(server, **options) as client:
        calling = asyncio.ensure_future(client.call_tool("work", timeout=15.0))
        await gate.entered.wait()
        for _ in range(10):
            clock.advance(10.0)
            await client.ping()
        gate.open.set()
        result = await calling
    assert result.content[0].text == "1"  # type: ignore[union-attr]
    assert len(seen) == 10
