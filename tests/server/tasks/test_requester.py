"""``ctx.sample(task=True)`` and ``ctx.elicit(task=True)``: the client runs the request as a task, where it can."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.interaction.web import served
from tests.server.talk import accept, reach
from tests.server.tasks.talk import ALL, CORE, Gate
from trunkline import Client, Context, Server
from trunkline.errors import RequestFailed
from trunkline.protocol.limits import Limits
from trunkline.testing.clock import FakeClock

CAN: Any = {
    "sampling": {},
    "elicitation": {},
    "tasks": {"cancel": {}, "requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}}},
}
MEMBERS = {"taskId": "c1", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": None}
HELLO = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hello"}}


def asker(**options: Any) -> tuple[Server, list[Any]]:
    """Return a server whose tool asks the client's model and its user."""
    server, told = Server("s", **options), list[Any]()

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            said = await ctx.sample("Hi", task=True)
        except (RequestFailed, TimeoutError) as error:
            told.append(error)
            raise
        return said.text

    @server.tool
    async def form(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", str, task=True)).data)

    return server, told


async def hear(peer: Any, method: str) -> Any:
    """Wait for a request of the server."""
    while True:
        message = await peer.hear()
        if message.get("method") == method and "id" in message:
            return message
        peer.aside.append(message)


async def reply(peer: Any, request: Any, result: Any) -> None:
    """Answer a request of the server."""
    await peer.say({"jsonrpc": "2.0", "id": request["id"], "result": result})


@pytest.mark.parametrize("revision", ALL)
async def test_our_client_and_server_understand_each_other_in_every_revision(revision: str) -> None:
    server, _ = asker()
    options: Any = {"sampling": lambda _: "Hello", "elicitation": lambda _: {"value": "red"}}
    async with Client(server, revision=revision, **options) as client:
        assert (await client.call_tool("ask")).content[0].text == "Hello"  # type: ignore[union-attr]
        if revision >= "2025-06-18":
            assert (await client.call_tool("form")).data == "red"


async def test_the_same_over_http() -> None:
    server, _ = asker()
    options: Any = {"sampling": lambda _: "Hello", "elicitation": lambda _: {"value": "red"}}
    async with served(server) as (url, _), Client(url, revision=CORE, **options) as client:
        assert (await client.call_tool("ask")).data == "Hello"
        assert (await client.call_tool("form")).data == "red"


async def test_the_task_is_followed_and_its_result_fetched() -> None:
    server, _ = asker()
    async with reach(server, CORE, CAN) as peer:
        calling = await peer.send("tools/call", {"name": "ask", "arguments": {}})
        request = await hear(peer, "sampling/createMessage")
        await reply(peer, request, {"task": {**MEMBERS, "status": "working", "pollInterval": 1}})
        await reply(peer, await hear(peer, "tasks/get"), {**MEMBERS, "status": "input_required", "pollInterval": 1})
        await reply(peer, await hear(peer, "tasks/get"), {**MEMBERS, "status": "completed"})
        await reply(peer, await hear(peer, "tasks/result"), HELLO)
        result = (await peer.answer(calling))["result"]
    assert request["params"]["task"] == {"ttl": 900_000}
    assert result["content"][0]["text"] == "Hello"


async def test_a_client_that_did_not_declare_it_is_asked_directly() -> None:
    server, _ = asker()
    async with reach(server, CORE, {"sampling": {}, "elicitation": {}}) as peer:
        calling = await peer.send("tools/call", {"name": "form", "arguments": {}})
        request = await hear(peer, "elicitation/create")
        await reply(peer, request, accept("red"))
        await peer.answer(calling)
    assert "task" not in request["params"]


async def test_a_task_that_cannot_be_read_is_the_clients_fault() -> None:
    server, told = asker()
    async with reach(server, CORE, CAN) as peer:
        calling = await peer.send("tools/call", {"name": "ask", "arguments": {}})
        await reply(peer, await hear(peer, "sampling/createMessage"), {"task": {"status": "resting"}})
        error = (await peer.answer(calling))["error"]
    assert "the client's task is not valid" in error["message"]
    assert len(told) == 1


async def test_a_handler_that_is_cancelled_cancels_the_clients_task() -> None:
    server, _ = asker()
    async with reach(server, CORE, CAN) as peer:
        calling = await peer.send("tools/call", {"name": "ask", "arguments": {}})
        request = await hear(peer, "sampling/createMessage")
        await reply(peer, request, {"task": {**MEMBERS, "status": "working", "pollInterval": 10_000}})
        await peer.settle()
        await peer.tell("notifications/cancelled", {"requestId": calling})
        cancel = await hear(peer, "tasks/cancel")
        await reply(peer, cancel, {**MEMBERS, "status": "cancelled"})
    assert cancel["params"]["taskId"] == "c1"


async def test_a_client_that_takes_too_long_is_given_up() -> None:
    server, told = asker(limits=Limits(ask_seconds=0.1))
    async with reach(server, CORE, CAN) as peer:
        calling = await peer.send("tools/call", {"name": "ask", "arguments": {}})
        request = await hear(peer, "sampling/createMessage")
        await reply(peer, request, {"task": {**MEMBERS, "status": "working", "pollInterval": 10_000}})
        cancel = await hear(peer, "tasks/cancel")
        await peer.say({"jsonrpc": "2.0", "id": cancel["id"], "error": {"code": -32602, "message": "gone"}})
        result = (await peer.answer(calling))["result"]
    assert result["isError"]
    assert [type(each) for each in told] == [TimeoutError]


async def test_a_person_may_take_longer_than_the_patience_of_the_caller() -> None:
    server, _ = asker()
    gate = Gate()

    async def answer(request: Any) -> Any:
        await gate.wait()
        return {"value": "red"}

    clock = FakeClock()
    async with Client(server, revision=CORE, elicitation=answer, clock=clock) as client:
        calling = asyncio.ensure_future(client.call_tool("form", timeout=60.0))
        await gate.entered.wait()
        clock.advance(100.0)
        gate.open.set()
        assert (await calling).data == "red"


async def test_inside_a_task_of_the_server_the_question_belongs_to_that_task() -> None:
    server = Server("s")

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", str, task=True)).data)

    async with reach(server, CORE, CAN) as peer:
        await peer.result("tools/call", {"name": "work", "arguments": {}, "task": {}})
        request = await hear(peer, "elicitation/create")
    await server.aclose()
    assert "task" not in request["params"]
