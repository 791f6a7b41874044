"""The client against the official SDK's server over HTTP: both eras, both response forms, the old transport."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("mcp")

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

from tests.support import run_async
from trunkline.client.client import Client
from trunkline.protocol.revisions import HANDSHAKE_NAMES, NEWEST, REVISION_NAMES

STREAMABLE = [name for name in REVISION_NAMES if name != REVISION_NAMES[0]]


class Name(BaseModel):
    """What the tool asks for."""

    name: str


def official() -> MCPServer:
    server = MCPServer("official")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    async def count(ctx: Context[Any, Any]) -> str:
        await ctx.report_progress(1, 2)
        await ctx.report_progress(2, 2)
        return "counted"

    @server.tool()
    async def greet(ctx: Context[Any, Any]) -> str:
        answer = await ctx.elicit("Who?", Name)
        return f"hello {answer.data.name}" if answer.action == "accept" else "nobody"

    return server


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


@contextlib.asynccontextmanager
async def served(app: Any, path: str) -> AsyncIterator[str]:
    """Serve an app on a free port of this machine."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1, lifespan="on")
        server = _Server(config)
        task = asyncio.ensure_future(server._serve([listening]))
        try:
            await server.up.wait()
            yield f"http://127.0.0.1:{port}{path}"
        finally:
            server.should_exit = True
            await task


def conversation(app: Any, path: str = "/mcp", **options: Any) -> tuple[Any, ...]:
    """Connect, list, call, and hear progress."""

    async def main() -> tuple[Any, ...]:
        heard: list[float] = []
        async with served(app, path) as url, Client(url, **options) as client:
            tools = [tool.name for tool in await client.list_tools()]
            total = (await client.call_tool("add", {"a": 1, "b": 2})).data
            counted = await client.call_tool("count", on_progress=lambda value, total, message: heard.append(value))
            return client.revision, tools, total, counted.text, heard

    return run_async(main())


@pytest.mark.parametrize("json_response", [False, True], ids=["events", "json"])
@pytest.mark.parametrize("revision", STREAMABLE)
def test_every_revision_of_streamable_http_works(revision: str, json_response: bool) -> None:
    app = official().streamable_http_app(json_response=json_response)
    agreed, tools, total, text, heard = conversation(app, revision=revision)
    assert (agreed, tools, total, text) == (revision, ["add", "count", "greet"], 3, "counted")
    assert heard == ([] if json_response else [1, 2])


def test_the_newest_revision_is_detected() -> None:
    assert conversation(official().streamable_http_app())[0] == NEWEST.name


def test_a_server_without_sessions_works() -> None:
    app = official().streamable_http_app(stateless_http=True)
    assert conversation(app, revision="legacy")[2] == 3


def test_the_old_transport_is_detected() -> None:
    agreed, _, total, _, heard = conversation(official().sse_app(), "/sse")
    assert agreed in HANDSHAKE_NAMES
    assert (total, heard) == (3, [1, 2])


@pytest.mark.parametrize("revision", HANDSHAKE_NAMES[-2:])
def test_a_server_request_is_answered(revision: str) -> None:
    async def main() -> str:
        app = official().streamable_http_app()
        async with (
            served(app, "/mcp") as url,
            Client(url, revision=revision, elicitation=lambda question: {"name": "Ada"}) as client,
        ):
            return (await client.call_tool("greet")).text

    assert run_async(main()) == "hello Ada"
