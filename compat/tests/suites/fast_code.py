"""FastMCP servers as code uses them since version 3: called directly, subclassed, with parts defined elsewhere."""

import pytest
from fastmcp import Client, FastMCP
from fastmcp.exceptions import NotFoundError, ToolError


@pytest.fixture(autouse=True)
def _newer(fast):
    if fast == 2:
        pytest.skip("version 2 has none of it")


async def test_servers_are_used_from_code():
    mcp = FastMCP("code")

    @mcp.tool
    def add(a: int, b: int = 2) -> int:
        return a + b

    @mcp.resource("data://{name}")
    def data(name: str) -> str:
        return name

    @mcp.prompt
    def ask(topic: str) -> str:
        return f"About {topic}"

    result = await mcp.call_tool("add", {"a": 1})
    assert (result.content[0].text, result.structured_content, add(1)) == ("3", {"result": 3}, 3)
    assert (await mcp.read_resource("data://x")).contents[0].content == "x"
    assert (await mcp.render_prompt("ask", {"topic": "x"})).messages[0].content.text == "About x"
    assert [each.name for each in await mcp.list_prompts()] == ["ask"]
    assert [each.uri_template for each in await mcp.list_resource_templates()] == ["data://{name}"]
    assert await mcp.list_resources() == []
    for work in (mcp.call_tool("none"), mcp.read_resource("none://x"), mcp.render_prompt("none")):
        with pytest.raises(NotFoundError):
            await work


async def test_a_subclass_that_filters_is_obeyed():
    class Filtering(FastMCP):
        async def list_tools(self, **options):
            return [tool for tool in await super().list_tools(**options) if tool.name != "hidden"]

        async def call_tool(self, name, arguments=None, **options):
            if name == "hidden":
                raise ToolError("it is hidden")
            return await super().call_tool(name, arguments, **options)

    mcp = Filtering("filtering")
    mcp.tool(lambda: 1, name="hidden")
    mcp.tool(lambda: 2, name="offered")
    async with Client(mcp) as client:
        assert [tool.name for tool in await client.list_tools()] == ["offered"]
        assert (await client.call_tool("offered")).content[0].text == "2"
        with pytest.raises(ToolError, match="it is hidden"):
            await client.call_tool("hidden")


async def test_tools_marked_elsewhere_are_added_with_what_was_marked():
    from fastmcp.tools import tool

    @tool(name="added", description="Adds.", tags={"math"})
    def plus(a: int, b: int) -> int:
        return a + b

    mcp = FastMCP("marked")
    mcp.add_tool(plus)
    async with Client(mcp) as client:
        listed = (await client.list_tools())[0]
        assert (listed.name, listed.description, listed.meta["fastmcp"]["tags"]) == ("added", "Adds.", ["math"])
        assert (await client.call_tool("added", {"a": 1, "b": 2})).data == 3
    assert plus(1, 2) == 3


async def test_lifespans_are_joined():
    from fastmcp.server.lifespan import lifespan

    events = []

    @lifespan
    async def first(server):
        events.append("first")
        yield {"a": 1}
        events.append("first closed")

    @lifespan
    async def second(server):
        events.append("second")
        yield {"b": 2}
        events.append("second closed")

    from fastmcp import Context

    mcp = FastMCP("living", lifespan=first | second)

    @mcp.tool
    def values(ctx: Context) -> dict:
        return dict(ctx.lifespan_context)

    async with Client(mcp) as client:
        assert (await client.call_tool("values")).data == {"a": 1, "b": 2}
    assert events == ["first", "second", "second closed", "first closed"]


async def test_things_are_switched_on_and_off_by_name_and_tag():
    mcp = FastMCP("switched")
    for name, tag in (("a", "x"), ("b", "x"), ("c", "y")):
        mcp.tool(lambda: 1, name=name, tags={tag})

    async def names():
        async with Client(mcp) as client:
            return [tool.name for tool in await client.list_tools()]

    mcp.disable(tags={"x"})
    assert await names() == ["c"]
    mcp.enable(names={"a"})
    assert await names() == ["a", "c"]
    mcp.enable(tags={"y"}, only=True)
    assert await names() == ["c"]
