"""The rows of methods, recomputed from the index of the schemas, and the decoding of params and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from msgspec import Raw

import trunkline.types as t
from tests.protocol import schema_index
from trunkline.protocol.methods import (
    METHODS,
    MISNAMED_METHODS,
    Method,
    capability_needed,
    decode_params,
    decode_result,
    embedded_requests,
    notifications_to_client,
    notifications_to_server,
    read_meta,
    requests_to_client,
    requests_to_server,
)
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, REVISIONS, Revision

INDEX = schema_index.load()
BY_NAME = {method.name: method for method in METHODS}
TABLES = (
    requests_to_server,
    requests_to_client,
    notifications_to_server,
    notifications_to_client,
    embedded_requests,
)

Table = Callable[[Revision], Mapping[str, Method]]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_a_revision_has_exactly_the_methods_of_its_schema(table: Table) -> None:
    known = {revision.name: INDEX[revision.name][table.__name__] for revision in REVISIONS}
    # What an extension adds is in no schema of the core.
    assert known == {
        each.name: sorted(name for name, row in table(each).items() if name in known[each.name] or not row.extension)
        for each in REVISIONS
    }


def test_the_methods_of_extensions_belong_to_the_ones_that_come_along() -> None:
    added = {row.name: row.extension for row in METHODS if row.extension is not None}
    tasks, skills = "io.modelcontextprotocol/tasks", "io.modelcontextprotocol/skills"
    assert added == {
        "tasks/get": tasks,
        "tasks/update": tasks,
        "tasks/cancel": tasks,
        "notifications/tasks": tasks,
        "skills/list": skills,
        "skills/get": skills,
        "resources/directory/read": skills,
    }


def test_there_is_one_row_for_each_method_of_any_revision() -> None:
    ways = [name for revision in INDEX.values() for way, names in revision.items() if "_to_" in way for name in names]
    assert sorted(name for name in BY_NAME if name in ways or BY_NAME[name].extension is None) == sorted(set(ways))
    assert len(METHODS) == len(BY_NAME) == 39


def test_a_table_cannot_be_changed() -> None:
    table: Any = requests_to_server(NEWEST)
    with pytest.raises(TypeError):
        table["tools/call"] = None


def test_a_cacheable_method_is_answered_with_cache_hints() -> None:
    cacheable = [method for method in METHODS if method.cacheable]
    assert [method.name for method in cacheable if not issubclass(method.result, t.CacheableResult)] == []
    core = {method.result.__name__ for method in cacheable if method.extension is None}
    for revision in REVISIONS:
        definitions = INDEX[revision.name]["definitions"]
        hinted = {name for name in core if "ttlMs" in definitions.get(name, {"properties": []})["properties"]}
        assert hinted == (core if revision.cache_hints else set()), revision


def test_only_three_methods_may_be_answered_with_a_question() -> None:
    asking = {method.name for method in METHODS if method.input_required}
    assert asking == {"tools/call", "prompts/get", "resources/read"}
    assert all("request_state" in BY_NAME[name].params.__struct_fields__ for name in asking)


def test_the_header_repeats_a_member_that_the_params_have() -> None:
    named = {method.name: method.name_member for method in METHODS if method.name_member}
    tasks = dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "task_id")
    assert named == {"tools/call": "name", "prompts/get": "name", "resources/read": "uri", **tasks}


def test_a_row_has_the_sender_of_a_method() -> None:
    names = ("tools/call", "sampling/createMessage", "ping")
    assert [BY_NAME[name].sender for name in names] == ["client", "server", "both"]


def test_only_listen_is_a_stream() -> None:
    assert [method.name for method in METHODS if method.stream] == ["subscriptions/listen"]


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("tools/call", "tools"),
        ("resources/subscribe", "resources.subscribe"),
        ("logging/setLevel", "logging"),
        ("sampling/createMessage", "sampling"),
        ("elicitation/create", "elicitation"),
        ("roots/list", "roots"),
        ("completion/complete", "completions"),
        ("ping", None),
        ("tasks/get", "tasks"),
        ("skills/list", "extensions/io.modelcontextprotocol/skills"),
    ],
)
def test_a_method_needs_what_its_receiver_declares(name: str, capability: str | None) -> None:
    assert capability_needed(BY_NAME[name], NEWEST_HANDSHAKE) == capability


def test_a_method_needs_what_its_revision_has() -> None:
    assert capability_needed(BY_NAME["tasks/get"], NEWEST) == "extensions/io.modelcontextprotocol/tasks"
    assert capability_needed(BY_NAME["completion/complete"], REVISIONS[0]) is None


def test_a_loose_name_is_not_a_method_and_leads_to_one() -> None:
    assert set(MISNAMED_METHODS) & set(BY_NAME) == set()
    assert set(MISNAMED_METHODS.values()) <= set(BY_NAME)


def test_params_are_decoded_to_their_type_with_arguments_left_raw() -> None:
    params = decode_params(
        BY_NAME["tools/call"], Raw(b'{"name":"add","arguments":{"a": 1},"_meta":{"progressToken":7}}')
    )
    assert params.name == "add"
    assert bytes(params.arguments) == b'{"a": 1}'
    assert params.meta.progress_token == 7


def test_missing_params_are_an_empty_object() -> None:
    assert decode_params(BY_NAME["tools/list"], None) == t.PaginatedRequestParams()


@pytest.mark.parametrize("raw", [b"[]", b"null", b'"x"', b'{"name":1}', b"{}"])
def test_params_that_do_not_fit_are_rejected(raw: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_params(BY_NAME["tools/call"], Raw(raw))


def test_the_params_of_every_method_can_be_decoded() -> None:
    example: dict[str, Any] = {
        "uri": "a:b",
        "name": "n",
        "level": "info",
        "data": None,
        "taskId": "t",
        "inputResponses": {},
        "ttlMs": None,
        "elicitationId": "e",
    }
    example |= {
        "progressToken": 1,
        "progress": 0.5,
        "message": "m",
        "notifications": {},
        "messages": [],
        "maxTokens": 1,
    }
    example |= {"status": "working", "createdAt": "", "lastUpdatedAt": "", "ttl": None, "protocolVersion": ""}
    example |= {"capabilities": {}, "clientInfo": {"name": "c"}, "argument": {"name": "a", "value": ""}}
    example |= {"ref": {"type": "ref/prompt", "name": "p"}}
    raw = Raw(msgspec.json.encode(example))
    assert [method.name for method in METHODS if type(decode_params(method, raw)) is not method.params] == []


def test_a_result_is_decoded_to_its_type() -> None:
    result = decode_result(BY_NAME["tools/call"], Raw(b'{"content":[{"type":"text","text":"3"}]}'))
    assert result == t.CallToolResult(content=[t.TextContent(text="3")])


def test_an_input_required_result_is_recognized() -> None:
    raw = Raw(b'{"resultType":"input_required","inputRequests":{"q":{"method":"roots/list"}},"requestState":"s"}')
    result = decode_result(BY_NAME["prompts/get"], raw)
    assert result == t.InputRequiredResult(input_requests={"q": t.InputRequest(method="roots/list")}, request_state="s")


def test_a_result_that_only_mentions_input_required_is_complete() -> None:
    raw = Raw(b'{"resultType":"complete","content":[{"type":"text","text":"input_required"}]}')
    assert type(decode_result(BY_NAME["tools/call"], raw)) is t.CallToolResult


def test_the_result_of_a_task_is_whatever_it_is() -> None:
    assert decode_result(BY_NAME["tasks/result"], Raw(b'{"content":[],"x":1}')) == {"content": [], "x": 1}


@pytest.mark.parametrize(
    ("raw", "meta"),
    [
        pytest.param(None, {}, id="no params"),
        pytest.param(b"{}", {}, id="no _meta"),
        pytest.param(b'{"_meta":null}', {}, id="null"),
        pytest.param(
            b'{"_meta":{"com.example/x":[1],"progressToken":2}}', {"com.example/x": [1], "progressToken": 2}, id="any"
        ),
    ],
)
def test_members_of_meta_that_no_type_knows_can_be_read(raw: bytes | None, meta: dict[str, Any]) -> None:
    assert read_meta(None if raw is None else Raw(raw)) == meta
