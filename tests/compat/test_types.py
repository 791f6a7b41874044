"""The official SDK's protocol types, as models made of our structs."""

import pytest

import trunkline.types as t

pytest.importorskip("pydantic")
from trunkline.compat import types


def test_members_have_both_spellings() -> None:
    tool = types.Tool(name="a", inputSchema={"type": "object"})

    assert tool.inputSchema == tool.input_schema == {"type": "object"}
    assert types.Tool(name="a", input_schema={"type": "object"}) == tool
    assert tool.model_dump(by_alias=True, exclude_none=True) == {"name": "a", "inputSchema": {"type": "object"}}


def test_content_has_its_type() -> None:
    assert types.TextContent(type="text", text="x").type == types.TextContent(text="x").type == "text"


def test_a_result_becomes_ours_and_back() -> None:
    model = types.CallToolResult(content=[types.TextContent(type="text", text="x")], isError=True)
    ours = types.to_struct(model, t.CallToolResult)

    assert ours == t.CallToolResult(content=[t.TextContent(text="x")], is_error=True)
    assert types.to_model(ours) == model


def test_requests_know_their_method() -> None:
    request = types.CallToolRequest(params=types.CallToolRequestParams(name="x", arguments={"a": 1}))

    assert (request.method, request.params.arguments) == ("tools/call", {"a": 1})


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        _ = types.Nothing
