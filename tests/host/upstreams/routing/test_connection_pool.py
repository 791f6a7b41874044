"""Connections of a session's own: who needs one, how many there are, and when they are closed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.client.scripted_server import handshake_server
from tests.host.gateway.support import FRONTS, OLD, Stage, fronted, on_stage, server, until
from tests.host.supervised import scripted
from trunkline import Client, Context, Server
from trunkline.host.upstreams.routing.channels import ConnectionNeeds
from trunkline.host.upstreams.routing.connection_pool import ConnectionPool


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        pytest.param({}, ConnectionNeeds(), id="nothing"),
        pytest.param({"tools": {}, "experimental": {"x": {}}}, ConnectionNeeds(), id="nothing that is asked"),
        pytest.param({"roots": {}}, ConnectionNeeds(roots=True), id="roots"),
        pytest.param(
            {"sampling": {"tools": {}}}, ConnectionNeeds(sampling=True, sampling_tools=True), id="sampling with tools"
        ),
        pytest.param({"elicitation": {}}, ConnectionNeeds(elicitation=True), id="forms as they were first declared"),
        pytest.param(
            {"elicitation": {"form": {}, "url": {}}},
            ConnectionNeeds(elicitation=True, elicitation_urls=True),
            id="pages too",
        ),
    ],
)
def test_what_a_client_declared_is_what_its_connections_declare(
    capabilities: dict[str, Any], expected: ConnectionNeeds
) -> None:
    assert ConnectionNeeds.of(capabilities, logs=False) == expected


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


def _lanes(stage: Stage) -> list[ConnectionPool]:
    return [session.connections for session in stage.host._open.core.sessions if len(session.connections)]


async def test_calls_at_once_share_a_connection_and_each_gets_an_answer(tmp_path: Path) -> None:
    requester = Asker()
    async with fronted({"a": requester.server}, tmp_path, OLD, elicitation=lambda question: question.message) as client:
        requester.go_on.set()
        await client.call_tool("a__ask", {"who": "first"})
        requester.go_on.clear()
        requester.connections.clear()
        calls = [asyncio.create_task(client.call_tool("a__ask", {"who": f"w{number}"})) for number in range(6)]
        await until(lambda: len(requester.connections) == 6)
        assert len(set(requester.connections)) == 1
        requester.go_on.set()
        results = [(await call).data for call in calls]
    # Which call a question is shown under cannot be told; that it comes back to whoever asked it can.
    assert results == [f"w{number}:[a] w{number}" for number in range(6)]


async def test_idle_connections_are_closed(tmp_path: Path) -> None:
    requester = Asker()
    async with (
        on_stage({"a": requester.server}, tmp_path) as stage,
        stage.client(OLD, elicitation=lambda _: "x") as client,
    ):
        await client.call_tool("a__hi")
        (connections,) = _lanes(stage)
        await connections.sweep(3600.0, lambda upstream: True)
        assert len(connections) == 1
        await connections.sweep(-1.0, lambda upstream: True)
        assert len(connections) == 0
        assert (await client.call_tool("a__hi")).data == "hi"


async def test_a_connection_in_use_is_not_closed_for_being_old(tmp_path: Path) -> None:
    requester = Asker()
    async with (
        on_stage({"a": requester.server}, tmp_path) as stage,
        stage.client(OLD, elicitation=lambda question: question.message) as client,
    ):
        call = asyncio.create_task(client.call_tool("a__ask", {"who": "w"}))
        await until(lambda: requester.connections)
        await _lanes(stage)[0].sweep(-1.0, lambda upstream: True)
        requester.go_on.set()
        assert (await call).data == "w:[a] w"


# --- how many calls at once ------------------------------------------------------------------------------------------


class Counted:
    """A handshake server that counts the calls it works on."""

    def __init__(self, concurrency: int) -> None:
        self.working: list[str] = []
        self.go_on = asyncio.Event()
        self.asked_over = asyncio.Event()
        made: Server = server("counted", OLD)
        for tool in (self.wait, self.ask, self.wait_for_ask):
            made.add_tool(tool)
        self.entry = scripted("a", made, concurrency=concurrency)

    async def wait(self, who: str) -> str:
        """Work until it is let go."""
        self.working.append(who)
        await self.go_on.wait()
        return who

    async def ask(self, ctx: Context) -> str:
        """Ask."""
        answer = (await ctx.elicit("Name?", str)).data
        self.asked_over.set()
        return f"hello {answer}"

    async def wait_for_ask(self) -> str:
        """Go on only when the call that asks is over, as in a server that does one thing after the other."""
        self.working.append("after")
        await self.asked_over.wait()
        return "after"


class Person:
    """Somebody who thinks about a question until told to answer."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()

    async def __call__(self, question: Any) -> str:
        self.asked.set()
        await self.answers.wait()
        return "Ann"


def _queued(stage: Stage) -> int:
    return sum(len(places._queue) for places in stage.host._open.core.router._busy.values())


async def test_calls_on_all_connections_together_keep_to_the_servers_concurrency(tmp_path: Path) -> None:
    counted = Counted(concurrency=2)
    async with (
        on_stage({"a": counted.entry}, tmp_path) as stage,
        stage.client(OLD, elicitation=lambda _: "x") as one,
        stage.client(OLD, elicitation=lambda _: "x") as other,
        stage.client(OLD) as shared,
    ):
        clients: list[Client] = [one, one, other, other, shared, shared]
        calls = [
            asyncio.create_task(client.call_tool("a__wait", {"who": f"w{number}"}))
            for number, client in enumerate(clients)
        ]
        await until(lambda: _queued(stage) == 4)
        await until(lambda: len(counted.working) == 2)
        counted.go_on.set()
        results = [(await call).data for call in calls]
    assert results == [f"w{number}" for number in range(6)]
    assert sorted(counted.working) == results


@FRONTS
async def test_a_call_that_waits_for_a_person_keeps_no_other_waiting(channel: str, tmp_path: Path) -> None:
    counted, person = Counted(concurrency=1), Person()
    counted.go_on.set()
    async with (
        on_stage({"a": counted.entry}, tmp_path) as stage,
        stage.client(channel, elicitation=person) as client,
        stage.client(channel) as other,
    ):
        asks = asyncio.create_task(client.call_tool("a__ask"))
        await person.asked.wait()
        assert (await client.call_tool("a__wait", {"who": "on the lane"})).data == "on the lane"
        assert (await other.call_tool("a__wait", {"who": "beside it"})).data == "beside it"
        person.answers.set()
        assert (await asks).data == "hello Ann"
        assert (await other.call_tool("a__wait", {"who": "at last"})).data == "at last"


@FRONTS
async def test_an_answer_reaches_a_call_though_others_have_all_places(channel: str, tmp_path: Path) -> None:
    counted, person = Counted(concurrency=1), Person()
    async with fronted({"a": counted.entry}, tmp_path, channel, elicitation=person) as client:
        asks = asyncio.create_task(client.call_tool("a__ask"))
        await person.asked.wait()
        after = asyncio.create_task(client.call_tool("a__wait_for_ask"))
        await until(lambda: counted.working == ["after"])
        person.answers.set()
        assert (await asks).data == "hello Ann"
        assert (await after).data == "after"


# --- changes of lists ------------------------------------------------------------------------------------------------


async def test_a_change_announced_only_on_a_dedicated_connection_reaches_the_catalog(tmp_path: Path) -> None:
    tools = [{"name": "grow", "inputSchema": {"type": "object"}}]

    def grow(params: dict[str, Any]) -> dict[str, Any]:
        tools.append({"name": "grown", "inputSchema": {"type": "object"}})
        behind.stage.say("notifications/tools/list_changed")
        return {"content": []}

    behind = handshake_server({"tools/list": lambda params: {"tools": tools}, "tools/call": grow}, tools={})
    async with (
        on_stage({"a": scripted("a", behind)}, tmp_path) as stage,
        stage.client(OLD, elicitation=lambda _: "x") as client,
    ):
        await client.call_tool("a__grow")
        assert len(behind.stages) == 2
        main = stage.host._open.core.supervisor.upstreams["a"]
        await until(lambda: main.offering is not None and len(main.offering.tools) == 2)
        names = {tool.name for tool in await client.list_tools()}
    assert names == {"a__grow", "a__grown"}
