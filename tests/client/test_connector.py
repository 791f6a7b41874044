"""A client that outlives its connection: loss, restart, repetition, closing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.client.scripted_server import DIE, Scripted, handshake_server, settle, state_of, stateless
from trunkline.client.client import Client
from trunkline.client.options import ClientState
from trunkline.errors import ConnectionLost
from trunkline.protocol.jsonrpc import Response
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from trunkline.transports.memory import memory_pair

BOTH = pytest.mark.parametrize("make", [stateless, handshake_server], ids=["stateless", "handshake"])
DONE: dict[str, Any] = {"content": []}


def first_dies(then: Any) -> Any:
    """Close the connection on the first request, answer the others."""
    answers = [DIE]
    return lambda _: answers.pop() if answers else then


def repeatable(hint: str) -> dict[str, Any]:
    return {"tools": [{"name": "x", "inputSchema": {"type": "object"}, "annotations": {hint: True}}]}


@BOTH
async def test_every_waiting_call_fails_at_once_when_the_server_goes(make: Any) -> None:
    told: list[Any] = []
    server = make({"tools/call": None})
    async with Client(server, on_state=lambda *news: told.append(news)) as client:
        calls = [asyncio.ensure_future(client.call_tool("x")) for _ in range(3)]
        await server.until(lambda: server.methods.count("tools/call") == 3)
        server.stage.die()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 3
        assert len({id(outcome) for outcome in outcomes}) == 3
        assert state_of(client) is ClientState.FAILED
        assert isinstance(client.reason, ConnectionLost)
    assert told[-2:] == [("failed", told[-2][1]), ("terminated", None)]


async def test_a_server_that_may_not_be_started_again_is_not() -> None:
    server = stateless({"tools/list": {"tools": []}})
    async with Client(server, restart=False) as client:
        server.stage.die()
        await settle()
        with pytest.raises(ConnectionLost) as caught:
            await client.list_tools()
        assert caught.value is client.reason
    assert len(server.stages) == 1


async def test_calls_that_find_the_server_gone_share_one_restart() -> None:
    server = stateless({"tools/call": DONE})
    async with Client(server) as client:
        server.stage.die()
        await settle()
        await asyncio.gather(*(client.call_tool("x") for _ in range(5)))
    assert len(server.stages) == 2


async def test_a_call_cancelled_during_a_restart_does_not_affect_others() -> None:
    server = stateless({"tools/call": DONE})
    discovered = server.table["server/discover"]
    async with Client(server) as client:
        server.table["server/discover"] = None
        server.stage.die()
        await settle()
        hasty = asyncio.ensure_future(client.call_tool("x"))
        patient = asyncio.ensure_future(client.call_tool("x"))
        await server.until(lambda: server.methods.count("server/discover") == 2)
        hasty.cancel()
        await settle()
        server.stage.put(Response(server.ids[-1], discovered))
        await patient
        assert hasty.cancelled()


@BOTH
@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("tools/list", {"tools": []}),
        ("resources/read", {"contents": []}),
        ("prompts/get", {"messages": []}),
    ],
)
async def test_a_read_that_loses_its_connection_is_repeated_once(make: Any, method: str, result: Any) -> None:
    server = make({method: first_dies(result)})
    async with Client(server) as client:
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "tools/list": client.list_tools,
            "resources/read": lambda: client.read_resource("a:1"),
            "prompts/get": lambda: client.get_prompt("p"),
        }
        await calls[method]()
    assert server.methods.count(method) == 2


async def test_a_read_that_loses_its_connection_twice_fails() -> None:
    server = stateless({"tools/list": DIE})
    async with Client(server) as client:
        with pytest.raises(ConnectionLost):
            await client.list_tools()
    assert server.methods.count("tools/list") == 2


async def test_a_call_of_a_tool_is_not_repeated() -> None:
    server = stateless({"tools/call": first_dies(DONE)})
    async with Client(server) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("x")
    assert server.methods.count("tools/call") == 1


@pytest.mark.parametrize("hint", ["idempotentHint", "readOnlyHint"])
async def test_a_call_marked_as_repeatable_is_repeated(hint: str) -> None:
    server = stateless({"tools/call": first_dies(DONE), "tools/list": repeatable(hint)})
    async with Client(server) as client:
        await client.list_tools()
        await client.call_tool("x")
    assert server.methods.count("tools/call") == 2


async def test_the_cache_is_cleared_with_the_connection() -> None:
    server = stateless({"tools/list": {"tools": [], "ttlMs": 60000}})
    async with Client(server) as client:
        await client.list_tools()
        server.stage.die()
        await settle()
        await client.list_tools()
    assert server.methods.count("tools/list") == 2


async def test_a_failed_restart_is_raised_and_retried_by_the_next_call() -> None:
    server = stateless()
    discovered = server.table["server/discover"]
    async with Client(server, revision=NEWEST.name) as client:
        server.table["server/discover"] = DIE
        server.stage.die()
        await settle()
        with pytest.raises(ConnectionLost):
            await client.ping()
        assert state_of(client) is ClientState.FAILED
        server.table["server/discover"] = discovered
        await client.ping()
        assert state_of(client) is ClientState.ACTIVE


# --- closing


async def test_any_task_may_close_and_more_than_once() -> None:
    server = stateless({"tools/call": None})
    client = Client(server)
    async with client:
        call = asyncio.ensure_future(client.call_tool("x"))
        await server.until(lambda: "tools/call" in server.methods)
        await asyncio.gather(*(asyncio.ensure_future(client.aclose()) for _ in range(3)))
        with pytest.raises(ConnectionLost, match="closed"):
            await call
    await client.aclose()
    assert state_of(client) is ClientState.TERMINATED
    await server.until(lambda: server.stage.ended)


async def test_closing_a_client_that_was_never_entered_is_no_error() -> None:
    client = Client(stateless())
    await client.aclose()
    assert state_of(client) is ClientState.TERMINATED
    with pytest.raises(ConnectionLost):
        await client.ping()


async def test_closing_while_connecting_fails_waiting_calls() -> None:
    server = Scripted({"server/discover": None})
    client = Client(server)
    entering = asyncio.ensure_future(client.__aenter__())
    await server.until(lambda: server.methods)
    await client.aclose()
    with pytest.raises(ConnectionLost, match="closed"):
        await entering
    assert state_of(client) is ClientState.TERMINATED
    await server.until(lambda: server.stage.ended)


async def test_a_close_that_is_cancelled_still_closes() -> None:
    server = stateless()
    client = await Client(server).__aenter__()
    closing = asyncio.ensure_future(client.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await server.until(lambda: server.stage.ended)


async def test_a_callback_may_close_the_client() -> None:
    server = stateless()
    closed = asyncio.Event()

    async def hear(method: str, params: Any) -> None:
        await client.aclose()
        closed.set()

    client = Client(server, on_notification=hear)
    async with client:
        server.stage.say("acme/stop")
        await closed.wait()
    assert state_of(client) is ClientState.TERMINATED


async def test_an_unfinished_callback_is_stopped_at_the_end() -> None:
    server = stateless()
    stopped = asyncio.Event()

    async def hear(method: str, params: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with Client(server, on_notification=hear):
        server.stage.say("acme/x")
        await settle()
    assert stopped.is_set()


# --- targets that cannot be opened again; the memory of eras


async def test_a_link_is_used_once() -> None:
    server = stateless()
    ours, theirs = memory_pair()
    server.accept(theirs)
    client = Client(ours)
    async with client:
        await client.ping()
        server.stage.die()
        await settle()
        with pytest.raises(ConnectionLost):
            await client.ping()
    with pytest.raises(ConnectionLost, match="opened a second time"):
        await client.__aenter__()


async def test_a_link_whose_server_dies_of_the_probe_cannot_be_helped() -> None:
    server = handshake_server({"server/discover": DIE})
    ours, theirs = memory_pair()
    server.accept(theirs)
    with pytest.raises(ConnectionLost):
        await Client(ours).__aenter__()


async def test_a_server_in_this_process_has_no_fingerprint_to_remember() -> None:
    memory: dict[str, str] = {}
    server = handshake_server()
    async with Client(server, era_memory=memory):
        pass
    assert memory == {}
    assert server.params_of("initialize")[0]["protocolVersion"] == NEWEST_HANDSHAKE.name
