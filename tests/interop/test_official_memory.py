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
from tests.interop.test_official_client_asked import accept, folders, model
from tests.support import run_async
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
def test_their_client_calls_our_server(revision: str) -> None:
    async def main() -> tuple[str, str]:
        async with their_client(revision) as client:
            return client.protocol_version, only_text(await client.call_tool("add", {"a": 19, "b": 23}))

    assert run_async(main()) == (revision, "42")


@EACH_ERA
def test_our_server_asks_their_client(revision: str) -> None:
    async def main() -> str:
        async with their_client(revision, elicitation_callback=accept, sampling_callback=model) as client:
            return only_text(await client.call_tool("ask_in_turn"))

    assert run_async(main()) == "[None] Greet 1? and 2?.: 1?, 2?"


@EACH_ERA
def test_our_client_calls_their_server(revision: str) -> None:
    async def main() -> tuple[str | None, Any]:
        async with our_client(revision) as client:
            return client.revision, (await client.call_tool("add", {"a": 19, "b": 23})).data

    assert run_async(main()) == (revision, 42)


@EACH_ERA
def test_their_server_asks_our_client(revision: str) -> None:
    async def main() -> str:
        async with our_client(revision, elicitation=lambda question: {"name": "Ann"}) as client:
            return (await client.call_tool("ask_person")).text

    assert run_async(main()) == "Ann, 30"


def test_our_client_finds_the_era_of_their_server_in_memory() -> None:
    async def main() -> str | None:
        async with our_client("auto") as client:
            return client.revision

    assert run_async(main()) == NEWEST


def test_their_session_can_be_driven_by_hand() -> None:
    async def main() -> tuple[str, int]:
        async with transport_of(build_ours()) as streams, mcp.ClientSession(*streams) as session:
            agreed = await session.initialize()
            tools = await session.list_tools(params=theirs.PaginatedRequestParams())
            return agreed.server_info.name, len(tools.tools)

    assert run_async(main()) == ("ours", 5)


# --- what only this arrangement can see


async def late() -> str:
    """Come late."""
    return "late"


def test_their_client_keeps_a_list_for_as_long_as_we_say() -> None:
    async def main() -> list[int]:
        server = Server("fresh", tools=[late], cache_ttl_ms=60_000)
        async with their_client(NEWEST, server=server) as client:
            first = await client.list_tools()
            server.add_tool(late, name="later")
            return [len(first.tools), len((await client.list_tools()).tools)]

    assert run_async(main()) == [1, 1]


@pytest.mark.parametrize(("cache", "seen"), [(True, [1, 1]), (False, [1, 2])], ids=["kept", "not-kept"])
def test_our_client_keeps_a_list_for_as_long_as_they_say(cache: bool, seen: list[int]) -> None:
    async def main() -> list[int]:
        hints = CacheHint(ttl_ms=60_000, scope="public")
        server: MCPServer[Any] = MCPServer("fresh", cache_hints={"tools/list": hints}, log_level="ERROR")
        server.add_tool(late)
        async with our_client(NEWEST, server=server, cache=cache) as client:
            first = len(await client.list_tools())
            server.add_tool(late, name="later")
            return [first, len(await client.list_tools())]

    assert run_async(main()) == seen


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


def test_their_client_uses_a_method_of_our_own() -> None:
    async def main() -> int:
        server = Server("own")

        @server.method("acme/double")
        async def double(number: int) -> dict[str, int]:
            return {"twice": number * 2}

        async with their_client(NEWEST_HANDSHAKE, server=server) as client:
            return (await client.session.send_request(Own(params={"number": 21}), Doubled)).twice

    assert run_async(main()) == 42


@EACH_ERA
def test_our_client_uses_a_method_of_their_own(revision: str) -> None:
    class Params(theirs.RequestParams):
        number: int

    async def double(ctx: Any, params: Params) -> dict[str, Any]:
        return {"twice": params.number * 2}

    async def main() -> Any:
        server: MCPServer[Any] = MCPServer("own", log_level="ERROR")
        server._lowlevel_server.add_request_handler("acme/double", Params, double)
        async with our_client(revision, server=server) as client:
            return (await client.request("acme/double", {"number": 21}))["twice"]

    assert run_async(main()) == 42
