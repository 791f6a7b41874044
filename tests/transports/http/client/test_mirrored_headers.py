"""Arguments mirrored in headers, which the client learns from the tools' schemas, and listening over HTTP."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.support import run_async
from tests.transports.http.scripted_http import Got, HttpScript, Status, Writer, handshake_script, stateless_script
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


@pytest.mark.parametrize(
    ("value", "header"),
    [("us-west1", "us-west1"), (" x ", "=?base64?IHgg?="), ("", ""), (None, None)],
    ids=["plain", "padded", "empty", "null"],
)
def test_an_annotated_argument_is_mirrored_in_its_header(value: Any, header: str | None) -> None:
    script, _ = called({"tools/list": listed(tool())}, {"region": value, "sql": "select"})
    assert sent(script) == [header]
    assert script.of("tools/call")[0].headers["mcp-name"] == "query"
    assert "mcp-param-sql" not in script.of("tools/call")[0].headers


def test_a_call_without_arguments_mirrors_none() -> None:
    script, _ = called({"tools/list": listed(tool())}, None)
    assert sent(script) == [None]


def test_the_tools_are_listed_before_the_first_call_of_an_unknown_one() -> None:
    async def main() -> None:
        async with script, Client(script.url) as client:
            await client.call_tool("query", {"region": "eu"})
            await client.call_tool("unknown", {})

    script = stateless_script({"tools/list": listed(tool()), "tools/call": DONE})
    run_async(main())
    assert script.names == ["server/discover", "tools/list", "tools/call", "tools/call"]
    assert sent(script) == ["eu", None]


def test_calls_during_the_listing_of_the_tools_wait_for_it() -> None:
    async def main() -> None:
        async with script, Client(script.url) as client:
            await asyncio.gather(*(client.call_tool("query", {"region": region}) for region in ("a", "b")))

    script = stateless_script({"tools/list": listed(tool()), "tools/call": DONE})
    run_async(main())
    assert len(script.of("tools/list")) == 1
    assert sorted(filter(None, sent(script))) == ["a", "b"]


def test_a_failed_listing_of_the_tools_is_not_retried() -> None:
    async def main() -> None:
        async with script, Client(script.url) as client:
            await client.call_tool("query")
            await client.call_tool("query")

    script = stateless_script({"tools/list": Status(500), "tools/call": DONE})
    run_async(main())
    assert script.names == ["server/discover", "tools/list", "tools/call", "tools/call"]


def test_a_header_mismatch_is_fixed_by_listing_the_tools_again() -> None:
    table = {"tools/list": [listed(tool(header="Old")), listed(tool())], "tools/call": [mismatch, DONE]}
    script, _ = called(table, {"region": "eu"})
    assert script.names == ["server/discover", "tools/list", "tools/call", "tools/list", "tools/call"]
    assert sent(script) == [None, "eu"]


@pytest.mark.parametrize("second", [listed(tool()), Status(500)], ids=["same", "none"])
def test_a_header_mismatch_that_listing_again_does_not_fix_raises(second: Any) -> None:
    table = {"tools/list": [listed(tool()), second], "tools/call": mismatch}
    with pytest.raises(HeaderMismatch):
        called(table, {"region": "eu"})


def test_a_persistent_header_mismatch_raises_after_one_retry() -> None:
    table = {"tools/list": [listed(tool(header="Old")), listed(tool())], "tools/call": mismatch}
    with pytest.raises(HeaderMismatch):
        called(table, {"region": "eu"})


def test_an_argument_that_does_not_fit_in_a_header_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="region"):
        called({"tools/list": listed(tool(kind="integer"))}, {"region": 2**60})


def test_every_round_of_a_call_mirrors_its_arguments() -> None:
    asks = {"resultType": "input_required", "requestState": "s"}
    script, _ = called({"tools/list": listed(tool()), "tools/call": [asks, DONE]}, {"region": "eu"})
    assert sent(script) == ["eu", "eu"]


def test_a_tool_with_an_invalid_header_annotation_is_hidden_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> tuple[list[str], int]:
        broken = tool("broken", header="not a token")
        script = stateless_script({"tools/list": listed(tool(), broken), "tools/call": DONE})
        async with script, Client(script.url) as client:
            names = [found.name for found in await client.list_tools()]
            with pytest.raises(LocalProtocolError, match="over HTTP"):
                await client.call_tool("broken", {})
        return names, len(script.of("tools/call"))

    with caplog.at_level(logging.WARNING, "trunkline"):
        assert run_async(main()) == (["query"], 0)
    assert [record.getMessage() for record in caplog.records if "'broken'" in record.getMessage()] != []


def test_handshake_revisions_mirror_nothing_and_hide_no_tool() -> None:
    async def main() -> tuple[int, HttpScript]:
        broken = tool("broken", header="not a token")
        script = handshake_script({"tools/list": {"tools": [tool(), broken]}})
        async with script, Client(script.url) as client:
            tools = await client.list_tools()
            await client.call_tool("query", {"region": "eu"})
        return len(tools), script

    count, script = run_async(main())
    assert (count, sent(script)) == (2, [None])


# --- listening in stateless revisions --------------------------------------------------------------------------------


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


def test_changes_are_sent_on_the_stream_of_their_request() -> None:
    async def main() -> Change:
        script = stateless_script({"subscriptions/listen": subscribed(tell=True, stay=asyncio.Event())})
        async with script, Client(script.url) as client, client.listen(tools=True) as changes:
            return await anext(changes)

    assert run_async(main()) == Change("tools")


def test_a_listener_that_is_closed_closes_its_exchange_and_posts_nothing() -> None:
    async def main() -> list[str]:
        left = asyncio.Event()
        script = stateless_script({"subscriptions/listen": subscribed(stay=left)})
        async with script, Client(script.url) as client:
            async with client.listen(tools=True):
                pass
            await left.wait()
            await client.list_tools()
        return script.names

    assert run_async(main()) == ["server/discover", "subscriptions/listen", "tools/list"]


def test_a_listener_whose_stream_breaks_reopens_it_and_reports_possibly_missed_changes() -> None:
    async def main() -> tuple[set[Change], str]:
        turns = [subscribed(tell=True), subscribed(tell=True, stay=asyncio.Event())]
        script = stateless_script({"subscriptions/listen": turns})
        async with script, Client(script.url) as client, client.listen(tools=True) as changes:
            seen = {await anext(changes) for _ in range(3)}
            return seen, client.state

    assert run_async(main()) == ({Change("tools"), Change("missed")}, "active")


async def gone(got: Got, writer: Writer) -> None:
    writer.break_off()


def test_a_listener_retries_during_a_short_outage_of_the_server() -> None:
    async def main() -> list[Change]:
        turns = [subscribed(tell=True), gone, gone, subscribed(stay=asyncio.Event())]
        script = stateless_script({"subscriptions/listen": turns})
        async with script, Client(script.url) as client, client.listen(tools=True) as changes:
            return [await anext(changes), await anext(changes)]

    assert run_async(main()) == [Change("tools"), Change("missed")]


async def test_a_listener_reports_that_the_server_stays_unreachable() -> None:
    script = stateless_script({"subscriptions/listen": [subscribed(tell=True), gone]})
    limits = Limits(resumptions=1)
    async with script, Client(script.url, limits=limits) as client, client.listen(tools=True) as changes:
        await anext(changes)
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(anext(changes), 20)
