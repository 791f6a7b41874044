"""Progress, cancellation and time limits cross the gateway in all pairs of eras."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.client.scripted_server import stateless
from tests.host.gateway.support import (
    CELLS,
    FRONTS,
    NEW,
    OLD,
    PAIRS,
    UPSTREAMS,
    fronted,
    on_stage,
    revisions_of,
    server,
    until,
)
from tests.host.supervised import scripted
from trunkline import Context, RequestFailed, Server, ToolError
from trunkline.extensions import TASKS
from trunkline.host.gateway.sessions import GatewayOptions

ASKING = pytest.mark.parametrize("asking", [False, True], ids=["shared", "lane"])

COMPLETE = {"resultType": "complete"}


class Worker:
    """A server that works slowly and remembers what became of it."""

    def __init__(self, revision: str) -> None:
        self.events: list[str] = []
        self.server: Server = server("worker", revision)
        self.server.add_tool(self.count)
        self.server.add_tool(self.wait)
        self.server.add_tool(self.withdraw)

    async def count(self, ctx: Context, steps: int) -> str:
        """Report each step."""
        for step in range(steps):
            await ctx.report_progress(step + 1, steps, f"step {step}")
        return "counted"

    async def wait(self) -> str:
        """Wait for ever."""
        self.events.append("began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.events.append("cancelled")
            raise
        return "never"

    async def withdraw(self, ctx: Context) -> str:
        """Ask, and withdraw the question once it has been heard."""
        asking = asyncio.ensure_future(ctx.elicit("Name?", str))
        await until(lambda: "heard" in self.events)
        asking.cancel()
        return "withdrawn"


def _answers(asking: bool) -> dict[str, object]:
    return {"elicitation": lambda _: "x"} if asking else {}


@CELLS
@ASKING
async def test_progress_comes_in_order_under_the_clients_own_token(
    channel: str, upstream: str, asking: bool, tmp_path: Path
) -> None:
    heard: list[tuple[float, float | None, str | None]] = []
    async with fronted({"w": Worker(upstream).server}, tmp_path, channel, **_answers(asking)) as client:
        await client.call_tool("w__count", {"steps": 50}, on_progress=lambda *news: heard.append(news))
    assert heard == [(step + 1, 50, f"step {step}") for step in range(50)]


@PAIRS
async def test_two_calls_hear_their_own_progress(channel: str, upstream: str, tmp_path: Path) -> None:
    one: list[float | None] = []
    two: list[float | None] = []
    async with fronted({"w": Worker(upstream).server}, tmp_path, channel) as client:
        await asyncio.gather(
            client.call_tool("w__count", {"steps": 3}, on_progress=lambda done, total, text: one.append(total)),
            client.call_tool("w__count", {"steps": 5}, on_progress=lambda done, total, text: two.append(total)),
        )
    assert (one, two) == ([3.0] * 3, [5.0] * 5)


@UPSTREAMS
async def test_a_program_hears_progress(upstream: str, tmp_path: Path) -> None:
    heard: list[str | None] = []
    async with on_stage({"w": Worker(upstream).server}, tmp_path) as stage:
        await stage.host.call_tool("w/count", {"steps": 2}, on_progress=lambda done, total, text: heard.append(text))
    assert heard == ["step 0", "step 1"]


@CELLS
@ASKING
async def test_what_the_client_cancels_is_cancelled_at_the_server(
    channel: str, upstream: str, asking: bool, tmp_path: Path
) -> None:
    worker = Worker(upstream)
    async with fronted({"w": worker.server}, tmp_path, channel, **_answers(asking)) as client:
        call = asyncio.create_task(client.call_tool("w__wait"))
        await until(lambda: worker.events)
        call.cancel()
        await until(lambda: worker.events == ["began", "cancelled"])
        assert (await client.call_tool("w__count", {"steps": 0})).data == "counted"


@PAIRS
@ASKING
async def test_what_a_client_that_leaves_had_under_way_is_cancelled(
    channel: str, upstream: str, asking: bool, tmp_path: Path
) -> None:
    worker = Worker(upstream)
    async with on_stage({"w": worker.server}, tmp_path) as stage:
        client = stage.client(channel, **_answers(asking))
        async with client:
            call = asyncio.create_task(client.call_tool("w__wait"))
            await until(lambda: worker.events)
        await asyncio.wait([call])
        await until(lambda: worker.events == ["began", "cancelled"])
    assert call.exception() is not None


@PAIRS
@ASKING
async def test_a_server_that_stays_silent_too_long_fails_the_call_and_is_cancelled(
    channel: str, upstream: str, asking: bool, tmp_path: Path
) -> None:
    worker = Worker(upstream)
    entry = scripted("w", worker.server, timeout=0.1)
    async with fronted({"w": entry}, tmp_path, channel, **_answers(asking)) as client:
        with pytest.raises(RequestFailed, match=r"'w'.*0\.1"):
            await client.call_tool("w__wait")
        await until(lambda: worker.events == ["began", "cancelled"])


async def test_a_question_that_the_server_withdraws_is_withdrawn_in_front(tmp_path: Path) -> None:
    worker = Worker(OLD)

    async def answer(question: t.ElicitRequestParams) -> str:
        worker.events.append("heard")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            worker.events.append("withdrawn")
            raise
        return "never"

    async with fronted({"w": worker.server}, tmp_path, OLD, elicitation=answer) as client:
        assert (await client.call_tool("w__withdraw")).data == "withdrawn"
        await until(lambda: worker.events == ["heard", "withdrawn"])


@PAIRS
async def test_no_call_under_way_delays_another(channel: str, upstream: str, tmp_path: Path) -> None:
    slow, quick = Worker(upstream), Worker(upstream)
    async with fronted({"s": slow.server, "q": quick.server}, tmp_path, channel) as client:
        call = asyncio.create_task(client.call_tool("s__wait"))
        await until(lambda: slow.events)
        results = await asyncio.gather(*(client.call_tool("q__count", {"steps": 1}) for _ in range(20)))
        same = await client.call_tool("s__count", {"steps": 1})
        call.cancel()
    assert [each.data for each in (*results, same)] == ["counted"] * 21


@FRONTS
@pytest.mark.parametrize("upstream", [OLD, NEW], ids=["core-task", "extension-task"])
async def test_the_progress_of_a_servers_task_has_its_total(channel: str, upstream: str, tmp_path: Path) -> None:
    made, steps = Server("v", revisions=revisions_of(upstream)), asyncio.Queue[int]()

    @made.tool(task="required")
    async def work(ctx: Context) -> str:
        while (step := await steps.get()) < 3:
            await ctx.report_progress(step, 3, f"step {step}")
        return "done"

    seen: list[tuple[float, float | None, str | None]] = []

    def progress(*each: Any) -> None:
        seen.append(each)
        steps.put_nowait(len(seen) + 1)

    steps.put_nowait(1)
    options = GatewayOptions(task_after=600)
    async with fronted({"v": made}, tmp_path, channel, gateway=options) as client:
        result = await client.call_tool("v__work", on_progress=progress)
    assert result.data == "done"
    assert seen == [(1, 3, "step 1"), (2, 3, "step 2")]


@FRONTS
@pytest.mark.parametrize("upstream", [OLD, NEW], ids=["core-task", "extension-task"])
@ASKING
async def test_each_report_of_a_task_that_asks_arrives_once(
    channel: str, upstream: str, asking: bool, tmp_path: Path
) -> None:
    made, told = Server("v", revisions=revisions_of(upstream)), asyncio.Event()

    @made.tool(task="required")
    async def bake(ctx: Context) -> str:
        await ctx.report_progress(2, 2, "step 2")
        await told.wait()
        answer = await ctx.elicit("How many candles?", int)
        return f"{answer.data} candles"

    seen: list[tuple[float, float | None, str | None]] = []

    def progress(*each: Any) -> None:
        seen.append(each)
        told.set()

    async with fronted(
        {"v": made},
        tmp_path,
        channel,
        gateway=GatewayOptions(task_after=600),
        **{"elicitation": lambda _: 5} if asking else {},
    ) as client:
        if asking:
            assert (await client.call_tool("v__bake", on_progress=progress)).data == "5 candles"
        else:
            with pytest.raises((RequestFailed, ToolError)):
                await client.call_tool("v__bake", on_progress=progress)
    assert seen == [(2, 2, "step 2")]


async def test_progress_that_does_not_increase_never_exceeds_the_total(tmp_path: Path) -> None:
    said = ["1/2: a", "tidying up", "1/2: tidying up", "2/2: b", "washing up", "2/2: c"]
    states = iter([*({"status": "working", "statusMessage": each} for each in said), {"status": "completed"}])
    task: dict[str, Any] = {
        "taskId": "one",
        "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:00Z",
    }
    task |= {"ttlMs": None, "pollIntervalMs": 1, "result": {"content": [{"type": "text", "text": "done"}]}}
    made = stateless(
        {
            "tools/list": {**COMPLETE, "tools": [{"name": "work", "inputSchema": {"type": "object"}}]},
            "tools/call": {**task, "resultType": "task", "status": "working"},
            "tasks/get": lambda params: {**COMPLETE, **task, **next(states)},
        },
        tools={},
        extensions={TASKS: {}},
    )
    seen: list[tuple[float, float | None, str | None]] = []
    async with fronted({"v": made}, tmp_path, OLD, gateway=GatewayOptions(task_after=600)) as client:
        result = await client.call_tool("v__work", on_progress=lambda *each: seen.append(each))
    assert result.text == "done"
    # A new message is shown while there is room below the total.
    assert seen == [(1, 2, "a"), (math.nextafter(1, 2), 2, "tidying up"), (2, 2, "b")]
