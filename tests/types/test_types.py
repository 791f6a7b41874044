"""How the types read and write JSON."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any, get_args

import msgspec
import pytest
from msgspec import UNSET, Raw

import trunkline.types as t

MODULES = [module.name for module in iter_modules(t.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_the_package_has_every_name_of_each_module(name: str) -> None:
    module = import_module(f"trunkline.types.{name}")
    assert set(module.__all__) <= set(t.__all__)
    assert all(getattr(t, each) is getattr(module, each) for each in module.__all__)


def test_no_public_name_is_missing() -> None:
    assert all(hasattr(t, name) for name in t.__all__)


ROUND_TRIPS: list[tuple[Any, bytes]] = [
    (t.CallToolResult, b'{"content":[]}'),
    (t.CallToolResult, b'{"content":[{"type":"text","text":""}],"structuredContent":null,"isError":false}'),
    (t.CallToolResult, b'{"_meta":{"a":1},"resultType":"complete","content":[],"structuredContent":[1]}'),
    (t.ReadResourceResult, b'{"ttlMs":0,"cacheScope":"private","contents":[{"uri":"a:b","text":""}]}'),
    (t.CallToolRequestParams, b'{"name":"x","arguments":{"a": [1,  2]},"inputResponses":{"k":{"a": 1}}}'),
    (t.ProgressNotificationParams, b'{"progressToken":"1","progress":1,"total":2.5}'),
    (t.CompleteRequestParams, b'{"ref":{"type":"ref/resource","uri":"a:{b}"},"argument":{"name":"b","value":""}}'),
    (t.SamplingMessage, b'{"role":"user","content":{"type":"text","text":"hi"}}'),
    (t.SamplingMessage, b'{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"n","input":{}}]}'),
    (t.SamplingMessage, b'{"role":"user","content":[{"type":"tool_result","toolUseId":"1","content":[]}]}'),
    (t.Task, b'{"taskId":"1","status":"working","createdAt":"a","lastUpdatedAt":"b","ttl":null}'),
    (t.ClientCapabilities, b'{"roots":{},"sampling":{"tools":{}},"elicitation":{}}'),
    (t.InputRequiredResult, b'{"resultType":"input_required","inputRequests":{"q":{"method":"m","params":{"a": 1}}}}'),
    (t.ErrorObject, b'{"code":-1,"message":"m","data":null}'),
    (t.ErrorObject, b'{"code":-1,"message":"m"}'),
    (t.RequestParams, b'{"_meta":{"io.modelcontextprotocol/protocolVersion":"v"}}'),
    (t.ElicitResult, b'{"action":"accept","content":{"a":1.5}}'),
]


@pytest.mark.parametrize(("kind", "raw"), ROUND_TRIPS)
def test_what_was_read_is_written_as_it_was(kind: Any, raw: bytes) -> None:
    assert msgspec.json.encode(msgspec.json.decode(raw, type=kind)) == raw


def test_an_implementation_without_version_reads_as_the_empty_one_and_is_written_with_it() -> None:
    read = msgspec.json.decode(b'{"name":"seed"}', type=t.Implementation)
    assert read.version == ""
    assert msgspec.json.encode(read) == b'{"name":"seed","version":""}'


@pytest.mark.parametrize(
    ("kind", "raw", "written"),
    [
        (t.CallToolResult, b'{"structuredContent":1}', b'{"content":[],"structuredContent":1}'),
        (t.ToolResultContent, b'{"toolUseId":"1"}', b'{"type":"tool_result","toolUseId":"1","content":[]}'),
    ],
)
def test_missing_content_reads_as_none_and_is_written(kind: Any, raw: bytes, written: bytes) -> None:
    assert msgspec.json.encode(msgspec.json.decode(raw, type=kind)) == written


def test_absent_structured_content_is_told_from_null() -> None:
    assert t.CallToolResult().structured_content is UNSET
    assert msgspec.json.decode(b'{"structuredContent":null}', type=t.CallToolResult).structured_content is None


def test_an_unknown_member_is_left_aside() -> None:
    assert msgspec.json.decode(b'{"name":"x","inputSchema":{},"new":1}', type=t.Tool) == t.Tool(
        name="x", input_schema={}
    )


def test_raw_members_are_absent_or_bytes() -> None:
    assert t.CallToolRequestParams(name="x").arguments is None
    assert msgspec.json.decode(b'{"method":"m","params":{}}', type=t.InputRequest).params == Raw(b"{}")


@pytest.mark.parametrize("raw", [b'{"type":"video"}', b'{"text":"no type"}', b'{"type":"text"}'])
def test_a_content_block_of_no_known_shape_is_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=t.ContentBlock)


def test_a_wire_value_cannot_be_changed() -> None:
    block: Any = t.TextContent(text="a")
    with pytest.raises(AttributeError):
        block.text = "b"


@pytest.mark.parametrize("kind", [*get_args(t.ContentBlock), *get_args(t.SamplingMessageContentBlock)])
def test_a_content_block_has_the_type_that_it_is_sent_with(kind: Any) -> None:
    assert kind.type == kind.__struct_config__.tag
