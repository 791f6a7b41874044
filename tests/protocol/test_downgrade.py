"""What each revision sees of a neutral result."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from msgspec import UNSET, Raw, Struct

import trunkline.types as t
from trunkline.protocol import downgrade
from trunkline.protocol.downgrade import WRAP_MARK, adapt_params, adapt_result, needs_wrapping, wrap_schema
from trunkline.protocol.fields import hidden_fields
from trunkline.protocol.revisions import REVISIONS, Revision

R2024_11, R2025_03, R2025_06, R2025_11, R2026_07 = REVISIONS
EACH = [pytest.param(revision, id=revision.name) for revision in REVISIONS]
HANDSHAKE = [pytest.param(revision, id=revision.name) for revision in REVISIONS if revision.handshake]
SERVER_INFO = Raw(b'{"name":"s","version":"1"}')
STAMP = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}

ICON = t.Icon(src="https://example.com/i.png")
FULL_TOOL = t.Tool(
    name="n",
    input_schema={"type": "object"},
    title="T",
    description="D",
    output_schema={"type": "object"},
    annotations=t.ToolAnnotations(read_only_hint=True),
    execution=t.ToolExecution(task_support="optional"),
    icons=[ICON],
    meta={"m": 1},
)


def wire(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


# --- Stamps


@pytest.mark.parametrize("revision", HANDSHAKE)
@pytest.mark.parametrize("result", [t.EmptyResult(meta={"a": 1}), {"x": 1}], ids=["result", "dictionary"])
def test_a_handshake_revision_gets_a_plain_result_as_it_is(result: Any, revision: Revision) -> None:
    assert adapt_result(result, revision, server_info=SERVER_INFO) is result


def test_a_stateless_result_has_its_type_and_the_server_info() -> None:
    assert adapt_result(t.CallToolResult(), R2026_07) == t.CallToolResult(result_type="complete")
    shaped = adapt_result(t.CallToolResult(), R2026_07, server_info=SERVER_INFO)
    assert wire(shaped) == {"content": [], "resultType": "complete", "_meta": STAMP}


def test_a_stamp_stands_beside_the_meta_that_is_there() -> None:
    shaped = adapt_result(t.CallToolResult(meta={"a": 1}), R2026_07, server_info=SERVER_INFO)
    assert wire(shaped)["_meta"] == {"a": 1, **STAMP}


def test_a_kind_that_was_set_stays() -> None:
    assert adapt_result(t.InputRequiredResult(request_state="s"), R2026_07).result_type == "input_required"
    assert adapt_result(t.EmptyResult(result_type="task"), R2026_07).result_type == "task"


def test_the_given_result_is_never_changed() -> None:
    meta = {"a": 1}
    result = t.ListToolsResult(tools=[FULL_TOOL], meta=meta)
    before = wire(result)
    adapt_result(result, R2026_07, server_info=SERVER_INFO)
    adapt_result(result, R2024_11, server_info=SERVER_INFO)
    assert wire(result) == before
    assert meta == {"a": 1}


def test_a_cacheable_result_forbids_caching_by_default() -> None:
    shaped = wire(adapt_result(t.ListToolsResult(tools=[]), R2026_07))
    assert shaped == {"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def test_cache_hints_that_were_set_stay() -> None:
    shaped = adapt_result(t.ReadResourceResult(contents=[], ttl_ms=5, cache_scope="public"), R2026_07)
    assert (shaped.ttl_ms, shaped.cache_scope) == (5, "public")


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_a_handshake_revision_sees_neither_kind_nor_cache_hints(revision: Revision) -> None:
    result = t.ReadResourceResult(contents=[], ttl_ms=5, cache_scope="public", result_type="complete")
    assert wire(adapt_result(result, revision)) == {"contents": []}


@pytest.mark.parametrize("revision", EACH)
@pytest.mark.parametrize("result", [Raw(b'{"tools":[]}'), t.ElicitResult(action="decline")], ids=["raw", "client"])
def test_an_encoded_result_and_an_answer_of_the_client_stay_unchanged(result: Any, revision: Revision) -> None:
    assert adapt_result(result, revision, server_info=SERVER_INFO) is result


class OwnResult(Struct):
    x: int


@pytest.mark.parametrize(
    ("result", "meta"),
    [
        pytest.param({"x": 1}, {}, id="a dictionary"),
        pytest.param({"x": 1, "_meta": {"a": 1}}, {"a": 1}, id="a dictionary with meta"),
        pytest.param(OwnResult(1), {}, id="a struct"),
    ],
)
def test_a_result_of_the_users_own_making_is_stamped(result: Any, meta: dict[str, Any]) -> None:
    shaped = adapt_result(result, R2026_07, server_info=SERVER_INFO)
    assert wire(shaped) == {"x": 1, "resultType": "complete", "_meta": {**meta, **STAMP}}


def test_a_dictionary_keeps_the_kind_it_has_and_gets_no_name_unasked() -> None:
    assert adapt_result({"resultType": "task"}, R2026_07) == {"resultType": "task"}


# --- Fields


@pytest.mark.parametrize(
    ("revision", "members"),
    [
        pytest.param(R2024_11, {"name", "description", "inputSchema"}, id=R2024_11.name),
        pytest.param(R2025_03, {"name", "description", "inputSchema", "annotations"}, id=R2025_03.name),
        pytest.param(
            R2025_06,
            {"name", "description", "inputSchema", "annotations", "title", "outputSchema", "_meta"},
            id=R2025_06.name,
        ),
        pytest.param(
            R2025_11,
            {
                *("name", "description", "inputSchema", "annotations", "title", "outputSchema", "_meta"),
                *("icons", "execution"),
            },
            id=R2025_11.name,
        ),
        pytest.param(
            R2026_07,
            {"name", "description", "inputSchema", "annotations", "title", "outputSchema", "_meta", "icons"},
            id=R2026_07.name,
        ),
    ],
)
def test_a_listed_tool_has_the_members_its_revision_knows(revision: Revision, members: set[str]) -> None:
    shaped = wire(adapt_result(t.ListToolsResult(tools=[FULL_TOOL]), revision))
    assert set(shaped["tools"][0]) == members


def test_the_names_of_a_server_fit_the_revision_of_the_handshake() -> None:
    info = t.Implementation(name="s", version="1", title="T", website_url="https://example.com", icons=[ICON])
    result = t.InitializeResult(protocol_version="x", capabilities={"completions": {}}, server_info=info)
    shaped = wire(adapt_result(result, R2024_11))
    assert shaped["serverInfo"] == {"name": "s", "version": "1"}
    assert shaped["capabilities"] == {"completions": {}}


def test_a_field_deep_inside_is_left_out_too() -> None:
    dated = t.Annotations(priority=1, last_modified="2025-01-01T00:00:00Z")
    contents = t.ResourceContents(uri="a:b", text="x", meta={"m": 1})
    message = t.PromptMessage(role="user", content=t.EmbeddedResource(resource=contents, annotations=dated))
    shaped = wire(adapt_result(t.GetPromptResult(messages=[message]), R2025_03))
    assert shaped["messages"][0]["content"] == {
        "type": "resource",
        "resource": {"uri": "a:b", "text": "x"},
        "annotations": {"priority": 1},
    }


@pytest.mark.parametrize("revision", EACH)
def test_structured_content_is_left_out_where_a_revision_has_none(revision: Revision) -> None:
    shaped = wire(adapt_result(t.CallToolResult(structured_content={"a": 1}), revision))
    assert ("structuredContent" in shaped) is revision.structured_content


# --- Params


def test_params_lose_what_a_handshake_revision_lacks() -> None:
    meta = t.RequestMeta(progress_token=1, protocol_version="v", client_capabilities={})
    params = t.CallToolRequestParams(
        name="n", arguments=Raw(b"{}"), meta=meta, request_state="s", task=t.TaskMetadata(ttl=1)
    )
    shaped = wire(adapt_params(params, R2025_06))
    assert shaped == {"name": "n", "arguments": {}, "_meta": {"progressToken": 1}}


def test_params_keep_what_a_stateless_revision_has() -> None:
    params = t.CallToolRequestParams(name="n", request_state="s", meta=t.RequestMeta(protocol_version="v"))
    assert adapt_params(params, R2026_07) is params


def test_a_question_inside_a_result_has_no_meta_and_no_id() -> None:
    params = t.ElicitRequestParams(
        mode="url", message="m", url="https://example.com", elicitation_id="e", meta=t.RequestMeta(progress_token=1)
    )
    shaped = wire(adapt_params(params, R2026_07))
    assert shaped == {"mode": "url", "message": "m", "url": "https://example.com"}


def test_progress_has_no_message_in_revisions_without_it() -> None:
    params = t.ProgressNotificationParams(progress_token=1, progress=1, message="half")
    assert wire(adapt_params(params, R2024_11)) == {"progressToken": 1, "progress": 1}


@pytest.mark.parametrize("revision", EACH)
def test_params_of_the_users_own_making_are_left_alone(revision: Revision) -> None:
    params = {"x": 1}
    assert adapt_params(params, revision) is params


# --- Content blocks

LINK = t.ResourceLink(uri="file:///a.txt", name="a.txt", annotations=t.Annotations(priority=1), icons=[ICON])
SOUND = t.AudioContent(data="AAAA", mime_type="audio/wav")


@pytest.mark.parametrize(
    ("revision", "block", "seen"),
    [
        pytest.param(R2024_11, SOUND, {"type": "text", "text": "[audio omitted: audio/wav]"}, id="audio as text"),
        pytest.param(R2025_03, SOUND, {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, id="audio"),
        pytest.param(
            R2025_03,
            LINK,
            {"type": "text", "text": "[resource link: a.txt file:///a.txt]", "annotations": {"priority": 1}},
            id="link as text",
        ),
        pytest.param(
            R2025_06,
            LINK,
            {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt", "annotations": {"priority": 1}},
            id="link without icons",
        ),
    ],
)
def test_a_block_the_revision_does_not_know_becomes_text(revision: Revision, block: Any, seen: dict[str, Any]) -> None:
    assert wire(adapt_result(t.CallToolResult(content=[block]), revision))["content"] == [seen]


TEXT = t.TextContent(text="hi")
PICTURE = t.ImageContent(data="AAAA", mime_type="image/png")
USE = t.ToolUseContent(id="1", name="add", input={})


def asked(*content: Any) -> t.CreateMessageRequestParams:
    return t.CreateMessageRequestParams(
        messages=[t.SamplingMessage(role="user", content=each) for each in content],
        max_tokens=9,
        tools=[FULL_TOOL],
        tool_choice=t.ToolChoice(mode="auto"),
    )


def texts(shaped: Any) -> list[str]:
    return [message["content"].get("text", message["content"]["type"]) for message in wire(shaped)["messages"]]


def test_several_blocks_become_several_messages_where_one_is_all() -> None:
    assert texts(adapt_params(asked([TEXT, PICTURE], TEXT, []), R2025_06)) == ["hi", "image", "hi"]


def test_several_blocks_stay_together_where_they_may() -> None:
    params = asked([TEXT, PICTURE])
    assert adapt_params(params, R2025_11).messages == params.messages


def test_tools_are_not_offered_to_a_model_before_they_could_be() -> None:
    assert set(wire(adapt_params(asked(TEXT), R2025_06))) == {"messages", "maxTokens"}


@pytest.mark.parametrize(
    ("block", "text"),
    [
        pytest.param(USE, "[tool call omitted: add]", id="call"),
        pytest.param(t.ToolResultContent(tool_use_id="1"), "[tool result omitted]", id="empty result"),
        pytest.param(
            t.ToolResultContent(
                tool_use_id="1",
                content=[
                    TEXT,
                    PICTURE,
                    LINK,
                    t.EmbeddedResource(resource=t.ResourceContents(uri="a:b", text="inside")),
                    t.EmbeddedResource(resource=t.ResourceContents(uri="a:c", blob="AAAA")),
                ],
            ),
            "hi\n[image omitted: image/png]\n[resource link: a.txt file:///a.txt]\ninside\n[resource omitted: a:c]",
            id="result",
        ),
    ],
)
def test_tool_use_becomes_text_before_there_was_any(block: Any, text: str) -> None:
    assert texts(adapt_params(asked(block), R2025_03)) == [text]


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        pytest.param(TEXT, {"type": "text", "text": "hi"}, id="one block"),
        pytest.param([TEXT], {"type": "text", "text": "hi"}, id="a list of one"),
        pytest.param([USE], {"type": "text", "text": "[tool call omitted: add]"}, id="a list of one unknown"),
        pytest.param([TEXT, SOUND], {"type": "text", "text": "hi\n[audio omitted: audio/wav]"}, id="several"),
    ],
)
def test_a_sampled_message_is_one_block_where_one_is_all(content: Any, seen: dict[str, Any]) -> None:
    result = t.CreateMessageResult(role="assistant", content=content, model="m", meta={"a": 1})
    shaped = wire(adapt_result(result, R2024_11))
    assert shaped == {"role": "assistant", "content": seen, "model": "m", "_meta": {"a": 1}}


# --- Structured content


class Attributes(Struct):
    a: int = 1


@dataclass
class Record:
    a: int = 1


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        pytest.param([1], {"result": [1]}, id="list"),
        pytest.param(None, {"result": None}, id="null"),
        pytest.param("x", {"result": "x"}, id="text"),
        pytest.param(Raw(b"3"), {"result": 3}, id="raw number"),
        pytest.param(Raw(b'{"a":1}'), {"a": 1}, id="raw object"),
        pytest.param({"a": 1}, {"a": 1}, id="dictionary"),
        pytest.param(Attributes(), {"a": 1}, id="struct"),
        pytest.param(Record(), {"a": 1}, id="dataclass"),
    ],
)
@pytest.mark.parametrize("revision", [R2025_06, R2025_11])
def test_a_value_that_is_not_an_object_is_wrapped_where_one_is_wanted(
    revision: Revision, value: Any, seen: Any
) -> None:
    shaped = adapt_result(t.CallToolResult(structured_content=value), revision)
    assert wire(shaped)["structuredContent"] == seen


@pytest.mark.parametrize("value", [[1], None, {"a": 1}])
def test_any_value_may_leave_in_a_stateless_revision(value: Any) -> None:
    shaped = adapt_result(t.CallToolResult(structured_content=value), R2026_07, wrap=True)
    assert wire(shaped)["structuredContent"] == value


@pytest.mark.parametrize("revision", [R2025_06, R2025_11])
def test_the_schema_decides_about_wrapping_when_it_is_known(revision: Revision) -> None:
    result = t.CallToolResult(structured_content={"a": 1})
    assert adapt_result(result, revision, wrap=True).structured_content == {"result": {"a": 1}}
    assert adapt_result(result, revision, wrap=False).structured_content == {"a": 1}


@pytest.mark.parametrize("revision", EACH)
def test_a_result_without_structured_content_is_not_wrapped(revision: Revision) -> None:
    assert adapt_result(t.CallToolResult(is_error=True), revision, wrap=True).structured_content is UNSET


def test_a_structured_tool_result_in_sampling_is_an_object_too() -> None:
    block = t.ToolResultContent(tool_use_id="1", structured_content=3)
    bare = t.ToolResultContent(tool_use_id="2")
    shaped = adapt_params(asked([block, bare]), R2025_11)
    assert [each.structured_content for each in shaped.messages[0].content] == [{"result": 3}, UNSET]


@pytest.mark.parametrize(
    ("schema", "wrapped"),
    [
        ({"type": "object"}, False),
        ({"type": "array"}, True),
        ({"$ref": "#/$defs/a"}, True),
        ({"type": ["object", "null"]}, True),
        ({}, True),
    ],
)
def test_only_a_schema_of_an_object_needs_no_wrapping(schema: dict[str, Any], *, wrapped: bool) -> None:
    assert needs_wrapping(schema) is wrapped


def listed(schema: dict[str, Any] | None, revision: Revision) -> Any:
    tool = t.Tool(name="n", input_schema={"type": "object"}, output_schema=schema)
    return adapt_result(t.ListToolsResult(tools=[tool]), revision).tools[0].output_schema


@pytest.mark.parametrize("revision", [R2025_06, R2025_11])
def test_a_listed_schema_is_wrapped_like_its_values(revision: Revision) -> None:
    wrapped = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
    assert listed({"type": "integer"}, revision) == {**wrapped, WRAP_MARK: True}


@pytest.mark.parametrize("revision", [R2025_06, R2025_11])
@pytest.mark.parametrize("schema", [None, {"type": "object"}])
def test_a_listed_schema_of_an_object_or_none_stays(schema: Any, revision: Revision) -> None:
    assert listed(schema, revision) == schema


def test_any_schema_may_be_listed_in_a_stateless_revision() -> None:
    assert listed({"type": "integer"}, R2026_07) == {"type": "integer"}


TREE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"leaf": {"type": "integer"}, "default": {"$ref": "#/items"}},
    "definitions": {"old": {"type": "boolean"}},
    "type": "array",
    "items": {
        "anyOf": [
            {"$ref": "#/$defs/leaf"},
            {"$ref": "#"},
            {"$ref": "#/definitions/old"},
            {"type": "object", "properties": {"$ref": {"$ref": "#/$defs/default"}, "const": {"const": {"$ref": "#"}}}},
        ]
    },
}
OWN_ID = {"$id": "https://example.com/s", "$defs": {"a": {"type": "integer"}}, "$ref": "#/$defs/a"}


@pytest.mark.parametrize(
    ("schema", "value", "valid"),
    [
        pytest.param(TREE, [1, [2, []]], True, id="nested by the root"),
        pytest.param(TREE, [1, ["x"]], False, id="wrong in the depth"),
        pytest.param(TREE, [True], True, id="old definitions"),
        pytest.param(TREE, [{"$ref": [1], "const": {"$ref": "#"}}], True, id="members with the names of words"),
        pytest.param(TREE, [{"$ref": "x"}], False, id="wrong under such a member"),
        pytest.param(TREE, [{"const": {"$ref": "#/properties/result"}}], False, id="a constant is no reference"),
        pytest.param(OWN_ID, 1, True, id="a document of its own"),
        pytest.param(OWN_ID, "x", False, id="wrong in a document of its own"),
    ],
)
def test_a_wrapped_schema_accepts_the_same_wrapped_values(schema: Any, value: Any, *, valid: bool) -> None:
    wrapped = wrap_schema(schema)
    assert jsonschema_rs.is_valid(schema, value) is valid
    assert jsonschema_rs.is_valid(wrapped, {"result": value}) is valid
    assert not jsonschema_rs.is_valid(wrapped, {})


def test_definitions_and_dialect_stand_at_the_root_of_a_wrapped_schema() -> None:
    members = {"$schema", "$defs", "definitions", "type", "properties", "required", WRAP_MARK}
    assert set(wrap_schema(TREE)) == members
    assert set(wrap_schema(TREE)["properties"]["result"]) == {"type", "items"}


def test_wrapping_leaves_the_given_schema_alone() -> None:
    before = json.dumps(TREE)
    wrap_schema(TREE)
    assert json.dumps(TREE) == before


# --- The hot path


def own_calls(work: Callable[[], Any]) -> list[str]:
    seen: list[str] = []

    def note(frame: Any, event: str, _argument: Any) -> None:
        seen.extend([frame.f_code.co_name] * (event == "call" and frame.f_code.co_filename == downgrade.__file__))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize("revision", [R2025_11, R2026_07])
def test_a_tool_result_costs_one_call_once_its_plan_is_made(revision: Revision) -> None:
    result = t.CallToolResult(content=[TEXT])
    adapt_result(result, revision, server_info=SERVER_INFO)
    assert own_calls(lambda: adapt_result(result, revision, server_info=SERVER_INFO)) == ["adapt_result"]


def test_every_hidden_field_can_be_left_out() -> None:
    kinds = [each for each in vars(t).values() if isinstance(each, type) and issubclass(each, t.Wire)]
    rows = [(kind, name) for kind in kinds for revision in REVISIONS for name in hidden_fields(kind, revision)]
    optional = {(kind, field.name) for kind in kinds for field in msgspec.structs.fields(kind) if not field.required}
    assert set(rows) <= optional
