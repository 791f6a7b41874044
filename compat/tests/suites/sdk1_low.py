"""The low-level server of version 1 of the official SDK, with its session in memory."""

import mcp.types as types
import pytest
from mcp.server import Server
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.shared.exceptions import McpError
from mcp.shared.memory import create_connected_server_and_client_session as connect
from pydantic import AnyUrl

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def make_server():
    server = Server("low", version="1.2", instructions="Ask.")

    @server.list_tools()
    async def list_tools():
        return [
            types.Tool(name=name, inputSchema=SCHEMA)
            for name in ("text", "object", "both", "fails", "whole", "progress")
        ]

    @server.call_tool()
    async def call_tool(name, arguments):
        n = arguments["n"]
        if name == "object":
            return {"n": n}
        if name == "both":
            return [types.TextContent(type="text", text="b")], {"n": n}
        if name == "whole":
            return types.CallToolResult(content=[], isError=True, _meta={"k": 1})
        if name == "progress":
            context = server.request_context
            await context.session.send_progress_notification(context.meta.progressToken, 1, 2, "half")
            await context.session.send_log_message("info", {"a": 1}, logger="low")
        if name == "fails":
            raise ValueError("no such thing")
        return [types.TextContent(type="text", text=str(n))]

    return server


async def test_the_server_says_what_it_is():
    async with connect(make_server()) as session:
        hello = await session.initialize()

    assert (hello.serverInfo.name, hello.serverInfo.version, hello.instructions) == ("low", "1.2", "Ask.")
    assert hello.capabilities.tools is not None
    assert (hello.capabilities.prompts, hello.capabilities.resources) == (None, None)


async def test_a_tool_returns_content_or_an_object_or_both_or_the_whole_result():
    async with connect(make_server()) as session:
        text = await session.call_tool("text", {"n": 1})
        as_object = await session.call_tool("object", {"n": 1})
        both = await session.call_tool("both", {"n": 1})
        whole = await session.call_tool("whole", {"n": 1})

    assert (text.content[0].text, text.structuredContent, text.isError) == ("1", None, False)
    assert (as_object.content[0].text, as_object.structuredContent) == ('{\n  "n": 1\n}', {"n": 1})
    assert (both.content[0].text, both.structuredContent) == ("b", {"n": 1})
    assert (whole.content, whole.isError, whole.meta) == ([], True, {"k": 1})


async def test_failures_and_wrong_arguments_are_results():
    async with connect(make_server()) as session:
        failed = await session.call_tool("fails", {"n": 1})
        wrong = await session.call_tool("text", {"n": "one"})

    assert (failed.isError, failed.content[0].text) == (True, "no such thing")
    assert wrong.isError
    assert wrong.content[0].text.startswith("Input validation error: ")


async def test_progress_and_log_messages_reach_the_client_before_the_answer():
    messages = []

    async def log(params):
        messages.append((params.level, params.logger, params.data))

    async def progress(*values):
        messages.append(values)

    async with connect(make_server(), logging_callback=log) as session:
        await session.call_tool("progress", {"n": 1}, progress_callback=progress)

    assert messages == [(1, 2, "half"), ("info", "low", {"a": 1})]


async def test_resources_prompts_and_completions():
    server = Server("more")
    subscribed = []

    @server.list_resources()
    async def list_resources():
        return [types.Resource(uri=AnyUrl("a://one"), name="one", mimeType="text/plain")]

    @server.list_resource_templates()
    async def list_templates():
        return [types.ResourceTemplate(uriTemplate="a://{name}", name="any")]

    @server.read_resource()
    async def read(uri: AnyUrl):
        if uri.host == "two":
            return [ReadResourceContents(b"\x00", "image/png"), ReadResourceContents("t", "text/x-t")]
        return f"{uri.scheme} {uri.host}"

    @server.subscribe_resource()
    async def subscribe(uri):
        subscribed.append(str(uri))

    @server.list_prompts()
    async def list_prompts(request: types.ListPromptsRequest) -> types.ListPromptsResult:
        cursor = request.params and request.params.cursor
        return types.ListPromptsResult(
            prompts=[types.Prompt(name=cursor or "first")], nextCursor=None if cursor else "2"
        )

    @server.get_prompt()
    async def get_prompt(name, arguments):
        if name != "first":
            raise McpError(types.ErrorData(code=-32602, message="which prompt?", data={"name": name}))
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=str(arguments)))
        return types.GetPromptResult(description="d", messages=[message])

    @server.completion()
    async def complete(ref, argument, context):
        return types.Completion(values=[f"{ref.name} {argument.value} {context.arguments}"], total=1, hasMore=False)

    async with connect(server) as session:
        assert str((await session.list_resources()).resources[0].uri) == "a://one"
        assert (await session.list_resource_templates()).resourceTemplates[0].uriTemplate == "a://{name}"
        assert (await session.read_resource(AnyUrl("a://one"))).contents[0].text == "a one"
        two = (await session.read_resource(AnyUrl("a://two"))).contents
        assert (two[0].blob, two[0].mimeType, two[1].text, two[1].mimeType) == ("AA==", "image/png", "t", "text/x-t")
        await session.subscribe_resource(AnyUrl("a://one"))
        assert subscribed == ["a://one"]
        page = await session.list_prompts()
        assert (page.prompts[0].name, page.nextCursor) == ("first", "2")
        assert (await session.list_prompts(cursor="2")).prompts[0].name == "2"
        assert (await session.get_prompt("first", {"a": "b"})).messages[0].content.text == "{'a': 'b'}"
        with pytest.raises(McpError, match=r"which prompt\?") as raised:
            await session.get_prompt("other")
        assert (raised.value.error.code, raised.value.error.data) == (-32602, {"name": "other"})
        ref = types.PromptReference(type="ref/prompt", name="p")
        found = await session.complete(ref, {"name": "x", "value": "v"}, {"y": "1"})
        assert found.completion.values == ["p v {'y': '1'}"]


async def test_a_method_without_a_handler_is_unknown():
    async with connect(Server("empty")) as session:
        with pytest.raises(McpError, match="Method not found"):
            await session.list_tools()


async def test_handlers_may_ask_the_client():
    server = Server("asking")

    @server.list_tools()
    async def list_tools():
        return [types.Tool(name="ask", inputSchema={"type": "object"})]

    @server.call_tool()
    async def call(name, arguments):
        session = server.request_context.session
        message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="Hi"))
        sampled = await session.create_message([message], max_tokens=5)
        filled = await session.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        roots = await session.list_roots()
        client = session.client_params.clientInfo.name
        text = f"{sampled.content.text} {sampled.model} {filled.content} {roots.roots[0].uri} {client}"
        return [types.TextContent(type="text", text=text)]

    async def sample(context, params):
        assert params.maxTokens == 5
        content = types.TextContent(type="text", text=params.messages[0].content.text + "!")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async def elicit(context, params):
        assert params.requestedSchema["properties"]["name"] == {"type": "string"}
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def roots(context):
        return types.ListRootsResult(roots=[types.Root(uri="file:///a")])

    callbacks = {"sampling_callback": sample, "elicitation_callback": elicit, "list_roots_callback": roots}
    info = types.Implementation(name="suite", version="1")
    async with connect(server, client_info=info, **callbacks) as session:
        answer = await session.call_tool("ask", {})

    assert answer.content[0].text == "Hi! m {'name': 'Ada'} file:///a suite"


async def test_a_refused_sampling_is_an_error_of_the_tool():
    server = Server("asking")

    @server.call_tool(validate_input=False)
    async def call(name, arguments):
        message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="Hi"))
        with pytest.raises(McpError) as raised:
            await server.request_context.session.create_message([message], max_tokens=5)
        assert raised.value.error.code == -1
        raise raised.value

    async def refuse(context, params):
        return types.ErrorData(code=-1, message="the user said no")

    async with connect(server, sampling_callback=refuse) as session:
        answer = await session.call_tool("ask", {})

    assert (answer.isError, answer.content[0].text) == (True, "the user said no")


async def test_the_lifespan_and_the_request_are_in_the_context():
    from contextlib import asynccontextmanager

    events = []

    @asynccontextmanager
    async def lifespan(server):
        events.append(server.name)
        yield {"db": 7}
        events.append("closed")

    server = Server("living", lifespan=lifespan)

    @server.list_tools()
    async def list_tools():
        return []

    @server.call_tool(validate_input=False)
    async def call(name, arguments):
        context = server.request_context
        return [types.TextContent(type="text", text=f"{context.lifespan_context['db']} {context.request_id}")]

    async with connect(server) as session:
        assert (await session.call_tool("x", {})).content[0].text.startswith("7 ")
    assert events == ["living", "closed"]


async def test_a_handler_set_by_type_replaces_the_decorated_one():
    server = make_server()
    before = server.request_handlers[types.ListToolsRequest]

    async def list_nothing(request):
        return types.ServerResult(types.ListToolsResult(tools=[]))

    assert callable(before)
    server.request_handlers[types.ListToolsRequest] = list_nothing
    async with connect(server) as session:
        assert (await session.list_tools()).tools == []
