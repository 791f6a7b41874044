"""Both SDKs in one process, over the streams of the official one: our link is all that joins them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp
import mcp_types as theirs
import pytest
from mcp.server.caching import CacheHint
from mcp.server.mcpserver import MCPServer

from tests.interop.peers import (
    BOTH_ERAS,
    NEWEST,
    NEWEST_HANDSHAKE,
    StreamsLink,
    is_handshake,
    joined_streams,
    transport_of,
)
from tests.interop.programs.official import build as build_theirs
from tests.interop.programs.ours import build as build_ours
from tests.interop.test_official_client import only_text
from tests.interop.test_official_client_asked import folders
from trunkline import Client, Server

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

EACH_ERA = pytest.mark.parametrize("revision", BOTH_ERAS)


@asynccontextmanager
async def their_client(revision: str, *, server: Server | None = None, **options: Any) -> AsyncIterator[mcp.Client]:
    mode = "legacy" if is_handshake(revision) else "auto"
    transport = transport_of(server or build_ours())
    async with mcp.Client(transport, mode=mode, read_timeout_seconds=5, **options) as client:
        yield client


@asynccontextmanager
async def our_client(revision: str, *, server: MCPServer | None = None, **options: Any) -> AsyncIterator[Client]:
    near, far = joined_streams()
    lower = (server or build_theirs())._lowlevel_server
    serving = asyncio.create_task(lower.run(*far, lower.create_initialization_options()))
    try:
        async with Client(StreamsLink(*near), revision=revision, **options) as client:
            yield client
    finally:
        await asyncio.wait_for(serving, 5)


@EACH_ERA
async def test_their_client_calls_our_server(revision: str) -> None:
    async with their_client(revision) as client:
        assert (client.protocol_version, only_text(await client.call_tool("add", {"a": 19, "b": 23}))) == (
            revision,
            "42",
        )


@EACH_ERA
async def test_our_client_calls_their_server(revision: str) -> None:
    async with our_client(revision) as client:
        assert (client.revision, (await client.call_tool("add", {"a": 19, "b": 23})).data) == (revision, 42)


async def test_their_session_can_be_driven_by_hand() -> None:
    async with transport_of(build_ours()) as streams, mcp.ClientSession(*streams) as session:
        agreed = await session.initialize()
        tools = await session.list_tools(params=theirs.PaginatedRequestParams())
        assert (agreed.server_info.name, len(tools.tools)) == ("ours", 5)


# --- what only this arrangement can see


async def late() -> str:
    """Come late."""
    return "late"


async def test_their_client_keeps_a_list_for_as_long_as_we_say() -> None:
    server = Server("fresh", tools=[late], cache_ttl_ms=60_000)
    async with their_client(NEWEST, server=server) as client:
        first = await client.list_tools()
        server.add_tool(late, name="later")
        assert [len(first.tools), len((await client.list_tools()).tools)] == [1, 1]


@pytest.mark.parametrize(("cache", "seen"), [(True, [1, 1]), (False, [1, 2])], ids=["kept", "not-kept"])
async def test_our_client_keeps_a_list_for_as_long_as_they_say(cache: bool, seen: list[int]) -> None:
    hints = CacheHint(ttl_ms=60_000, scope="public")
    server: MCPServer[Any] = MCPServer("fresh", cache_hints={"tools/list": hints}, log_level="ERROR")
    server.add_tool(late)
    async with our_client(NEWEST, server=server, cache=cache) as client:
        first = len(await client.list_tools())
        server.add_tool(late, name="later")
        assert [first, len(await client.list_tools())] == seen


async def test_our_server_hears_that_their_roots_changed() -> None:
    heard = asyncio.Event()
    server = Server("listening")
    server.notification("notifications/roots/list_changed")(heard.set)
    async with their_client(NEWEST_HANDSHAKE, server=server, list_roots_callback=folders) as client:
        await client.send_roots_list_changed()
        await heard.wait()


class Own(theirs.Request[dict[str, Any], str]):
    """A request that the protocol does not have."""

    method: str = "acme/double"
    params: dict[str, Any]


class Doubled(theirs.Result):
    """Its result."""

    twice: int


async def test_their_client_uses_a_method_of_our_own() -> None:
    server = Server("own")

    @server.method("acme/double")
    async def double(number: int) -> dict[str, int]:
        return {"twice": number * 2}

    async with their_client(NEWEST_HANDSHAKE, server=server) as client:
        assert (await client.session.send_request(Own(params={"number": 21}), Doubled)).twice == 42


@EACH_ERA
async def test_our_client_uses_a_method_of_their_own(revision: str) -> None:
    class Params(theirs.RequestParams):
        number: int

    async def double(ctx: Any, params: Params) -> dict[str, Any]:
        return {"twice": params.number * 2}

    server: MCPServer[Any] = MCPServer("own", log_level="ERROR")
    server._lowlevel_server.add_request_handler("acme/double", Params, double)
    async with our_client(revision, server=server) as client:
        assert (await client.request("acme/double", {"number": 21}))["twice"] == 42
