"""Tools: how they are listed, what they answer, and how they fail."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.interaction.rows import (
    ALL,
    ANYWHERE,
    EVERYWHERE,
    SINCE_2025_03,
    SINCE_2025_06,
    SINCE_2025_11,
    STATELESS,
    behaviour,
)
from tests.interaction.servers.catalog import PIXEL
from tests.interaction.wire import Peer, Wire, make
from trunkline import Server

PLAIN = {"name", "description", "inputSchema"}
#: The members of the listed tool ``add``, which has everything that can be said of a tool.
MEMBERS = {
    "2024-11-05": PLAIN,
    "2025-03-26": PLAIN | {"annotations"},
    "2025-06-18": PLAIN | {"annotations", "title", "outputSchema"},
    "2025-11-25": PLAIN | {"annotations", "title", "outputSchema", "icons"},
    "2026-07-28": PLAIN | {"annotations", "title", "outputSchema", "icons"},
}
SECRET = "hunter2"


async def listed(peer: Peer, name: str) -> dict[str, Any]:
    """Find a tool in the list."""
    tools = {tool["name"]: tool for tool in (await peer.result("tools/list"))["tools"]}
    found: dict[str, Any] = tools[name]
    return found


# --- lists -----------------------------------------------------------------------------------------------------------


@behaviour("tools.list", "2025-11-25 server/tools#listing-tools", transports=ANYWHERE)
async def test_a_tool_is_listed_with_its_schema(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        tool = await listed(peer, "add")
        assert tool["description"].startswith("Add two numbers.")
        assert (tool["inputSchema"]["type"], sorted(tool["inputSchema"]["required"])) == ("object", ["a", "b"])
        assert tool["inputSchema"]["properties"]["a"]["description"] == "the first"


@behaviour("tools.list-members", "2025-11-25 server/tools#tool")
async def test_a_tool_is_listed_with_the_members_that_the_revision_has(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert set(await listed(peer, "add")) == MEMBERS[wire.revision]


@behaviour("tools.list-without-parameters", "2025-11-25 server/tools#tool")
async def test_a_tool_without_parameters_has_a_schema_of_an_object(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await listed(peer, "numbers"))["inputSchema"]["type"] == "object"


@behaviour("tools.list-order", "2026-07-28 server/tools#capabilities")
async def test_the_list_has_the_same_order_every_time(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        first, second = await peer.result("tools/list"), await peer.result("tools/list")
        assert [tool["name"] for tool in first["tools"]] == [tool["name"] for tool in second["tools"]]


@behaviour("tools.list-connections", "2026-07-28 server/tools#capabilities")
async def test_the_list_is_the_same_on_every_connection_and_after_every_call(wire: Wire) -> None:
    server = make("catalog")
    async with wire.open(server) as one, wire.open(server) as other:
        first = await one.result("tools/list")
        await other.call("add", {"a": 1, "b": 2})
        assert await other.result("tools/list") == first


@behaviour("tools.annotations", "2025-03-26 server/tools#tool", SINCE_2025_03)
async def test_annotations_are_listed(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await listed(peer, "add"))["annotations"] == {"readOnlyHint": True, "title": "Adds"}


@behaviour("tools.hidden", "2025-11-25 server/tools#security-considerations")
async def test_a_tool_that_a_caller_may_not_see_is_neither_listed_nor_called(wire: Wire) -> None:
    server = Server("picky", version="1", visible=lambda caller, item: item.name != "secret")
    server.add_tool(lambda: "open", name="open")
    server.add_tool(lambda: "secret", name="secret")
    async with wire.open(server) as peer:
        assert [tool["name"] for tool in (await peer.result("tools/list"))["tools"]] == ["open"]
        assert (await peer.error("tools/call", {"name": "secret"}))["code"] == -32602


@behaviour("tools.duplicate", "2025-11-25 server/tools#tool-names", ALL[-1:])
async def test_a_name_cannot_be_registered_twice(wire: Wire) -> None:
    server = Server("twice", version="1")
    server.add_tool(lambda: "one", name="same")
    with pytest.raises(ValueError, match="same"):
        server.add_tool(lambda: "two", name="same")
    async with wire.open(server) as peer:
        assert (await peer.call("same"))["content"][0]["text"] == "one"


# --- calls -----------------------------------------------------------------------------------------------------------


@behaviour("tools.call", "2025-11-25 server/tools#calling-tools", transports=EVERYWHERE)
async def test_a_call_is_answered_with_content(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        result = await peer.call("add", {"a": 2, "b": 40})
        assert (result["content"], result.get("isError", False)) == ([{"type": "text", "text": "42"}], False)


@behaviour("tools.call-without-arguments", "2025-11-25 schema#calltoolrequestparams")
async def test_a_call_needs_no_arguments_member(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert json.loads((await peer.result("tools/call", {"name": "numbers"}))["content"][0]["text"]) == [1, 2, 3]


@behaviour("tools.name-slash", "2025-11-25 server/tools#tool-names")
async def test_a_name_with_dots_and_a_slash_can_be_called(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.call("com.example.weather/current"))["content"][0]["text"] == "sunny"


@behaviour("tools.name-case", "2025-11-25 server/tools#tool-names")
async def test_names_are_told_apart_by_case(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.error("tools/call", {"name": "ADD"}))["code"] == -32602


@behaviour("tools.name-unknown", "2025-11-25 server/tools#error-handling", transports=ANYWHERE)
async def test_an_unknown_tool_is_a_protocol_error_that_names_it(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        error = await peer.error("tools/call", {"name": "nope", "arguments": {}})
        assert (error["code"], "nope" in error["message"]) == (-32602, True)


@behaviour("tools.sync", "2025-11-25 server/tools#calling-tools", transports=EVERYWHERE)
async def test_a_tool_that_blocks_its_thread_blocks_no_other_call(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        blocked = await peer.send("tools/call", {"name": "block", "arguments": {"name": "a"}})
        await peer.call("release", {"name": "a"})
        assert (await peer.answer(blocked))["result"]["content"][0]["text"] == "a"


# --- failures --------------------------------------------------------------------------------------------------------


@behaviour("tools.error-wanted", "2025-11-25 server/tools#error-handling")
async def test_a_tools_own_error_is_a_result_that_the_model_can_read(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        result = await peer.call("refuse")
        assert (result["isError"], result["content"]) == (True, [{"type": "text", "text": "the disk is full"}])


@behaviour("tools.error-unexpected", "2025-11-25 server/tools#security-considerations", transports=ANYWHERE)
async def test_an_unexpected_failure_is_a_result_that_has_no_internal_details(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        result = await peer.call("crash")
        assert (result["isError"], SECRET in json.dumps(result)) == (True, False)


@behaviour("tools.arguments-wrong", "2025-11-25 server/tools#error-handling")
@pytest.mark.parametrize("arguments", [{"a": 1}, {"a": 1, "b": [2]}, {"a": 1, "b": 2, "c": 3}, {"a": None, "b": 2}])
async def test_wrong_arguments_are_a_result_that_names_them(wire: Wire, arguments: dict[str, Any]) -> None:
    async with wire.open("catalog") as peer:
        result = await peer.call("add", arguments)
        assert (result["isError"], len(result["content"][0]["text"]) > 10) == (True, True)


@behaviour("tools.arguments-unechoed", "2025-11-25 server/tools#security-considerations")
async def test_the_error_for_a_wrong_argument_repeats_its_value_but_no_secret(wire: Wire) -> None:
    token = f"ghp_{'a1B2' * 9}"
    async with wire.open("catalog") as peer:
        texts = [(await peer.call("add", {"a": 1, "b": value}))["content"][0]["text"] for value in ("many", token)]
        assert texts == ['b: expected an integer, got "many"', "b: expected an integer, got a string"]


@behaviour("tools.arguments-lenient", "2025-11-25 server/tools#error-handling")
async def test_numbers_that_a_model_sent_as_text_are_taken(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.call("add", {"a": "2", "b": 40}))["content"][0]["text"] == "42"


@behaviour("tools.arguments-text", "2025-11-25 server/tools#calling-tools")
async def test_a_text_that_looks_like_json_stays_a_text(wire: Wire) -> None:
    texts = ["5", "null", '{"a": 1}', "[1]", "true", ""]
    async with wire.open("catalog") as peer:
        assert [(await peer.call("echo", {"text": text}))["content"][0]["text"] for text in texts] == texts


@behaviour("tools.arguments-schema", "2025-11-25 server/tools#security-considerations")
async def test_arguments_are_checked_against_a_given_schema(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.call("by_hand", {"n": "many"}))["isError"]
        assert (await peer.call("by_hand", {"n": 7}))["content"][0]["text"] == "7"


@behaviour("tools.schema-dialect", "2025-11-25 basic/index#schema-dialect", SINCE_2025_11)
async def test_a_schema_may_name_another_dialect(wire: Wire) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}},
    }
    server = Server("draft", version="1")
    server.add_tool(lambda pair: str(pair), name="pair", input_schema=schema)
    async with wire.open(server) as peer:
        assert (await peer.call("pair", {"pair": ["a", "b"]}))["isError"]
        assert not (await peer.call("pair", {"pair": ["a", 1]})).get("isError")


@behaviour("tools.schema-dialect-unknown", "2025-11-25 basic/index#implementation-requirements", SINCE_2025_11)
async def test_a_schema_of_an_unknown_dialect_is_rejected_with_a_reason(wire: Wire) -> None:
    schema = {"$schema": "https://example.com/no-such-dialect", "type": "object"}
    server = Server("strange", version="1")
    with pytest.raises(Exception, match="no-such-dialect"):
        server.add_tool(lambda: "x", name="x", input_schema=schema)
    async with wire.open(server) as peer:
        assert "error" in await peer.request("tools/call", {"name": "x"})


@behaviour("tools.schema-reference", "2026-07-28 basic/index#ref-resolution", STATELESS)
async def test_a_reference_to_the_network_is_not_followed(wire: Wire) -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1:9/schema.json"}}}
    server = Server("remote", version="1")
    with pytest.raises(Exception, match=r"127\.0\.0\.1"):
        server.add_tool(lambda x: "x", name="x", input_schema=schema)
    async with wire.open(server) as peer:
        assert "error" in await peer.request("tools/call", {"name": "x"})


# --- structured results ----------------------------------------------------------------------------------------------


@behaviour("tools.structured", "2025-06-18 server/tools#structured-content", SINCE_2025_06)
async def test_a_typed_result_is_structured_content_and_text(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        result = await peer.call("forecast", {"city": "Oslo"})
        assert result["structuredContent"] == {"city": "Oslo", "degrees": 21.5}
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        schema = (await listed(peer, "forecast"))["outputSchema"]
        assert (schema["type"], set(schema["properties"])) == ("object", {"city", "degrees"})


@behaviour("tools.structured-absent", "2025-06-18 changelog#major-changes", ALL[:2])
async def test_a_typed_result_is_text_where_there_is_no_structured_content(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        result = await peer.call("forecast", {"city": "Oslo"})
        assert ("structuredContent" in result, json.loads(result["content"][0]["text"])["degrees"]) == (False, 21.5)


@behaviour("tools.structured-any", "2026-07-28 server/tools#structured-content", STATELESS)
async def test_structured_content_may_be_any_value(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.call("bare_numbers"))["structuredContent"] == [1, 2, 3]
        assert (await listed(peer, "bare_numbers"))["outputSchema"]["type"] == "array"


@behaviour("tools.structured-object", "2025-06-18 server/tools#structured-content", SINCE_2025_06)
async def test_a_value_that_is_not_an_object_is_wrapped_in_one(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.call("numbers"))["structuredContent"] == {"result": [1, 2, 3]}
        schema = (await listed(peer, "numbers"))["outputSchema"]
        assert (schema["type"], schema["properties"]["result"]["type"]) == ("object", "array")


@behaviour("tools.structured-schema", "2025-06-18 server/tools#output-schema", SINCE_2025_06)
async def test_a_result_with_a_given_schema_is_structured(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.call("honest"))["structuredContent"] == {"n": 1}


@behaviour("tools.structured-promise", "2025-06-18 server/tools#output-schema", SINCE_2025_06)
async def test_a_result_that_breaks_its_own_schema_does_not_leave_as_structured_content(wire: Wire) -> None:
    server = Server("liar", version="1")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    server.add_tool(lambda: {"n": "many"}, name="lie", output_schema=schema)
    async with wire.open(server) as peer:
        result = await peer.call("lie")
        assert (result.get("isError"), "structuredContent" in result) == (True, False)


# --- content ---------------------------------------------------------------------------------------------------------


@behaviour("tools.content-image", "2025-11-25 server/tools#image-content")
async def test_a_picture_is_base64_with_its_type(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        block = (await peer.call("picture"))["content"][0]
        assert (block["type"], block["mimeType"]) == ("image", "image/png")
        assert base64.b64decode(block["data"], validate=True) == PIXEL


@behaviour("tools.content-audio", "2025-03-26 server/tools#audio-content", SINCE_2025_03)
async def test_a_sound_is_base64_with_its_type(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        block = (await peer.call("sound"))["content"][0]
        assert (block["type"], block["mimeType"]) == ("audio", "audio/wav")
        assert base64.b64decode(block["data"], validate=True) == b"RIFF"


@behaviour("tools.content-resource", "2025-11-25 server/tools#embedded-resources")
async def test_a_resource_is_embedded_with_its_uri(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        block = (await peer.call("embedded"))["content"][0]
        assert (block["type"], block["resource"]["uri"], block["resource"]["text"]) == ("resource", "note://one", "one")


@behaviour("tools.content-link", "2025-06-18 server/tools#resource-links", SINCE_2025_06)
async def test_a_link_names_a_resource(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        block = (await peer.call("link"))["content"][0]
        assert (block["type"], block["uri"], block["name"]) == ("resource_link", "note://one", "one")


@behaviour("tools.content-unknown", "2025-06-18 changelog#major-changes", ALL[:2])
@pytest.mark.parametrize("tool", ["sound", "link"])
async def test_content_that_the_revision_lacks_becomes_text(wire: Wire, tool: str) -> None:
    types = {("2025-03-26", "sound"): "audio"}
    async with wire.open("catalog") as peer:
        assert (await peer.call(tool))["content"][0]["type"] == types.get((wire.revision, tool), "text")


@behaviour("tools.meta", "2025-06-18 basic/index#meta", SINCE_2025_06)
async def test_the_meta_of_a_tool_is_listed(wire: Wire) -> None:
    server = Server("meta", version="1")
    server.add_tool(lambda: "x", name="x", meta={"com.example/kind": "test"})
    async with wire.open(server) as peer:
        assert (await listed(peer, "x"))["_meta"] == {"com.example/kind": "test"}
