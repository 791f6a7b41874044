"""``MCPServer``, the low-level ``Server`` and ``Client`` of version 2 of the official SDK, in both eras."""

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.apps import Apps
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


class Person(BaseModel):
    name: str


def make_server():
    mcp = MCPServer("high", title="High", version="3", instructions="Ask.")

    @mcp.tool()
    def greet(name: str, near: list[str] | None = None) -> str:
        """Greet."""
        return f"{name} {near}"

    @mcp.tool()
    def person() -> Person:
        return Person(name="Ada")

    @mcp.tool()
    def broken(kind: str) -> str:
        raise {"tool": ToolError("t"), "value": ValueError("secret"), "mcp": MCPError(code=-7, message="m")}[kind]

    @mcp.tool()
    def picture() -> list:
        return [Image(data=b"hi", format="png"), "x"]

    @mcp.resource("a://one")
    def one() -> str:
        return "1"

    @mcp.resource("a://{name}/b")
    def some(name: str) -> dict:
        return {"name": name}

    @mcp.resource("a://broken")
    def broken_resource() -> str:
        raise ValueError("secret")

    @mcp.prompt()
    def ask(topic: str) -> str:
        return f"About {topic}"

    @mcp.prompt(name="broken")
    def broken_prompt() -> str:
        raise ValueError("secret")

    return mcp


@ERAS
async def test_tools_resources_and_prompts(mode):
    async with Client(make_server(), mode=mode) as client:
        assert (client.server_info.name, client.server_info.version, client.instructions) == ("high", "3", "Ask.")
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["greet"].input_schema["required"] == ["name"]
        assert tools["person"].output_schema["title"] == "Person"
        greeted = await client.call_tool("greet", {"name": "Ada", "near": '["Oslo"]'})
        assert (greeted.content[0].text, greeted.structured_content) == ("Ada ['Oslo']", {"result": "Ada ['Oslo']"})
        assert (await client.call_tool("person")).structured_content == {"name": "Ada"}
        assert [block.type for block in (await client.call_tool("picture")).content] == ["image", "text"]
        assert (await client.read_resource("a://one")).contents[0].text == "1"
        assert (await client.read_resource("a://x/b")).contents[0].text == '{\n  "name": "x"\n}'
        assert (await client.list_resource_templates()).resource_templates[0].uri_template == "a://{name}/b"
        assert (await client.get_prompt("ask", {"topic": "x"})).messages[0].content.text == "About x"


@ERAS
async def test_failures_keep_unexpected_texts_to_themselves(mode):
    async with Client(make_server(), mode=mode) as client:
        meant = await client.call_tool("broken", {"kind": "tool"})
        assert (meant.is_error, meant.content[0].text) == (True, "Error executing tool broken: t")
        unexpected = await client.call_tool("broken", {"kind": "value"})
        assert (unexpected.is_error, unexpected.content[0].text) == (True, "Error executing tool broken")
        with pytest.raises(MCPError, match="m") as raised:
            await client.call_tool("broken", {"kind": "mcp"})
        assert raised.value.error.code == -7
        with pytest.raises(MCPError):
            await client.read_resource("a://none")
        for work in (client.read_resource("a://broken"), client.get_prompt("broken")):
            with pytest.raises(MCPError, match=r"^((?!secret).)*$"):
                await work


@ERAS
async def test_the_low_level_server_takes_handlers_as_keywords(mode):
    async def list_tools(ctx: ServerRequestContext, params):
        return types.ListToolsResult(tools=[types.Tool(name="echo", input_schema={"type": "object"})])

    async def call_tool(ctx, params):
        await ctx.session.send_notification(types.ToolListChangedNotification())
        text = f"{params.name} {params.arguments} {ctx.lifespan_context}"
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content={"a": 1})

    async def read(ctx, params):
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text="r")])

    async def get_prompt(ctx, params):
        raise MCPError(code=types.INVALID_PARAMS, message="which?", data={"a": 1})

    server = Server(
        "low", on_list_tools=list_tools, on_call_tool=call_tool, on_read_resource=read, on_get_prompt=get_prompt
    )
    async with Client(server, mode=mode) as client:
        assert (await client.list_tools()).tools[0].name == "echo"
        result = await client.call_tool("echo", {"x": 1})
        assert (result.content[0].text, result.structured_content) == ("echo {'x': 1} {}", {"a": 1})
        assert (await client.read_resource("a://b")).contents[0].text == "r"
        with pytest.raises(MCPError, match="which") as raised:
            await client.get_prompt("p")
        assert (raised.value.error.code, raised.value.error.data) == (-32602, {"a": 1})


@ERAS
async def test_a_handler_asks_for_input_itself(mode):
    mcp = MCPServer("asking")

    class Answer(BaseModel):
        name: str

    @mcp.tool()
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", Answer)
        return f"{answer.action} {getattr(answer, 'data', None)}"

    async def accept(context, params):
        return types.ElicitResult(action="accept", content={"name": params.message})

    async def decline(context, params):
        return types.ElicitResult(action="decline")

    if mode == "auto":
        pytest.skip("the framework itself asks in the middle of a call only with a handshake")
    async with Client(mcp, mode=mode, elicitation_callback=accept) as client:
        assert (await client.call_tool("ask")).content[0].text == "accept name='Who?'"
    async with Client(mcp, mode=mode, elicitation_callback=decline) as client:
        assert (await client.call_tool("ask")).content[0].text == "decline None"


@ERAS
async def test_apps_bind_tools_to_pages(mode):
    apps = Apps()

    @apps.tool(resource_uri="ui://clock/app.html", description="The time.", visibility=["model"])
    def clock() -> str:
        return "noon"

    apps.add_html_resource("ui://clock/app.html", "<p>Clock</p>", title="Clock")
    async with Client(MCPServer("apps", extensions=[apps]), mode=mode) as client:
        tool = (await client.list_tools()).tools[0]
        ui = tool.meta["ui"]
        assert (tool.description, ui["resourceUri"], ui["visibility"]) == (
            "The time.",
            "ui://clock/app.html",
            ["model"],
        )
        page = (await client.read_resource("ui://clock/app.html")).contents[0]
        assert (page.text, page.mime_type) == ("<p>Clock</p>", "text/html;profile=mcp-app")
        assert (await client.list_resources()).resources[0].title == "Clock"
        assert (await client.call_tool("clock")).content[0].text == "noon"
        if mode == "auto":
            assert "io.modelcontextprotocol/ui" in client.server_capabilities.extensions


@ERAS
async def test_middleware_sees_every_request(mode):
    mcp = make_server()
    seen = []

    async def watch(context, call_next):
        seen.append(context.method)
        return await call_next(context)

    mcp.middleware.append(watch)
    async with Client(mcp, mode=mode) as client:
        await client.call_tool("person")
    assert "tools/call" in seen


@ERAS
async def test_middleware_runs_in_the_order_of_the_list(mode):
    mcp = make_server()
    seen = []

    def watch(name):
        async def run(context, call_next):
            if context.method == "tools/call":
                seen.append(name)
            return await call_next(context)

        return run

    mcp.middleware.extend([watch("second"), watch("third")])
    mcp.middleware.insert(0, watch("first"))
    async with Client(mcp, mode=mode) as client:
        await client.call_tool("person")
    assert seen == ["first", "second", "third"]
