"""Connections of a session's own: who needs one, how many there are, and when they are closed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.host.gateway.support import OLD, Stage, in_loop, on_stage, server, until
from trunkline import Context, Server
from trunkline.host.passing.lanes import Lanes, Needs


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        pytest.param({}, Needs(), id="nothing"),
        pytest.param({"tools": {}, "experimental": {"x": {}}}, Needs(), id="nothing that is asked"),
        pytest.param({"roots": {}}, Needs(roots=True), id="roots"),
        pytest.param({"sampling": {"tools": {}}}, Needs(sampling=True, sampling_tools=True), id="sampling with tools"),
        pytest.param({"elicitation": {}}, Needs(elicitation=True), id="forms as they were first declared"),
        pytest.param(
            {"elicitation": {"form": {}, "url": {}}}, Needs(elicitation=True, elicitation_urls=True), id="pages too"
        ),
    ],
)
def test_what_a_client_declared_is_what_its_connections_declare(capabilities: dict[str, Any], expected: Needs) -> None:
    assert Needs.of(capabilities, logs=False) == expected


class Asker:
    """A handshake server whose calls ask, and wait for one another."""

    def __init__(self) -> None:
        self.connections: list[int] = []
        self.go_on = asyncio.Event()
        self.server: Server = server("asker", OLD)
        self.server.add_tool(self.ask)
        self.server.add_tool(self.hi)

    async def ask(self, ctx: Context, who: str) -> str:
        """Ask, with everybody else."""
        self.connections.append(id(ctx._exchange.connection))
        await self.go_on.wait()
        return f"{who}:{(await ctx.elicit(who, str)).data}"

    async def hi(self, ctx: Context) -> str:
        """Greet."""
        self.connections.append(id(ctx._exchange.connection))
        return "hi"


def _lanes(stage: Stage) -> list[Lanes]:
    return [session.lanes for session in stage.host._open.core.sessions if len(session.lanes)]


@in_loop
async def test_calls_at_once_share_a_connection_and_each_gets_an_answer(tmp_path: Path) -> None:
    asker = Asker()
    async with (
        on_stage({"a": asker.server}, tmp_path) as stage,
        stage.client(OLD, elicitation=lambda question: question.message) as client,
    ):
        asker.go_on.set()
        await client.call_tool("a__ask", {"who": "first"})
        asker.go_on.clear()
        asker.connections.clear()
        calls = [asyncio.create_task(client.call_tool("a__ask", {"who": f"w{number}"})) for number in range(6)]
        await until(lambda: len(asker.connections) == 6)
        assert len(set(asker.connections)) == 1
        asker.go_on.set()
        results = [(await call).data for call in calls]
    # Which call a question is shown under cannot be told; that it comes back to whoever asked it can.
    assert results == [f"w{number}:w{number}" for number in range(6)]


@in_loop
async def test_calls_one_after_the_other_share_a_connection(tmp_path: Path) -> None:
    asker = Asker()
    async with (
        on_stage({"a": asker.server}, tmp_path) as stage,
        stage.client(OLD, elicitation=lambda _: "x") as client,
    ):
        await client.call_tool("a__hi")
        await client.call_tool("a__hi")
        (lanes,) = _lanes(stage)
        assert len(lanes) == 1
    assert len(set(asker.connections)) == 1


@in_loop
async def test_a_client_that_cannot_be_asked_has_no_connection_of_its_own(tmp_path: Path) -> None:
    async with on_stage({"a": Asker().server}, tmp_path) as stage, stage.client(OLD) as client:
        await client.call_tool("a__hi")
        assert _lanes(stage) == []


@in_loop
async def test_connections_that_nobody_used_for_long_are_closed(tmp_path: Path) -> None:
    asker = Asker()
    async with (
        on_stage({"a": asker.server}, tmp_path) as stage,
        stage.client(OLD, elicitation=lambda _: "x") as client,
    ):
        await client.call_tool("a__hi")
        (lanes,) = _lanes(stage)
        await lanes.sweep(3600.0, lambda upstream: True)
        assert len(lanes) == 1
        await lanes.sweep(-1.0, lambda upstream: True)
        assert len(lanes) == 0
        assert (await client.call_tool("a__hi")).data == "hi"


@in_loop
async def test_a_connection_in_use_is_not_closed_for_being_old(tmp_path: Path) -> None:
    asker = Asker()
    async with (
        on_stage({"a": asker.server}, tmp_path) as stage,
        stage.client(OLD, elicitation=lambda question: question.message) as client,
    ):
        call = asyncio.create_task(client.call_tool("a__ask", {"who": "w"}))
        await until(lambda: asker.connections)
        await _lanes(stage)[0].sweep(-1.0, lambda upstream: True)
        asker.go_on.set()
        assert (await call).data == "w:w"


@in_loop
async def test_a_session_that_ends_closes_its_connections(tmp_path: Path) -> None:
    async with on_stage({"a": Asker().server}, tmp_path) as stage:
        async with stage.client(OLD, elicitation=lambda _: "x") as client:
            await client.call_tool("a__hi")
            (lanes,) = _lanes(stage)
        await until(lambda: len(lanes) == 0)
