"""Arguments mirrored in headers, which the client learns from the tools' schemas, and listening over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support import run_async
from tests.transports.http.scripted_http import (
    Got,
    HttpScript,
    Status,
    Writer,
    break_off,
    handshake_script,
    stateless_script,
)
from trunkline.client.changes import Change
from trunkline.client.client import Client
from trunkline.errors import ConnectionLost, HeaderMismatch, LocalProtocolError
from trunkline.protocol.limits import Limits

DONE = {"resultType": "complete", "content": []}


def tool(name: str = "query", *, header: str = "Region", kind: str = "string") -> dict[str, Any]:
    properties = {"region": {"type": kind, "x-mcp-header": header}, "sql": {"type": "string"}}
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def listed(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"resultType": "complete", "tools": list(tools)}


async def mismatch(got: Got, writer: Writer) -> None:
    writer.json({"jsonrpc": "2.0", "id": got.id, "error": {"code": -32020, "message": "Header mismatch"}}, 400)


def called(table: dict[str, Any], arguments: Any, *, first: bool = True) -> tuple[HttpScript, Any]:
    """Call the tool, with or without having listed it before."""

    async def main() -> Any:
        async with script, Client(script.url) as client:
            if first:
                await client.list_tools()
            return await client.call_tool("query", arguments)

    script = stateless_script({"tools/call": DONE, **table})
    return script, run_async(main())


def sent(script: HttpScript) -> list[str | None]:
    return [got.headers.get("mcp-param-region") for got in script.of("tools/call")]


def test_a_call_without_arguments_mirrors_none() -> None:
    script, _ = called({"tools/list": listed(tool())}, None)
    assert sent(script) == [None]


async def test_the_tools_are_listed_before_the_first_call_of_an_unknown_one() -> None:
    script = stateless_script({"tools/list": listed(tool()), "tools/call": DONE})
    async with script, Client(script.url) as client:
        await client.call_tool("query", {"region": "eu"})
        await client.call_tool("unknown", {})
    assert script.names == ["server/discover", "tools/list", "tools/call", "tools/call"]
    assert sent(script) == ["eu", None]


async def test_calls_during_the_listing_of_the_tools_wait_for_it() -> None:
    script = stateless_script({"tools/list": listed(tool()), "tools/call": DONE})
    async with script, Client(script.url) as client:
        await asyncio.gather(*(client.call_tool("query", {"region": region}) for region in ("a", "b")))
    assert len(script.of("tools/list")) == 1
    assert sorted(filter(None, sent(script))) == ["a", "b"]


async def test_a_failed_listing_of_the_tools_is_not_retried() -> None:
    script = stateless_script({"tools/list": Status(500), "tools/call": DONE})
    async with script, Client(script.url) as client:
        await client.call_tool("query")
        await client.call_tool("query")
    assert script.names == ["server/discover", "tools/list", "tools/call", "tools/call"]


@pytest.mark.parametrize(
    ("first", "second"),
    [(listed(tool()), listed(tool())), (listed(tool()), Status(500)), (listed(tool(header="Old")), listed(tool()))],
    ids=["the same list", "no list", "another list, and still a mismatch"],
)
def test_a_header_mismatch_that_listing_again_does_not_fix_raises(first: Any, second: Any) -> None:
    with pytest.raises(HeaderMismatch):
        called({"tools/list": [first, second], "tools/call": mismatch}, {"region": "eu"})


def test_an_argument_that_does_not_fit_in_a_header_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="region"):
        called({"tools/list": listed(tool(kind="integer"))}, {"region": 2**60})


def test_every_round_of_a_call_mirrors_its_arguments() -> None:
    asks = {"resultType": "input_required", "requestState": "s"}
    script, _ = called({"tools/list": listed(tool()), "tools/call": [asks, DONE]}, {"region": "eu"})
    assert sent(script) == ["eu", "eu"]


async def test_handshake_revisions_mirror_nothing_and_hide_no_tool() -> None:
    broken = tool("broken", header="not a token")
    script = handshake_script({"tools/list": {"tools": [tool(), broken]}})
    async with script, Client(script.url) as client:
        tools = await client.list_tools()
        await client.call_tool("query", {"region": "eu"})
    count = len(tools)
    assert (count, sent(script)) == (2, [None])


def subscribed(*, tell: bool = False, stay: asyncio.Event | None = None) -> Any:
    """Make one turn of a ``subscriptions/listen``: acknowledge, maybe tell of a change, and end or stay to be left."""

    async def reply(got: Got, writer: Writer) -> None:
        meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": got.id}}
        wanted = {"notifications": {"toolsListChanged": True}, **meta}
        writer.stream()
        writer.event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": wanted})
        await writer.flush()
        if tell:
            writer.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": meta})
        if stay is not None:
            await writer.until_left()
            stay.set()

    return reply


async def test_a_listener_whose_stream_breaks_reopens_it_and_reports_possibly_missed_changes() -> None:
    turns = [subscribed(tell=True), subscribed(tell=True, stay=asyncio.Event())]
    script = stateless_script({"subscriptions/listen": turns})
    async with script, Client(script.url) as client, client.listen(tools=True) as changes:
        seen = {await anext(changes) for _ in range(3)}
        assert (seen, client.state) == ({Change("tools"), Change("missed")}, "active")


async def test_a_listener_retries_during_a_short_outage_of_the_server() -> None:
    turns = [subscribed(tell=True), break_off, break_off, subscribed(stay=asyncio.Event())]
    script = stateless_script({"subscriptions/listen": turns})
    async with script, Client(script.url) as client, client.listen(tools=True) as changes:
        assert [await anext(changes), await anext(changes)] == [Change("tools"), Change("missed")]


async def test_a_listener_reports_that_the_server_stays_unreachable() -> None:
    script = stateless_script({"subscriptions/listen": [subscribed(tell=True), break_off]})
    limits = Limits(resumptions=1)
    async with script, Client(script.url, limits=limits) as client, client.listen(tools=True) as changes:
        await anext(changes)
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(anext(changes), 120)
