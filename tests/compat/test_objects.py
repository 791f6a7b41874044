"""Tools, resources and prompts under the names of other frameworks, as their clients see them."""

import sys
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from trunkline import Client
from trunkline.errors import RequestFailed

PROGRAMS = Path(__file__).parent / "programs"
RUN = [sys.executable, "-m", "trunkline", "run", "--compat"]


def connect(name: str, **options: Any) -> Any:
    return Client([*RUN, str(PROGRAMS / name)], **options)


async def test_schemas_and_results_are_those_of_the_official_sdk() -> None:
    async with connect("official_objects.py") as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert tools["find"].input_schema == {
            "type": "object",
            "title": "findArguments",
            "properties": {
                "name": {"title": "Name", "type": "string"},
                "near": {
                    "anyOf": [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}],
                    "default": None,
                    "title": "Near",
                },
            },
            "required": ["name"],
        }
        assert tools["find"].output_schema["title"] == "Person"
        assert tools["people"].output_schema["$defs"]["Person"]["required"] == ["name"]
        # Arguments that are not declared are dropped, and a list that was sent as text is parsed.
        found = await client.call_tool("find", {"name": "Ada", "near": '["Oslo"]', "other": 1})
        assert (found.text, found.structured_content) == ("Ada ['Oslo']", {"name": "Ada"})
        people = await client.call_tool("people")
        assert [each.text for each in people.content] == [
            '{\n  "name": "Ada",\n  "age": null\n}',
            '{\n  "name": "Bob",\n  "age": 3\n}',
        ]
        assert people.structured_content["result"][1] == {"name": "Bob", "age": 3}
        wrong = await client.call_tool("find", {"name": 1}, raise_on_error=False)
        assert wrong.text.startswith("Error executing tool find: 1 validation error for findArguments")
        unknown = await client.call_tool("nothing", raise_on_error=False)
        assert (unknown.is_error, unknown.text) == (True, "Unknown tool: nothing")


async def test_a_handler_may_return_its_questions() -> None:
    async def answer(params: t.ElicitRequestParams) -> dict[str, Any]:
        return {"name": "Ada"}

    async with connect("official_objects.py", elicitation=answer) as client:
        assert (await client.call_tool("greet")).text == "Hello, Ada! first round"


async def test_extensions_add_tools_and_are_declared() -> None:
    async with connect("official_objects.py") as client:
        assert client.server_capabilities["extensions"] == {"com.example/extra": {}}
        assert (await client.call_tool("ping")).text == "pong"


async def test_values_of_templates_are_screened_by_the_policy() -> None:
    async with connect("official_objects.py") as client:
        assert (await client.read_resource("docs://a/b.md"))[0].text == "a/b.md"
        assert (await client.read_resource("note://one"))[0].text == "a note"
        assert (await client.read_resource("range://../b"))[0].text == '{\n  "span": "../b"\n}'
        with pytest.raises(RequestFailed, match=r"^Unknown resource: docs://\.\./secret"):
            await client.read_resource("docs://../secret")


async def test_tools_are_those_of_fastmcp() -> None:
    async with connect("fast_objects.py") as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert tools["move"].input_schema == {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "point": {
                    "type": "object",
                    "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                    "required": ["x"],
                    "description": "Where it is.",
                },
                "by": {"type": "integer", "minimum": 0, "default": 1, "description": "How far."},
            },
            "required": ["point"],
        }
        assert (tools["move"].title, tools["move"].description) == ("Move", "Move a point.")
        assert tools["add"].meta["fastmcp"] == {"tags": ["math"]}
        assert (await client.call_tool("move", {"point": {"x": 1}})).structured_content == {"x": 2, "y": 0}
        assert (await client.call_tool("count", {"to": 3})).text == "[0,1,2]"
        loud = await client.call_tool("add_loud", {"number": 2})
        assert (loud.text, list(tools["add_loud"].input_schema["properties"])) == ("42!", ["number"])
        wrong = await client.call_tool("move", {"point": {"x": 1}, "by": -1}, raise_on_error=False)
        assert "greater than or equal to 0" in wrong.text


async def test_resources_and_prompts_are_those_of_fastmcp() -> None:
    async with connect("fast_objects.py") as client:
        read = (await client.read_resource("files://src/a.py?lines=3"))[0]
        assert (read.text, read.mime_type) == ("src/a.py:3", "text/x-path")
        note = (await client.read_resource("note://one"))[0]
        assert (note.text, note.meta) == ("a note", {"team": "docs"})
        with pytest.raises(RequestFailed, match="not found"):
            await client.read_resource("files://../secret")
        prompt = await client.get_prompt("summary", {"numbers": "[1, 2]"})
        assert [each.content.text for each in prompt.messages] == ["short: 3", "Fine."]
        argument = (await client.list_prompts())[0].arguments[0]
        assert '{"items":{"type":"integer"},"type":"array"}' in argument.description
