"""Pins: any change of a definition changes its pin, and nothing else does: no order of a set, and no revision."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trunkline.types as t
from trunkline.host.integrity.pins.definitions import canonical, exact_pin, normal_form, pin_of

WIRE = {
    "name": "delete_file",
    "title": "Delete",
    "description": "Deletes a file.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string", "default": 1}}},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": False, "destructiveHint": True},
    "execution": {"taskSupport": "optional"},
    "icons": [{"src": "https://example.com/a.png"}],
    "_meta": {"tags": ["files"]},
}

CHANGES: list[Any] = [
    pytest.param({"name": "delete_files"}, id="name"),
    pytest.param({"title": "delete"}, id="title"),
    pytest.param({"description": "Deletes a file. "}, id="one-space"),
    pytest.param({"description": "Deletes a file\u200b."}, id="an-unseen-character"),
    pytest.param({"inputSchema": {**WIRE["inputSchema"], "required": ["path"]}}, id="input-schema"),  # type: ignore[dict-item]
    pytest.param({"outputSchema": {"type": "object", "description": "x"}}, id="output-schema"),
    pytest.param({"annotations": {"readOnlyHint": True, "destructiveHint": True}}, id="annotation"),
    pytest.param({"icons": []}, id="icons"),
    pytest.param({"_meta": {"tags": ["file"]}}, id="meta"),
]


def tool(wire: dict[str, Any]) -> t.Tool:
    return msgspec.json.decode(json.dumps(wire), type=t.Tool)


def schema_with(default: Any) -> t.Tool:
    return t.Tool(name="a", input_schema={"type": "object", "default": default})


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_any_member_changes_the_pin(change: dict[str, Any]) -> None:
    assert pin_of(tool({**WIRE, **change})) != pin_of(tool(WIRE))


@pytest.mark.parametrize("member", [name for name in WIRE if name not in ("name", "inputSchema", "execution")])
def test_a_member_that_is_gone_changes_the_pin(member: str) -> None:
    rest = {name: value for name, value in WIRE.items() if name != member}
    assert pin_of(tool(rest)) != pin_of(tool(WIRE))


def test_the_order_of_members_never_matters() -> None:
    turned = {name: WIRE[name] for name in reversed(WIRE)}
    turned["inputSchema"] = {"properties": {"path": {"default": 1, "type": "string"}}, "type": "object"}
    assert pin_of(tool(turned)) == pin_of(tool(WIRE))


@pytest.mark.parametrize("written", [b"1.0", b"1e0", b"10E-1", b"1.000"])
def test_a_number_is_one_however_it_is_written(written: bytes) -> None:
    assert pin_of(schema_with(msgspec.json.decode(written))) == pin_of(schema_with(1))


def test_a_whole_float_beyond_sixteen_digits_is_its_integer() -> None:
    assert canonical(1e16) == canonical(10**16) == b"10000000000000000"


@pytest.mark.parametrize("other", [True, "1", [1], 1.5, None, 2], ids=["true", "text", "list", "float", "null", "two"])
def test_what_python_or_a_reader_may_take_for_one_is_not_one(other: Any) -> None:
    assert pin_of(schema_with(other)) != pin_of(schema_with(1))


def test_large_integers_that_are_one_float_are_two_numbers() -> None:
    assert pin_of(schema_with(2**53)) != pin_of(schema_with(2**53 + 1))


def test_a_text_that_looks_like_a_number_stays_as_it_is() -> None:
    assert canonical({"b": "v1.0 2e5", "a": 2.0}) == b'{"a":2,"b":"v1.0 2e5"}'


def test_a_pin_is_a_sha256_in_hexadecimal() -> None:
    # Computed apart from this code: sha256 of {"inputSchema":{"type":"object"},"name":"a"}.
    pin = "60d4353e9a5499b483d09f13d9e28060e70f34edf787bb7040ba30bd390f85af"
    assert pin_of(t.Tool(name="a", input_schema={"type": "object"})) == pin


def test_what_is_larger_than_allowed_has_no_pin() -> None:
    with pytest.raises(ValueError, match="bytes"):
        pin_of(schema_with("x" * 100), most_bytes=100)


# --- the same tool in every revision, at every start -----------------------------------------------------------------

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FLAG = {"type": "boolean"}


def _with_property(member: dict[str, Any]) -> dict[str, Any]:
    return {"inputSchema": {"type": "object", "properties": {"a": member}}}


def _wrapping(result: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"outputSchema": {"type": "object", "properties": {"result": result}, "required": ["result"], **more}}


#: Two ways to write one tool.
EQUAL: list[Any] = [
    pytest.param({"execution": {"taskSupport": "required"}}, {}, id="tasks"),
    pytest.param(
        {"inputSchema": {"type": "object", "required": ["a", "b"], "properties": {"a": {}, "b": {}}}},
        {"inputSchema": {"type": "object", "required": ["b", "a"], "properties": {"b": {}, "a": {}}}},
        id="required",
    ),
    pytest.param(
        _with_property({"type": ["string", "null"]}), _with_property({"type": ["null", "string"]}), id="types"
    ),
    pytest.param(
        _with_property({"enum": ["x", 1, None, {"b": [2, 1]}]}),
        _with_property({"enum": [{"b": [2, 1]}, None, "x", 1]}),
        id="enum",
    ),
    pytest.param(
        _with_property({"$defs": {"A": {"anyOf": [{"items": {"enum": ["x", "y"]}}]}}}),
        _with_property({"$defs": {"A": {"anyOf": [{"items": {"enum": ["y", "x"]}}]}}}),
        id="deep in a schema",
    ),
    pytest.param(
        {"outputSchema": {"type": "object", "properties": {"enum": {"enum": ["x", "y"]}}}},
        {"outputSchema": {"type": "object", "properties": {"enum": {"enum": ["y", "x"]}}}},
        id="a property that is called enum",
    ),
    pytest.param(
        {"inputSchema": {"type": "object", "$schema": DIALECT}}, {"inputSchema": {"type": "object"}}, id="dialect"
    ),
    pytest.param({"outputSchema": FLAG}, _wrapping(FLAG), id="an output that is wrapped"),
    pytest.param(
        {"outputSchema": {"$ref": "#/$defs/A", "$defs": {"A": FLAG}}},
        _wrapping({"$ref": "#/$defs/A"}, **{"$defs": {"A": FLAG}}),
        id="an output with definitions",
    ),
    pytest.param(
        {"outputSchema": FLAG},
        _wrapping(FLAG, **{"x-fastmcp-wrap-result": True}),
        id="an output that FastMCP wrapped",
    ),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_what_says_the_same_has_the_same_pin(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert pin_of(tool({**WIRE, **one})) == pin_of(tool({**WIRE, **other}))


#: Lists whose order may mean something, and texts in places that look like sets.
DIFFERENT: list[Any] = [
    pytest.param(_with_property({"default": ["x", "y"]}), _with_property({"default": ["y", "x"]}), id="default"),
    pytest.param(
        _with_property({"default": {"enum": ["x", "y"], "required": ["a", "b"]}}),
        _with_property({"default": {"enum": ["y", "x"], "required": ["a", "b"]}}),
        id="a default that looks like a schema",
    ),
    pytest.param(
        _with_property({"enum": [["x", "y"]]}), _with_property({"enum": [["y", "x"]]}), id="a list within an enum"
    ),
    pytest.param(
        _with_property({"x-note": {"required": ["do", "not"]}}),
        _with_property({"x-note": {"required": ["not", "do"]}}),
        id="a keyword of its own",
    ),
    pytest.param(
        _with_property({"anyOf": [{"type": "string"}, FLAG]}),
        _with_property({"anyOf": [FLAG, {"type": "string"}]}),
        id="alternatives",
    ),
    pytest.param(_with_property({"enum": ["x", "x", "y"]}), _with_property({"enum": ["x", "y", "y"]}), id="repeated"),
    pytest.param(_with_property({"enum": ["1", 1]}), _with_property({"enum": [1, 1]}), id="a text for a number"),
    pytest.param(
        {"description": "Never delete, always ask."}, {"description": "Always delete, never ask."}, id="words"
    ),
    pytest.param({"_meta": {"enum": ["x", "y"]}}, {"_meta": {"enum": ["y", "x"]}}, id="meta"),
    pytest.param(
        {"inputSchema": {"type": "object", "$schema": f"{DIALECT}?read=this"}},
        {"inputSchema": {"type": "object"}},
        id="a dialect with a text in it",
    ),
    pytest.param({"outputSchema": FLAG}, _wrapping(FLAG, title="Do it"), id="a wrapper that says something"),
    pytest.param(
        {"outputSchema": FLAG},
        _wrapping(FLAG, **{"x-fastmcp-wrap-result": "read this"}),
        id="a mark that says something",
    ),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_may_say_something_else_has_another_pin(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert pin_of(tool({**WIRE, **one})) != pin_of(tool({**WIRE, **other}))


@pytest.mark.parametrize("one", [each.values[0] for each in (*EQUAL, *DIFFERENT)])
def test_the_normal_form_of_json_is_that_of_the_definition(one: dict[str, Any]) -> None:
    wire = {**WIRE, **one}
    assert pin_of(tool(wire)) == exact_pin(normal_form(msgspec.to_builtins(tool(wire))))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_canonical_json_is_its_own_canonical_form(value: Any) -> None:
    written = canonical(value)
    assert canonical(msgspec.json.decode(written)) == written
