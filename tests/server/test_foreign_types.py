"""Values made of the official package's own types, returned by handlers of ours: recognised by their shape."""

from typing import Any

import pytest

from trunkline import Client, Server

mcp_types = pytest.importorskip("mcp.types")


async def called(value: Any) -> Any:
    server = Server("foreign")

    @server.tool
    async def f():  # type: ignore[no-untyped-def]
        return value

    async with Client(server) as connected:
        client: Any = connected
        return await client.call_tool("f", raise_on_error=False)


async def test_a_whole_result_that_says_failure_is_a_failure() -> None:
    result = await called(
        mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text="no")], is_error=True)
    )

    assert (result.is_error, result.text) == (True, "no")


async def test_content_stays_content() -> None:
    image = mcp_types.ImageContent(type="image", data="aGk=", mime_type="image/png")
    result = await called([mcp_types.TextContent(type="text", text="a"), image, "b"])

    assert [type(each).__name__ for each in result.content] == ["TextContent", "ImageContent", "TextContent"]


async def test_messages_contents_and_icons_of_theirs() -> None:
    server = Server("foreign", icons=None)

    @server.prompt(icons=[mcp_types.Icon(src="a.png")])
    async def ask():  # type: ignore[no-untyped-def]
        content = mcp_types.TextContent(type="text", text="hello")
        return [mcp_types.PromptMessage(role="assistant", content=content)]

    @server.resource("a://b")
    async def read():  # type: ignore[no-untyped-def]
        return mcp_types.ReadResourceResult(
            contents=[mcp_types.TextResourceContents(uri="a://b", text="x", mime_type="text/css")]
        )

    async with Client(server) as connected:
        client: Any = connected
        assert (await client.list_prompts())[0].icons[0].src == "a.png"
        message = (await client.get_prompt("ask")).messages[0]
        assert (message.role, message.content.text) == ("assistant", "hello")
        contents = (await client.read_resource("a://b"))[0]
        assert (contents.text, contents.mime_type) == ("x", "text/css")


async def test_the_first_argument_by_its_foreign_name_registers() -> None:
    server = Server("foreign")

    def f() -> int:
        return 1

    server.tool(name_or_fn=f)  # type: ignore[call-overload]

    assert list(server.registry.tools) == ["f"]
