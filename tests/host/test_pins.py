"""Pins: any change of a definition changes its pin, and nothing else does."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trunkline.types as t
from trunkline.host.pins.pin import canonical, pin_of

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
    pytest.param({"annotations": {"readOnlyHint": False}}, id="annotation-gone"),
    pytest.param({"execution": {"taskSupport": "required"}}, id="execution"),
    pytest.param({"icons": []}, id="icons"),
    pytest.param({"_meta": {"tags": ["file"]}}, id="meta"),
    pytest.param({"_meta": {"tags": [True]}}, id="true-for-a-text"),
]


def tool(wire: dict[str, Any]) -> t.Tool:
    return msgspec.json.decode(json.dumps(wire), type=t.Tool)


def schema_with(default: Any) -> t.Tool:
    return t.Tool(name="a", input_schema={"type": "object", "default": default})


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_any_member_changes_the_pin(change: dict[str, Any]) -> None:
    assert pin_of(tool({**WIRE, **change})) != pin_of(tool(WIRE))


@pytest.mark.parametrize("member", [name for name in WIRE if name not in ("name", "inputSchema")])
def test_a_member_that_is_gone_changes_the_pin(member: str) -> None:
    rest = {name: value for name, value in WIRE.items() if name != member}
    assert pin_of(tool(rest)) != pin_of(tool(WIRE))


def test_the_order_of_members_never_matters() -> None:
    turned = {name: WIRE[name] for name in reversed(WIRE)}
    turned["inputSchema"] = {"properties": {"path": {"default": 1, "type": "string"}}, "type": "object"}
    assert pin_of(tool(turned)) == pin_of(tool(WIRE))


def test_white_space_and_escapes_of_the_wire_never_matter() -> None:
    spaced = json.dumps(WIRE, indent=3).replace("Deletes", "\\u0044eletes")
    assert pin_of(msgspec.json.decode(spaced, type=t.Tool)) == pin_of(tool(WIRE))


def test_the_order_of_a_list_matters() -> None:
    assert pin_of(schema_with(["a", "b"])) != pin_of(schema_with(["b", "a"]))


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


@pytest.mark.parametrize(
    "definition",
    [
        t.Prompt(name="a", description="b"),
        t.Resource(name="a", uri="x://a", description="b"),
        t.ResourceTemplate(name="a", uri_template="x://{a}", description="b"),
    ],
    ids=["prompt", "resource", "template"],
)
def test_prompts_and_resources_are_pinned_too(definition: t.Prompt | t.Resource | t.ResourceTemplate) -> None:
    assert pin_of(definition) != pin_of(msgspec.structs.replace(definition, description="c"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_canonical_json_is_its_own_canonical_form(value: Any) -> None:
    written = canonical(value)
    assert canonical(msgspec.json.decode(written)) == written
