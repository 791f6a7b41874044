"""The client and our own server together, in every revision."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import trunkline.types as t
from tests.client.scripted_server import settle
from trunkline.client.client import Client
from trunkline.errors import ToolError
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, REVISION_NAMES
from trunkline.server.context import Context
from trunkline.server.server import Server

EVERY = pytest.mark.parametrize("revision", REVISION_NAMES)
STRUCTURED = pytest.mark.parametrize("revision", REVISION_NAMES[2:])
NEWER = pytest.mark.parametrize("revision", [NEWEST_HANDSHAKE.name, NEWEST.name])


def make_server() -> Server:
    server = Server("demo", version="1.0")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def fail() -> str:
        """Fail."""
        raise ToolError("not today")

    @server.tool
    async def greet(ctx: Context) -> str:
        """Greet the caller."""
        answer = await ctx.elicit("Who are you?", str)
        await ctx.report_progress(1, 2, "half")
        return f"{answer.action} {answer.data}"

    @server.resource("note://one")
    async def note() -> str:
        return "first"

    @server.prompt
    async def hello(name: str) -> str:
        """Say hello."""
        return f"Hello {name}"

    return server


@EVERY
async def test_every_feature_works_in_every_revision(revision: str) -> None:
    async with Client(make_server(), revision=revision) as client:
        assert client.revision == revision
        assert {tool.name for tool in await client.list_tools()} == {"add", "fail", "greet"}
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
        assert [found.text for found in await client.read_resource("note://one")] == ["first"]
        prompt = await client.get_prompt("hello", {"name": "Ada"})
        assert prompt.messages[0].content == t.TextContent(text="Hello Ada")
        await client.ping()


@pytest.mark.parametrize(
    ("blocks", "data"),
    [
        (['{"a": [1, null]}'], {"a": [1, None]}),
        (["[1, 2]"], [1, 2]),
        (["-2.5"], -2.5),
        (["true"], True),
        (["two words"], None),
        (['"quoted"'], None),
        (["null"], None),
        (["12 months"], None),
        (["{broken"], None),
        (["[" * 100_000], None),
        (["1e999999"], None),
        (["1", "2"], None),
        ([], None),
    ],
    ids=lambda each: str(each)[:20],
)
async def test_before_structured_content_a_value_is_read_from_the_text(blocks: list[str], data: Any) -> None:
    server = Server("s")

    @server.tool(output_schema=None)
    def tell() -> Any:
        return t.CallToolResult(content=[t.TextContent(text=each) for each in blocks])

    values = {}
    for revision in REVISION_NAMES[:3]:
        async with Client(server, revision=revision) as client:
            values[revision] = (await client.call_tool("tell")).data
    assert values == {"2024-11-05": data, "2025-03-26": data, "2025-06-18": None}


async def test_the_text_of_a_failed_call_is_no_value() -> None:
    server = Server("s")

    @server.tool
    def fail() -> str:
        raise ToolError('{"code": 5}')

    async with Client(server, revision="2024-11-05") as client:
        assert (await client.call_tool("fail", raise_on_error=False)).data is None


@STRUCTURED
async def test_a_question_of_a_tool_is_answered_by_the_same_callback_in_both_eras(revision: str) -> None:
    told: list[Any] = []
    async with Client(make_server(), revision=revision, elicitation=lambda _: "Ada") as client:
        result = await client.call_tool("greet", on_progress=lambda *news: told.append(news))
    assert result.text == "accept Ada"
    assert told == [(1, 2, "half")]


@NEWER
async def test_leaving_waits_until_the_server_has_let_go(revision: str) -> None:
    walked: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        walked.append("enter")
        yield
        await asyncio.sleep(0)
        walked.append("leave")

    server = Server("demo", lifespan=lifespan)

    @server.tool
    async def wait() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return "never"

    async with Client(server, revision=revision) as client:
        call = asyncio.ensure_future(client.call_tool("wait"))
        await settle()
    assert walked == ["enter", "leave"]
    await asyncio.wait([call])
