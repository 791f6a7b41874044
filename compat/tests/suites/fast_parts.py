"""FastMCP servers made of parts: mounted servers, proxies, middleware, dependencies, OpenAPI, Apps; and its client."""

import json
import sys

import pytest
from fastmcp import Client, Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_http_headers
from fastmcp.server.middleware import Middleware, MiddlewareContext


def make_child():
    child = FastMCP("child")

    @child.tool
    async def echo(text: str, ctx: Context) -> str:
        """Repeat."""
        await ctx.info("echoing")
        return f"{text} there"

    @child.tool
    def broken() -> str:
        raise ToolError("broken there")

    @child.resource("data://one")
    def one() -> str:
        return "1"

    @child.resource("data://{name}/more")
    def more(name: str) -> str:
        return name

    @child.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    return child


def proxy_of(target, fast):
    if fast == 2:
        return FastMCP.as_proxy(target)
    from fastmcp.server import create_proxy

    return create_proxy(target)


@pytest.mark.parametrize("kind", ["mounted", "proxied"])
async def test_what_another_server_offers_is_offered_under_a_namespace(kind, fast):
    mcp, child = FastMCP("outer"), make_child()
    inner = child if kind == "mounted" else proxy_of(child, fast)
    mcp.mount(inner, **({"prefix": "far"} if fast == 2 else {"namespace": "far"}))
    async with Client(mcp) as client:
        assert {tool.name for tool in await client.list_tools()} == {"far_echo", "far_broken"}
        assert (await client.call_tool("far_echo", {"text": "hi"})).data == "hi there"
        with pytest.raises(ToolError, match="broken there"):
            await client.call_tool("far_broken")
        assert [str(each.uri) for each in await client.list_resources()] == ["data://far/one"]
        assert (await client.read_resource("data://far/one"))[0].text == "1"
        assert (await client.read_resource("data://far/x/more"))[0].text == "x"
        assert [each.name for each in await client.list_prompts()] == ["far_greet"]
        assert (await client.get_prompt("far_greet", {"name": "Ada"})).messages[0].content.text == "Hello Ada"


async def test_a_mounted_server_is_followed_and_needs_no_namespace():
    mcp, child = FastMCP("outer"), FastMCP("inner")
    mcp.mount(child)
    child.tool(lambda: "late", name="late")
    async with Client(mcp) as client:
        assert (await client.call_tool("late")).content[0].text == "late"
        assert [tool.name for tool in await client.list_tools()] == ["late"]


async def test_a_proxy_offers_what_the_other_server_offers(fast):
    async with Client(proxy_of(make_child(), fast)) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert tools["echo"].description == "Repeat."
        assert (await client.call_tool("echo", {"text": "hi"})).data == "hi there"
        assert (await client.read_resource("data://one"))[0].text == "1"
        assert (await client.get_prompt("greet", {"name": "Ada"})).messages[0].content.text == "Hello Ada"


async def test_middleware_changes_requests_and_results_and_sees_failures():
    seen = []

    class Watching(Middleware):
        async def on_message(self, context: MiddlewareContext, call_next):
            seen.append((context.method, context.type))
            return await call_next(context)

        async def on_call_tool(self, context, call_next):
            if context.message.name == "echo":
                message = context.message.model_copy(update={"arguments": {"text": "changed"}})
                context = context.copy(message=message)
            try:
                return await call_next(context)
            except ToolError as error:
                seen.append(str(error))
                raise ToolError("replaced") from error

        async def on_list_tools(self, context, call_next):
            return [tool for tool in await call_next(context) if tool.name != "hidden"]

        async def on_read_resource(self, context, call_next):
            seen.append(str(context.message.uri))
            return await call_next(context)

    mcp = make_child()
    mcp.add_middleware(Watching())
    mcp.tool(lambda: 1, name="hidden")
    async with Client(mcp) as client:
        assert "hidden" not in [tool.name for tool in await client.list_tools()]
        assert (await client.call_tool("echo", {"text": "hi"})).data == "changed there"
        with pytest.raises(ToolError, match="replaced"):
            await client.call_tool("broken")
        await client.read_resource("data://one")
    assert ("tools/call", "request") in seen
    assert {"broken there", "data://one"} <= {each for each in seen if isinstance(each, str)}


async def test_middleware_refuses_before_the_tool_runs():
    class Refusing(Middleware):
        async def on_call_tool(self, context, call_next):
            raise ToolError("not you")

    ran = []
    mcp = FastMCP("guarded", middleware=[Refusing()])
    mcp.tool(lambda: ran.append(1), name="guarded")
    async with Client(mcp) as client:
        with pytest.raises(ToolError, match="not you"):
            await client.call_tool("guarded")
    assert ran == []


async def test_dependencies_are_hidden_from_the_schema_and_closed_after_the_call(fast):
    from contextlib import asynccontextmanager

    from fastmcp.dependencies import CurrentContext, Depends

    events = []

    @asynccontextmanager
    async def connection():
        events.append("open")
        yield "db"
        events.append("close")

    async def user() -> str:
        return "ada"

    mcp = FastMCP("dependencies")

    @mcp.tool
    async def query(
        text: str,
        db: str = Depends(connection),
        who: str = Depends(user),
        ctx: Context = CurrentContext(),  # noqa: B008 - how FastMCP's users write it
    ) -> str:
        events.append("run")
        return f"{text} {db} {who} {ctx.fastmcp.name} {get_http_headers()}"

    async with Client(mcp) as client:
        tool = (await client.list_tools())[0]
        schema = tool.inputSchema if fast < 4 else tool.input_schema
        assert list(schema["properties"]) == ["text"]
        assert (await client.call_tool("query", {"text": "q"})).data == "q db ada dependencies {}"
    assert events == ["open", "run", "close"]


async def test_apps_of_tools_and_pages(fast):
    if fast == 2:
        pytest.skip("version 2 has no Apps")
    from fastmcp.apps import AppConfig, ResourceCSP

    mcp = FastMCP("apps")

    @mcp.tool(app=AppConfig(resource_uri="ui://clock/app.html", visibility=["model"]))
    def clock() -> str:
        return "noon"

    @mcp.resource("ui://clock/app.html", app=AppConfig(csp=ResourceCSP(connect_domains=["https://a.example"])))
    def page() -> str:
        return "<p>Clock</p>"

    async with Client(mcp) as client:
        ui = (await client.list_tools())[0].meta["ui"]
        assert (ui["resourceUri"], ui["visibility"]) == ("ui://clock/app.html", ["model"])
        listed = (await client.list_resources())[0]
        assert listed.meta["ui"]["csp"] == {"connectDomains": ["https://a.example"]}
        contents = (await client.read_resource("ui://clock/app.html"))[0].model_dump(by_alias=True)
        assert (contents["text"], contents["mimeType"]) == ("<p>Clock</p>", "text/html;profile=mcp-app")


async def test_the_client_starts_programs_of_a_configuration(tmp_path, fast):
    program = tmp_path / "program.py"
    program.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    ask = json.loads(line)\n"
        "    if 'id' not in ask: continue\n"
        "    result = {'initialize': {'protocolVersion': '2025-06-18', 'capabilities': {'tools': {}},\n"
        "              'serverInfo': {'name': 'raw', 'version': '1'}},\n"
        "              'tools/list': {'tools': [{'name': sys.argv[1], 'inputSchema': {'type': 'object'}}]},\n"
        "              'tools/call': {'content': [{'type': 'text', 'text': sys.argv[1]}]}}.get(ask['method'])\n"
        "    error = {'code': -32601, 'message': 'Method not found'}\n"
        "    answer = {'error': error} if result is None else {'result': result}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': ask['id'], **answer}), flush=True)\n"
    )
    entry = {"command": sys.executable, "args": [str(program), "one"]}
    async with Client({"mcpServers": {"a": entry}}) as client:
        assert (await client.call_tool("one")).content[0].text == "one"
    other = {"command": sys.executable, "args": [str(program), "two"]}
    async with Client({"mcpServers": {"a": entry, "b": other}}) as client:
        assert {tool.name for tool in await client.list_tools()} == {"a_one", "b_two"}
        assert (await client.call_tool("b_two")).content[0].text == "two"


async def test_the_client_hears_changes_and_knows_whether_it_is_connected(fast):
    heard = []

    async def hear(message):
        heard.append(getattr(message, "root", message).method)

    mcp = FastMCP("changing")

    @mcp.tool
    async def grow(ctx: Context) -> str:
        mcp.tool(lambda: 1, name="grown")
        await ctx.session.send_tool_list_changed()
        return "grown"

    options = {"mode": "legacy"} if fast == 4 else {}
    async with Client(mcp, message_handler=hear, **options) as client:
        await client.call_tool("grow")
        assert "grown" in [tool.name for tool in await client.list_tools()]
        assert await client.ping()
        assert client.is_connected()
    assert "notifications/tools/list_changed" in heard
    assert not client.is_connected()


def test_settings_are_read_from_the_process():
    import fastmcp

    assert fastmcp.settings.port == 8000
    assert fastmcp.__version__.partition(".")[0] in "234"
    assert json.dumps(fastmcp.settings.log_level) == '"INFO"'
