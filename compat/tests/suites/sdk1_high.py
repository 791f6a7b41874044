"""``FastMCP`` of version 1 of the official SDK."""

from typing import Annotated, Dict  # noqa: UP035 - how version 1 reads it is a claim

import pytest
from mcp.server.fastmcp import Audio, Context, FastMCP, Image
from mcp.server.fastmcp.exceptions import ToolError
from mcp.server.fastmcp.prompts import base
from mcp.server.fastmcp.resources import FunctionResource, TextResource
from mcp.shared.exceptions import McpError
from mcp.shared.memory import create_connected_server_and_client_session as connect
from mcp.types import CallToolResult, ElicitResult, ErrorData, TextContent, ToolAnnotations
from pydantic import AnyUrl, BaseModel, Field


class Person(BaseModel):
    name: str
    age: int = Field(default=1, ge=0)


async def test_schemas_are_those_of_pydantic():
    mcp = FastMCP("schemas")

    @mcp.tool(title="Greet", annotations=ToolAnnotations(readOnlyHint=True), meta={"k": 1})
    def greet(
        person: Person, count: Annotated[int, Field(description="How often.")] = 1, ctx: Context = None
    ) -> Person:
        """Greet somebody."""
        return person

    async with connect(mcp._mcp_server) as session:
        tool = (await session.list_tools()).tools[0]

    assert (tool.name, tool.title, tool.description) == ("greet", "Greet", "Greet somebody.")
    assert (tool.annotations.readOnlyHint, tool.meta) == (True, {"k": 1})
    assert tool.inputSchema["properties"]["count"] == {
        "default": 1,
        "description": "How often.",
        "title": "Count",
        "type": "integer",
    }
    assert (list(tool.inputSchema["properties"]), tool.inputSchema["required"]) == (["person", "count"], ["person"])
    assert tool.inputSchema["$defs"]["Person"]["properties"]["age"]["minimum"] == 0
    assert (tool.outputSchema["title"], tool.outputSchema["required"]) == ("Person", ["name"])


async def test_values_become_content_and_a_structured_value():
    mcp = FastMCP("values")

    @mcp.tool()
    def number(n: int) -> int:
        return n

    @mcp.tool()
    def people() -> list[Person]:
        return [Person(name="Ada")]

    @mcp.tool()
    def unannotated(n):
        return {"n": n}

    @mcp.tool(structured_output=False)
    def plain() -> dict[str, int]:
        return {"a": 1}

    @mcp.tool()
    def old() -> Dict[str, float]:  # noqa: UP006 - how version 1 reads it is the claim
        return {"a": 1.0}

    @mcp.tool()
    def pictures():
        return [Image(data=b"hi", format="png"), Audio(data=b"hi", format="wav"), "text"]

    @mcp.tool()
    def whole() -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="w")], isError=True, _meta={"k": 1})

    async with connect(mcp) as session:
        call = session.call_tool
        assert (await call("number", {"n": "5"})).structuredContent == {"result": 5}
        found = await call("people")
        assert (found.structuredContent, len(found.content)) == ({"result": [{"name": "Ada", "age": 1}]}, 1)
        assert (await call("unannotated", {"n": [1]})).content[0].text == '{\n  "n": [\n    1\n  ]\n}'
        assert (await call("plain")).structuredContent is None
        assert (await call("old")).structuredContent == {"result": {"a": 1.0}}
        blocks = (await call("pictures")).content
        assert [(each.type, getattr(each, "mimeType", None)) for each in blocks] == [
            ("image", "image/png"),
            ("audio", "audio/wav"),
            ("text", None),
        ]
        assert blocks[0].data == "aGk="
        whole_result = await call("whole")
        assert (whole_result.isError, whole_result.content[0].text, whole_result.meta) == (True, "w", {"k": 1})


async def test_failures_are_texts_that_name_the_tool():
    mcp = FastMCP("failures")

    @mcp.tool()
    def broken(kind: str) -> str:
        raise {"tool": ToolError("t"), "value": ValueError("v"), "mcp": McpError(ErrorData(code=-1, message="m"))}[kind]

    async with connect(mcp) as session:
        for kind, text in (("tool", "t"), ("value", "v"), ("mcp", "m")):
            answer = await session.call_tool("broken", {"kind": kind})
            assert (answer.isError, answer.content[0].text) == (True, f"Error executing tool broken: {text}")
        wrong = await session.call_tool("broken", {"kind": 1})
        assert "validation error for brokenArguments" in wrong.content[0].text


async def test_the_context_logs_reports_asks_and_reads():
    mcp = FastMCP("context")
    heard = []

    @mcp.resource("a://one")
    def one() -> str:
        return "1"

    class Answer(BaseModel):
        name: str

    @mcp.tool()
    async def work(ctx: Context) -> str:
        await ctx.info("started")
        await ctx.report_progress(1, 2, "half")
        answer = await ctx.elicit("Who?", Answer)
        read = list(await ctx.read_resource("a://one"))
        assert ctx.fastmcp is mcp
        assert ctx.request_context.session is not None
        return f"{answer.action} {answer.data.name} {read[0].content} {ctx.request_id}"

    async def log(params):
        heard.append(params.data)

    async def progress(*values):
        heard.append(values)

    async def elicit(context, params):
        heard.append(params.message)
        return ElicitResult(action="accept", content={"name": "Ada"})

    async with connect(mcp, logging_callback=log, elicitation_callback=elicit) as session:
        answer = await session.call_tool("work", progress_callback=progress)

    assert answer.content[0].text.startswith("accept Ada 1 ")
    assert heard == ["started", (1, 2, "half"), "Who?"]


async def test_resources_templates_prompts_and_completions():
    mcp = FastMCP("more")
    mcp.add_resource(TextResource(uri="note://one", name="one", text="a note"))
    mcp.add_resource(FunctionResource(uri="note://two", name="two", fn=lambda: b"\x00", mime_type="image/png"))

    @mcp.resource("data://{city}/{kind}", mime_type="application/json", description="Data.")
    def data(city: str, kind: str) -> dict:
        return {city: kind}

    @mcp.prompt(title="Ask")
    def ask(city: Annotated[str, Field(description="Where.")], style: str = "short") -> list[base.Message]:
        return [base.UserMessage(f"{style}: {city}"), base.AssistantMessage("Fine.")]

    @mcp.completion()
    async def complete(ref, argument, context):
        from mcp.types import Completion

        return Completion(values=[argument.value + "!"])

    async with connect(mcp) as session:
        assert [str(each.uri) for each in (await session.list_resources()).resources] == ["note://one", "note://two"]
        assert (await session.read_resource(AnyUrl("note://one"))).contents[0].text == "a note"
        assert (await session.read_resource(AnyUrl("note://two"))).contents[0].blob == "AA=="
        template = (await session.list_resource_templates()).resourceTemplates[0]
        assert (template.uriTemplate, template.description) == ("data://{city}/{kind}", "Data.")
        read = (await session.read_resource(AnyUrl("data://Oslo/rain"))).contents[0]
        assert (read.text, read.mimeType) == ('{\n  "Oslo": "rain"\n}', "application/json")
        with pytest.raises(McpError, match=r"Unknown resource|not found"):
            await session.read_resource(AnyUrl("note://none"))
        prompt = (await session.list_prompts()).prompts[0]
        assert (prompt.title, [(a.name, a.description, bool(a.required)) for a in prompt.arguments]) == (
            "Ask",
            [("city", "Where.", True), ("style", None, False)],
        )
        rendered = await session.get_prompt("ask", {"city": "Oslo"})
        assert [(m.role, m.content.text) for m in rendered.messages] == [
            ("user", "short: Oslo"),
            ("assistant", "Fine."),
        ]
        with pytest.raises(McpError, match=r"Missing required|missing argument"):
            await session.get_prompt("ask")
        from mcp.types import PromptReference

        found = await session.complete(PromptReference(type="ref/prompt", name="ask"), {"name": "city", "value": "O"})
        assert found.completion.values == ["O!"]


async def test_servers_are_used_from_code():
    mcp = FastMCP("code", instructions="Do.", host="0.0.0.0", port=9000)

    @mcp.tool()
    def add(a: int, b: int = 2) -> int:
        return a + b

    mcp.settings.port = 9001
    content, structured = await mcp.call_tool("add", {"a": 1})
    assert (content[0].text, structured) == ("3", {"result": 3})
    assert (mcp.name, mcp.instructions, mcp.settings.host, mcp.settings.port) == ("code", "Do.", "0.0.0.0", 9001)
    assert [tool.name for tool in await mcp.list_tools()] == ["add"]
    assert add(a=1) == 3
    mcp.remove_tool("add")
    assert await mcp.list_tools() == []
    with pytest.raises(TypeError, match=r"parentheses|decorator"):
        mcp.tool(add)


async def test_a_subclass_that_filters_is_obeyed():
    class Filtering(FastMCP):
        async def list_tools(self):
            return [tool for tool in await super().list_tools() if tool.name != "hidden"]

        async def call_tool(self, name, arguments):
            if name == "hidden":
                raise ToolError("it is hidden")
            return await super().call_tool(name, arguments)

    mcp = Filtering("filtering")
    mcp.add_tool(lambda: "1", name="hidden")
    mcp.add_tool(lambda: "2", name="offered")
    async with connect(mcp) as session:
        assert [tool.name for tool in (await session.list_tools()).tools] == ["offered"]
        assert (await session.call_tool("offered")).content[0].text == "2"
        hidden = await session.call_tool("hidden")
    assert (hidden.isError, hidden.content[0].text) == (True, "it is hidden")
