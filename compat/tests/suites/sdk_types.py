"""The protocol's types of both versions of the official SDK."""

import mcp.types as types
import pytest
from pydantic import ValidationError


def test_members_are_written_in_camel_case_on_the_wire():
    tool = types.Tool(name="a", inputSchema={"type": "object"})

    assert tool.model_dump(by_alias=True, exclude_none=True) == {"name": "a", "inputSchema": {"type": "object"}}
    assert '"inputSchema"' in tool.model_dump_json(by_alias=True)
    assert types.Tool.model_validate({"name": "a", "inputSchema": {"type": "object"}}) == tool


def test_members_have_the_spelling_of_the_version(sdk):
    result = types.CallToolResult(content=[], isError=True)

    assert (result.isError if sdk == 1 else result.is_error) is True
    assert ("isError" if sdk == 1 else "is_error") in result.model_dump()


def test_content_is_chosen_by_its_type():
    blocks = [
        {"type": "text", "text": "x"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "a://b", "text": "t"}},
        {"type": "resource_link", "uri": "a://b", "name": "n"},
    ]
    result = types.CallToolResult.model_validate({"content": blocks})

    assert [type(block).__name__ for block in result.content] == [
        "TextContent",
        "ImageContent",
        "EmbeddedResource",
        "ResourceLink",
    ]
    assert isinstance(result.content[2].resource, types.TextResourceContents)
    assert types.TextContent(type="text", text="x") == result.content[0]


def test_requests_know_their_method():
    request = types.CallToolRequest(
        method="tools/call", params=types.CallToolRequestParams(name="x", arguments={"a": 1})
    )

    assert (request.method, request.params.arguments) == ("tools/call", {"a": 1})
    assert types.ListToolsRequest().method == "tools/list"


def test_what_is_missing_is_a_validation_error():
    with pytest.raises(ValidationError):
        types.Tool(name="a")
    with pytest.raises(ValidationError):
        types.ErrorData(message="no code")


def test_constants_and_unions_are_there(sdk):
    assert (types.INVALID_PARAMS, types.METHOD_NOT_FOUND, types.PARSE_ERROR) == (-32602, -32601, -32700)
    message = types.JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")
    if sdk == 1:
        assert types.JSONRPCMessage(message).root is message
        assert types.ServerResult(types.EmptyResult()).root == types.EmptyResult()
    else:
        assert isinstance(message, types.JSONRPCMessage)


def test_annotations_and_metadata_are_kept():
    tool = types.Tool(
        name="a",
        inputSchema={"type": "object"},
        annotations=types.ToolAnnotations(title="A", readOnlyHint=True),
        _meta={"k": 1},
    )

    assert tool.meta == {"k": 1}
    assert tool.model_dump(by_alias=True, exclude_none=True)["annotations"] == {"title": "A", "readOnlyHint": True}
    assert tool.model_dump(by_alias=True, exclude_none=True)["_meta"] == {"k": 1}
