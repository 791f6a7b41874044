"""Methods of the protocol that a handler of one's own answers, and tools that check their arguments themselves."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from tests.server.talk import ERAS
from trunkline import Client, Context, Server
from trunkline.errors import InvalidParams, MissingCapability, RequestFailed

OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def answering() -> Server:
    server = Server("s")

    async def list_tools(ctx: Context, params: t.PaginatedRequestParams) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[t.Tool(name=f"made {params.cursor}", input_schema={"type": "object"})])

    async def call_tool(ctx: Context, params: t.CallToolRequestParams) -> t.CallToolResult:
        await ctx.report_progress(1, 2)
        if params.name == "fails":
            raise RequestFailed("not that", code=-7, data={"a": 1})
        return t.CallToolResult(content=[t.TextContent(text=f"{params.name} {ctx.server.name}")])

    server.answer("tools/list", list_tools)
    server.answer("tools/call", call_tool)
    return server


@ERAS
async def test_a_handler_answers_instead_of_what_is_registered(revision: str) -> None:
    progress: list[Any] = []
    async with Client(answering(), revision=revision) as client:
        assert "tools" in client.server_capabilities
        assert "prompts" not in client.server_capabilities
        assert [tool.name for tool in await client.list_tools()] == ["made None"]
        result = await client.call_tool("anything", on_progress=lambda *values: progress.append(values[:2]))
        assert result.text == "anything s"
        with pytest.raises(RequestFailed, match="not that") as raised:
            await client.call_tool("fails")
        with pytest.raises(MissingCapability):
            await client.list_prompts()
    assert (raised.value.code, raised.value.data, progress) == (-7, {"a": 1}, [(1, 2)])


@ERAS
async def test_resources_are_subscribed_to_only_if_that_is_answered_too(revision: str) -> None:
    async def read(ctx: Context, params: t.ReadResourceRequestParams) -> t.ReadResourceResult:
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=params.uri, text="read")])

    server = Server("s")
    server.answer("resources/read", read)
    async with Client(server, revision=revision) as client:
        assert (await client.read_resource("any://thing"))[0].text == "read"
        assert "subscribe" not in client.server_capabilities["resources"]


async def test_middleware_runs_around_an_answered_method() -> None:
    server, seen = answering(), []

    async def watch(request: Any, call_next: Any) -> Any:
        seen.append(request.method)
        return await call_next(request)

    server.add_middleware(watch)
    async with Client(server) as client:
        await client.call_tool("anything")
    assert "tools/call" in seen


@pytest.mark.parametrize("method", ["acme/own", "sampling/createMessage", "notifications/initialized"])
def test_only_what_clients_call_can_be_answered(method: str) -> None:
    async def handler(ctx: Context, params: Any) -> None: ...

    with pytest.raises(ValueError, match=r"for your own, use @server\.method"):
        Server("s").answer(method, handler)


@ERAS
async def test_an_unchecked_tool_gets_the_arguments_as_they_were_sent(revision: str) -> None:
    def f(**arguments: Any) -> dict[str, Any]:
        return {"sent": arguments}

    server = Server("s")
    server.add_tool(f, input_schema=OBJECT, output_schema=OBJECT, checked=False)
    server.add_tool(f, name="checked", input_schema=OBJECT)
    async with Client(server, revision=revision, validate=False) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert (tools["f"].input_schema, tools["f"].output_schema) == (OBJECT, OBJECT)
        # Neither the arguments nor the result match the schemas: checking is the function's part.
        assert (await client.call_tool("f", {"n": "one", "m": 1})).structured_content == {"sent": {"n": "one", "m": 1}}
        assert (await client.call_tool("f")).structured_content == {"sent": {}}
        wrong = await client.call_tool("checked", {"n": "one"}, raise_on_error=False)
        assert wrong.is_error
        with pytest.raises(InvalidParams):
            await client.request("tools/call", {"name": "f", "arguments": [1]})
