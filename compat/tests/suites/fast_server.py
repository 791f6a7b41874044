"""``FastMCP`` of versions 2 to 4, with its own client in memory."""

from datetime import date
from typing import Annotated, Literal

import pytest
from fastmcp import Client, Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.prompts import Message
from fastmcp.resources import TextResource
from fastmcp.server.dependencies import get_context
from fastmcp.tools import Tool
from fastmcp.utilities.types import Audio, File, Image
from mcp.types import TextContent, ToolAnnotations
from pydantic import BaseModel, Field

try:
    from fastmcp.tools.tool import ToolResult
except ImportError:  # version 4
    from fastmcp.tools import ToolResult


class Point(BaseModel):
    x: int
    y: int = 0


def connect(server, fast, **options):
    """Connect with a handshake, which version 4 does only if it is asked to."""
    return Client(server, **options, **({"mode": "legacy"} if fast == 4 else {}))


async def test_a_tool_is_listed_with_its_schema_tags_and_annotations(fast):
    mcp = FastMCP("tools", instructions="Do.")

    @mcp.tool(
        name="move", title="Move it", tags={"b", "a"}, annotations=ToolAnnotations(readOnlyHint=True), meta={"k": 1}
    )
    def move_point(
        point: Point, by: Annotated[int, Field(ge=0, description="How far.")] = 1, way: Literal["up", "down"] = "up"
    ) -> Point:
        """Move a point."""
        return Point(x=point.x + by)

    async with connect(mcp, fast) as client:
        tool = (await client.list_tools())[0]
        assert client.initialize_result.instructions == "Do."

    assert (tool.name, tool.title, tool.description) == ("move", "Move it", "Move a point.")
    hints = tool.annotations.model_dump(by_alias=True, exclude_none=True)
    assert hints["readOnlyHint"] is True
    member = "_fastmcp" if fast == 2 else "fastmcp"
    assert (tool.meta["k"], tool.meta[member]["tags"]) == (1, ["a", "b"])
    schema = (tool.inputSchema if fast < 4 else tool.input_schema)["properties"]
    assert schema["by"] == {"default": 1, "description": "How far.", "minimum": 0, "type": "integer"}
    assert schema["way"] == {"default": "up", "enum": ["up", "down"], "type": "string"}
    output = tool.outputSchema if fast < 4 else tool.output_schema
    assert output["properties"]["x"] == {"type": "integer"}


async def test_values_become_content_and_a_structured_value(tmp_path, fast):
    mcp = FastMCP("values")
    (tmp_path / "a.txt").write_text("file")

    @mcp.tool
    def number(n: int) -> int:
        return n

    @mcp.tool
    def point(p: Point) -> Point:
        return p

    @mcp.tool
    def unannotated(n):
        return {"n": n}

    @mcp.tool
    def day() -> date:
        return date(2024, 1, 2)

    @mcp.tool
    def nothing() -> None:
        return None

    @mcp.tool
    def pictures():
        return [Image(data=b"hi", format="png"), Audio(data=b"hi", format="wav"), File(path=tmp_path / "a.txt"), "x"]

    @mcp.tool(output_schema=None)
    def plain() -> dict[str, int]:
        return {"a": 1}

    @mcp.tool
    def whole() -> ToolResult:
        return ToolResult(content=[TextContent(type="text", text="w")], structured_content={"a": 1}, meta={"k": 1})

    async with Client(mcp) as client:
        call = client.call_tool
        assert ((await call("number", {"n": "5"})).data, (await call("number", {"n": 5})).structured_content) == (
            5,
            {"result": 5},
        )
        assert (await call("point", {"p": {"x": 1}})).structured_content == {"x": 1, "y": 0}
        assert (await call("unannotated", {"n": 1})).structured_content == {"n": 1}
        assert (await call("nothing")).content == []
        assert (await call("day")).content[0].text == ("2024-01-02" if fast == 4 else '"2024-01-02"')
        blocks = (await call("pictures")).content
        assert [each.type for each in blocks] == ["image", "audio", "resource", "text"]
        assert (await call("plain")).content[0].text == '{"a":1}'
        result = await call("whole")
        assert (result.content[0].text, result.structured_content, result.meta["k"]) == ("w", {"a": 1}, 1)


async def test_failures_are_raised_by_the_client():
    mcp = FastMCP("failures")

    @mcp.tool
    def broken(kind: str) -> str:
        raise {"tool": ToolError("meant"), "value": ValueError("v")}[kind]

    async with Client(mcp) as client:
        with pytest.raises(ToolError, match=r"^meant$"):
            await client.call_tool("broken", {"kind": "tool"})
        with pytest.raises(ToolError, match="Error calling tool 'broken': v"):
            await client.call_tool("broken", {"kind": "value"})
        answer = await client.call_tool("broken", {"kind": "tool"}, raise_on_error=False)
        assert (answer.is_error, answer.content[0].text) == (True, "meant")
        raw = await client.call_tool_mcp("broken", {"kind": "tool"})
        assert raw.content[0].text == "meant"
        with pytest.raises(ToolError, match="validation error"):
            await client.call_tool("broken", {"kind": "tool", "other": 1})


async def test_masked_failures_hide_what_was_not_meant():
    mcp = FastMCP("masked", mask_error_details=True)

    @mcp.tool
    def broken() -> str:
        raise ValueError("secret")

    @mcp.resource("broken://one")
    def resource() -> str:
        raise ValueError("secret")

    @mcp.resource("broken://{name}/x")
    def template(name: str) -> str:
        raise ValueError("secret")

    async with Client(mcp) as client:
        for work in (
            client.call_tool("broken"),
            client.read_resource("broken://one"),
            client.read_resource("broken://a/x"),
        ):
            with pytest.raises(Exception, match=r"^Error ((?!secret).)*$"):
                await work


async def test_tools_are_registered_in_every_way(fast):
    mcp = FastMCP("ways")

    def double(x: int) -> int:
        """Double."""
        return 2 * x

    class Calculator:
        @staticmethod
        def static(x: int) -> int:
            return x

        def method(self, x: int) -> int:
            return x + 1

    mcp.tool(double, name="called")
    mcp.tool("named")(double)
    mcp.add_tool(Tool.from_function(double, name="object", description="Twice"))
    mcp.tool(Calculator().method)
    mcp.tool(Calculator.static)

    class Custom(Tool):
        async def run(self, arguments):
            return ToolResult(content=f"custom {arguments['a']}")

    mcp.add_tool(Custom(name="custom", parameters={"type": "object", "properties": {"a": {"type": "string"}}}))
    async with Client(mcp) as client:
        names = {tool.name for tool in await client.list_tools()}
        assert names == {"called", "named", "object", "method", "static", "custom"}
        assert (await client.call_tool("object", {"x": 2})).data == 4
        assert (await client.call_tool("method", {"x": 2})).data == 3
        assert (await client.call_tool("custom", {"a": "b"})).content[0].text == "custom b"
    assert (await mcp.get_tool("object")).description == "Twice"
    found = await (mcp.get_tools() if fast == 2 else mcp.list_tools())
    assert len(found) == 6


async def test_tools_are_switched_off_by_tag(fast):
    options = {"exclude_tags": {"internal"}} if fast == 2 else {}
    mcp = FastMCP("tags", **options)

    @mcp.tool(tags={"internal"})
    def secret() -> str:
        return "s"

    @mcp.tool
    def shown() -> str:
        return "o"

    if fast > 2:
        mcp.disable(tags={"internal"})
    async with Client(mcp) as client:
        assert [tool.name for tool in await client.list_tools()] == ["shown"]
        with pytest.raises(Exception, match="Unknown tool"):
            await client.call_tool("secret")


async def test_resources_templates_and_prompts(fast):
    mcp = FastMCP("more")
    mcp.add_resource(TextResource(uri="note://one", name="one", text="a note"))

    @mcp.resource("data://json", mime_type="application/json", tags={"t"})
    def data() -> str:
        """Some data."""
        return '{"a": 1}'

    @mcp.resource("bytes://b")
    def some_bytes() -> bytes:
        return b"\x00"

    @mcp.resource("city://{name}/weather")
    async def weather(name: str, ctx: Context) -> str:
        return f"{name} {ctx.request_id is not None}"

    @mcp.resource("files://{path*}")
    def file(path: str) -> str:
        return path

    @mcp.resource("search://items{?limit}")
    def search(limit: int = 10) -> str:
        return str(limit + 1)

    @mcp.prompt(tags={"p"})
    def summary(numbers: list[int], style: str = "short") -> list:
        """Sum up."""
        return [Message(f"{style}: {sum(numbers)}"), Message("Fine.", role="assistant")]

    async with Client(mcp) as client:
        resources = {str(each.uri): each for each in await client.list_resources()}
        assert list(resources) == ["note://one", "data://json", "bytes://b"]
        assert resources["data://json"].description == "Some data."
        read = client.read_resource
        assert (await read("note://one"))[0].text == "a note"
        assert (await read("bytes://b"))[0].blob == "AA=="
        assert (await read("city://Oslo/weather"))[0].text == "Oslo True"
        assert (await read("files://a/b/c.txt"))[0].text == "a/b/c.txt"
        assert (await read("search://items?limit=3"))[0].text == "4"
        assert (await read("search://items"))[0].text == "11"
        templates = {each.name for each in await client.list_resource_templates()}
        assert templates == {"weather", "file", "search"}
        with pytest.raises(Exception, match=r"[Uu]nknown|not found"):
            await read("note://none")
        prompt = (await client.list_prompts())[0]
        assert (prompt.name, [bool(each.required) for each in prompt.arguments]) == ("summary", [True, False])
        assert '{"items":{"type":"integer"},"type":"array"}' in prompt.arguments[0].description
        rendered = await client.get_prompt("summary", {"numbers": [1, 2]})
        assert [(each.role, each.content.text) for each in rendered.messages] == [
            ("user", "short: 3"),
            ("assistant", "Fine."),
        ]


async def test_the_context_is_a_parameter_or_looked_up():
    mcp = FastMCP("context")

    @mcp.resource("a://one")
    def one() -> str:
        return "1"

    @mcp.tool
    async def work(ctx: Context) -> str:
        assert get_context().request_id == ctx.request_id
        await ctx.info("started", logger_name="l", extra={"k": 1})
        await ctx.report_progress(1, 2, "half")
        return f"{ctx.fastmcp.name} {len(await ctx.list_resources())}"

    heard = []

    async def log(message):
        heard.append((message.level, message.logger, message.data["msg"]))

    async def progress(*values):
        heard.append(values)

    async with Client(mcp, log_handler=log, progress_handler=progress) as client:
        assert (await client.call_tool("work")).data == "context 1"
    assert heard == [("info", "l", "started"), (1, 2, "half")]
    with pytest.raises(RuntimeError):
        get_context()


async def test_state_is_shared_by_middleware_and_tool_and_since_version_3_by_the_session(fast):
    mcp = FastMCP("state")

    async def settled(value):
        return await value if hasattr(value, "__await__") else value

    @mcp.tool
    async def count(ctx: Context) -> int:
        found = await settled(ctx.get_state("n")) or 0
        await settled(ctx.set_state("n", found + 1))
        return await settled(ctx.get_state("n"))

    async with connect(mcp, fast) as client:
        counted = [(await client.call_tool("count")).data for _ in range(2)]
    async with connect(mcp, fast) as other:
        counted.append((await other.call_tool("count")).data)
    assert counted == [1, 1 if fast == 2 else 2, 1]


async def test_tools_ask_the_client(fast):
    mcp = FastMCP("asking")

    @mcp.tool
    async def ask(ctx: Context) -> str:
        chosen = await ctx.elicit("Which?", response_type=["red", "blue"])
        form = await ctx.elicit("Where?", response_type=Point)
        if fast == 4:  # which has no ``sample`` and ``list_roots`` any more
            return f"{chosen.action} {chosen.data} {form.data.x}"
        sampled = await ctx.sample("Hi", system_prompt="Be kind.", max_tokens=7)
        roots = await ctx.list_roots()
        return f"{chosen.action} {chosen.data} {form.data.x} {sampled.text} {roots[0].uri}"

    async def elicit(message, response_type, params, context):
        return {"value": "red"} if message == "Which?" else {"x": 5}

    async def sample(messages, params, context):
        return f"{messages[0].content.text} {params.systemPrompt}"

    options = {"elicitation_handler": elicit, "sampling_handler": sample, "roots": ["file:///a"]}
    async with connect(mcp, fast, **options) as client:
        answer = (await client.call_tool("ask")).data
    assert answer == "accept red 5" + ("" if fast == 4 else " Hi Be kind. file:///a")


async def test_a_declined_question_is_an_answer(fast):
    from fastmcp.client.elicitation import ElicitResult

    mcp = FastMCP("asking")

    @mcp.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", response_type=bool)).action

    async def decline(message, response_type, params, context):
        return ElicitResult(action="decline")

    async with connect(mcp, fast, elicitation_handler=decline) as client:
        assert (await client.call_tool("ask")).data == "decline"


async def test_a_lifespan_is_entered_once_and_left(fast):
    from contextlib import asynccontextmanager

    events = []

    @asynccontextmanager
    async def lifespan(server):
        events.append(f"opened {server.name}")
        yield {"db": 7}
        events.append("closed")

    mcp = FastMCP("living", lifespan=lifespan)

    @mcp.tool
    def db(ctx: Context) -> int:
        return ctx.request_context.lifespan_context["db"]

    async with Client(mcp) as client:
        assert [(await client.call_tool("db")).data for _ in range(2)] == [7, 7]
    # Version 2 itself leaves it open in memory.
    assert events[:1] == ["opened living"]
    assert fast == 2 or events[1:] == ["closed"]


async def test_names_are_taken_once_if_the_server_says_so(fast):
    option = "on_duplicate_tools" if fast == 2 else "on_duplicate"
    mcp = FastMCP("once", **{option: "error"})
    mcp.tool(lambda: 1, name="a")
    with pytest.raises(ValueError, match="already exists"):
        mcp.tool(lambda: 2, name="a")
