"""The mirrored headers: which parameters, how values are encoded, and when they disagree with a body."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import case_id
from trunkline.protocol.headers import (
    HeaderParameter,
    build_headers,
    compare_headers,
    compare_parameter_headers,
    decode_value,
    encode_value,
    header_parameters,
)

REGION = HeaderParameter("Mcp-Param-Region", ("region",))
LIMIT = HeaderParameter("Mcp-Param-Limit", ("options", "limit"))


def annotated(name: Any = "Region", **schema: Any) -> dict[str, Any]:
    return {"type": "string", **schema, "x-mcp-header": name}


def properties(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members}


# Which parameters


def test_an_annotated_parameter_is_mirrored_and_others_are_not() -> None:
    schema = properties(region=annotated(), query={"type": "string"})
    assert header_parameters(schema) == (REGION,)


def test_a_nested_parameter_is_mirrored_with_its_whole_path_in_the_order_of_the_schema() -> None:
    schema = properties(options=properties(limit=annotated("Limit", type="integer")), region=annotated())
    assert header_parameters(schema) == (LIMIT, REGION)


@pytest.mark.parametrize("kind", ["string", "integer", "boolean", ["string", "null"], ["null", "integer"]], ids=case_id)
def test_a_primitive_parameter_may_be_mirrored(kind: Any) -> None:
    assert header_parameters(properties(region=annotated(type=kind))) == (REGION,)


@pytest.mark.parametrize(
    "kind", ["number", "object", "array", "null", None, [], ["string", "integer"], ["null"], [["string"]]], ids=str
)
def test_no_other_type_may_be_mirrored(kind: Any) -> None:
    with pytest.raises(ValueError, match='of "region" needs a property whose "type" is string, integer or boolean'):
        header_parameters(properties(region=annotated(type=kind)))


@pytest.mark.parametrize("name", ["", None, 3, ["Region"]], ids=case_id)
def test_an_annotation_must_be_a_text_that_is_not_empty(name: Any) -> None:
    with pytest.raises(ValueError, match='x-mcp-header of "region" must be a non-empty string'):
        header_parameters(properties(region=annotated(name)))


@pytest.mark.parametrize("name", ["My Region", "Region:", "Región", "Re\tgion", "Region\r\nX: y", "(x)"], ids=ascii)
def test_an_annotation_must_be_a_token(name: str) -> None:
    with pytest.raises(ValueError, match=r"which is not a header name") as caught:
        header_parameters(properties(region=annotated(name)))
    assert re.fullmatch("[ -~]+", str(caught.value))


def test_every_token_character_is_allowed() -> None:
    name = "!#$%&'*+-.^_`|~09azAZ"
    assert header_parameters(properties(a=annotated(name))) == (HeaderParameter(f"Mcp-Param-{name}", ("a",)),)


@pytest.mark.parametrize("other", ["Region", "REGION"])
def test_two_parameters_may_not_share_a_header(other: str) -> None:
    schema = properties(a=annotated("Region"), b=properties(c=annotated(other)))
    with pytest.raises(ValueError, match=r'"b\.c" and "a" to one header, Mcp-Param-Region'):
        header_parameters(schema)


UNREACHABLE: dict[str, dict[str, Any]] = {
    "root": annotated(type="object"),
    "items": properties(a={"type": "array", "items": properties(b=annotated())}),
    "prefixItems": properties(a={"prefixItems": [annotated()]}),
    "anyOf": properties(a={"anyOf": [annotated(), {"type": "null"}]}),
    "not": {"not": annotated()},
    "if": {"if": properties(a=annotated())},
    "patternProperties": {"patternProperties": {"^a": annotated()}},
    "$defs": {"$defs": {"region": annotated()}, **properties(a={"$ref": "#/$defs/region"})},
    "dependentSchemas": {"dependentSchemas": {"a": properties(b=annotated())}},
    "unknown-keyword": {"x-more": {"deep": annotated()}},
}


@pytest.mark.parametrize("schema", UNREACHABLE.values(), ids=UNREACHABLE.keys())
def test_an_annotation_that_properties_alone_do_not_reach_is_rejected(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot be reached"):
        header_parameters(schema)


DATA: dict[str, dict[str, Any]] = {
    "property-of-that-name": properties(**{"x-mcp-header": {"type": "string"}}),
    "dependency-of-that-name": {"dependentRequired": {"x-mcp-header": ["a"]}},
    "default": properties(a={"default": annotated()}),
    "const": properties(a={"const": annotated()}),
    "enum": properties(a={"enum": [annotated()]}),
    "examples": properties(a={"examples": [annotated()]}),
    "broken-properties": {"properties": ["x-mcp-header"]},
    "boolean-schema": properties(a=True),
}


@pytest.mark.parametrize("schema", DATA.values(), ids=DATA.keys())
def test_the_word_in_data_or_as_a_name_is_no_annotation(schema: dict[str, Any]) -> None:
    assert header_parameters(schema) == ()


# How values are encoded

ENCODED = [
    ("us-west1", "us-west1"),
    ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
    (" padded ", "=?base64?IHBhZGRlZCA=?="),
    ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
    ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
    ("=?base64?open", "=?base64?open"),
    ("=?BASE64?x?=", "=?BASE64?x?="),
    ("a  b", "a  b"),
    ("a\tb", "=?base64?YQli?="),
    ("a\r\nX: y", "=?base64?YQ0KWDogeQ==?="),
    ("\x7f", "=?base64?fw==?="),
    (" ", "=?base64?IA==?="),
    ("x", "x"),
    ("", ""),
    (42, "42"),
    (-7, "-7"),
    (42.0, "42"),
    (2**53 - 1, "9007199254740991"),
    (-(2**53) + 1, "-9007199254740991"),
    (True, "true"),
    (False, "false"),
]


@pytest.mark.parametrize(("value", "text"), ENCODED, ids=[repr(value) for value, _ in ENCODED])
def test_a_value_is_written_as_the_specification_shows(value: str | int, text: str) -> None:
    assert encode_value(value) == text


@pytest.mark.parametrize("value", [2**53, -(2**53), 1.5, float("inf"), float("nan"), [], {}, None], ids=case_id)
def test_a_value_that_no_header_carries_is_rejected(value: Any) -> None:
    with pytest.raises(ValueError, match="only a string, a boolean or an integer"):
        encode_value(value)


def test_a_text_that_is_not_unicode_is_rejected() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        encode_value("\ud800")


DECODED = [
    ("plain", "plain"),
    ("  spaced out\t", "spaced out"),
    ("a\tb", "a\tb"),
    ("=?base64?SGVsbG8=?=", "Hello"),
    ("=?base64??=", ""),
    ("=?base64?=", "=?base64?="),
    ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
    ("SGVsbG8=?=", "SGVsbG8=?="),
    ("=?BASE64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?="),
]


@pytest.mark.parametrize(("text", "value"), DECODED, ids=[text for text, _ in DECODED])
def test_a_header_is_read_back(text: str, value: str) -> None:
    assert decode_value(text) == value


@pytest.mark.parametrize(
    "text",
    ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?SGVs bG8=?=", "=?base64?/w==?=", "=?base64?=A==?="],
)
def test_broken_base64_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="marked as Base64 of UTF-8 but is not"):
        decode_value(text)


@pytest.mark.parametrize("text", ["é", "a\nb", "a\0b", "\x7f"], ids=ascii)
def test_a_character_that_no_header_may_have_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="characters that a header cannot carry"):
        decode_value(text)


unicode_texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(unicode_texts | st.from_regex(r"\A=\?base64\?.*\?=\Z"))
def test_any_text_survives_the_header_and_the_header_is_always_legal(value: str) -> None:
    text = encode_value(value)
    assert decode_value(text) == value
    assert re.fullmatch(r"(?:[!-~](?:[ -~]*[!-~])?)?", text)


@given(st.text())
def test_no_header_makes_comparing_raise(text: str) -> None:
    sentence = compare_headers({"Mcp-Method": "m", "Mcp-Name": text}, "m", name="t\n")
    assert sentence is not None
    assert sentence.startswith("Mcp-Name header ")


# Building


def test_a_call_is_built_with_its_method_name_and_parameters() -> None:
    headers = build_headers(
        "tools/call",
        "execute_sql",
        arguments={"region": "us-west1", "options": {"limit": 5}},
        parameters=(REGION, LIMIT),
    )
    assert headers == {
        "Mcp-Method": "tools/call",
        "Mcp-Name": "execute_sql",
        "Mcp-Param-Region": "us-west1",
        "Mcp-Param-Limit": "5",
    }


def test_a_request_that_names_nothing_has_the_method_alone() -> None:
    assert build_headers("tools/list", None) == {"Mcp-Method": "tools/list"}


@pytest.mark.parametrize(
    "arguments", [None, {}, {"options": None}, {"options": {}}, {"options": {"limit": None}}, {"options": 3}], ids=str
)
def test_an_absent_or_null_value_gives_no_header(arguments: dict[str, Any] | None) -> None:
    assert build_headers("tools/call", "t", arguments=arguments, parameters=(LIMIT,)) == {
        "Mcp-Method": "tools/call",
        "Mcp-Name": "t",
    }


def test_an_argument_that_no_header_carries_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match=r'Argument "options\.limit" for Mcp-Param-Limit: only a string'):
        build_headers("tools/call", "t", arguments={"options": {"limit": 2**60}}, parameters=(LIMIT,))


def test_a_method_that_no_header_carries_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot be sent in the Mcp-Method header"):
        build_headers("acme/größe", None)


# Comparing

AGREE: dict[str, tuple[dict[str, str], str, str | None, dict[str, Any] | None]] = {
    "method-only": ({"Mcp-Method": "tools/list"}, "tools/list", None, None),
    "name": ({"Mcp-Method": "tools/call", "Mcp-Name": "t"}, "tools/call", "t", {}),
    "lower-case": ({"mcp-method": "tools/call", "mcp-name": "t"}, "tools/call", "t", {}),
    "upper-case": ({"MCP-METHOD": "tools/call", "MCP-NAME": "t"}, "tools/call", "t", {}),
    "spaces-around": ({"Mcp-Method": " tools/call ", "Mcp-Name": " t "}, "tools/call", "t", {}),
    "encoded-name": ({"Mcp-Method": "m", "Mcp-Name": "=?base64?w7w=?="}, "m", "ü", {}),
    "unknown-param": ({"Mcp-Method": "m", "Mcp-Param-Other": "\n"}, "m", None, {}),
    "text": ({"Mcp-Method": "m", "Mcp-Param-Region": "eu"}, "m", None, {"region": "eu"}),
    "encoded-text": ({"Mcp-Method": "m", "mcp-param-region": "=?base64?SGVsbG8=?="}, "m", None, {"region": "Hello"}),
    "empty-text": ({"Mcp-Method": "m", "Mcp-Param-Region": ""}, "m", None, {"region": ""}),
    "null": ({"Mcp-Method": "m"}, "m", None, {"region": None}),
    "boolean": ({"Mcp-Method": "m", "Mcp-Param-Region": "true"}, "m", None, {"region": True}),
    "integer": ({"Mcp-Method": "m", "Mcp-Param-Limit": "42"}, "m", None, {"options": {"limit": 42}}),
    "integer-as-fraction": ({"Mcp-Method": "m", "Mcp-Param-Limit": "42.0"}, "m", None, {"options": {"limit": 42}}),
    "fraction-as-integer": ({"Mcp-Method": "m", "Mcp-Param-Limit": "42"}, "m", None, {"options": {"limit": 42.0}}),
    "minus-zero": ({"Mcp-Method": "m", "Mcp-Param-Limit": "-0"}, "m", None, {"options": {"limit": 0}}),
}


@pytest.mark.parametrize(("headers", "method", "name", "arguments"), AGREE.values(), ids=AGREE.keys())
def test_headers_that_match_the_body_are_accepted(
    headers: dict[str, str], method: str, name: str | None, arguments: dict[str, Any] | None
) -> None:
    assert compare_headers(headers, method, name=name, arguments=arguments, parameters=(REGION, LIMIT)) is None


def differs(header: str, says: str, has: str, verb: str = "has") -> str:
    return f'{header} header says "{says}" but the body {verb} "{has}".'


METHOD, NAME, PARAM_REGION, PARAM_LIMIT = "Mcp-Method", "Mcp-Name", "Mcp-Param-Region", "Mcp-Param-Limit"
NO_VALUE = f"{PARAM_REGION} header is present but the body has no value for it."
NO_MATCH = (
    "header cannot match the body: only a string, a boolean or an integer of at most 2**53-1 can be sent in a header."
)
BROKEN_BASE64 = "Mcp-Name header cannot be read: it is marked as Base64 of UTF-8 but is not."
UNREADABLE = "Mcp-Param-Region header cannot be read: it has characters that a header cannot carry."
DIFFER: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "no-method": ({METHOD: ""}, {}, differs(METHOD, "", "m", "calls")),
    "method-case": ({METHOD: "M"}, {}, differs(METHOD, "M", "m", "calls")),
    "method-encoded": ({METHOD: "=?base64?bQ==?="}, {}, differs(METHOD, "=?base64?bQ==?=", "m", "calls")),
    "name-case": ({NAME: "Bar"}, {}, differs(NAME, "Bar", "bar", "calls")),
    "name-broken": ({NAME: "=?base64?!?="}, {}, BROKEN_BASE64),
    "missing": ({}, {"region": "eu"}, 'Mcp-Param-Region header is missing; the body has "eu".'),
    "text": ({PARAM_REGION: "us"}, {"region": "eu"}, differs(PARAM_REGION, "us", "eu")),
    "extra": ({PARAM_REGION: "us"}, {}, NO_VALUE),
    "null": ({PARAM_REGION: "us"}, {"region": None}, NO_VALUE),
    "bad-characters": ({PARAM_REGION: "é"}, {"region": "é"}, UNREADABLE),
    "text-is-not-a-number": ({PARAM_REGION: "42.0"}, {"region": "42"}, differs(PARAM_REGION, "42.0", "42")),
    "boolean-is-not-a-number": ({PARAM_REGION: "1"}, {"region": True}, differs(PARAM_REGION, "1", "true")),
    "integer": ({PARAM_LIMIT: "43"}, {"options": {"limit": 42}}, differs(PARAM_LIMIT, "43", "42")),
    "no-integer": ({PARAM_LIMIT: "042"}, {"options": {"limit": 42}}, differs(PARAM_LIMIT, "042", "42")),
    "object": ({}, {"region": {}}, f"{PARAM_REGION} {NO_MATCH}"),
    "unsafe-integer": ({PARAM_LIMIT: "9007199254740992"}, {"options": {"limit": 2**53}}, f"{PARAM_LIMIT} {NO_MATCH}"),
    "unprintable": ({NAME: "=?base64?YQpi?="}, {}, differs(NAME, "a\\u000ab", "bar", "calls")),
    "long": ({NAME: "x" * 1000}, {}, differs(NAME, "x" * 79 + "…", "bar", "calls")),
}


@pytest.mark.parametrize(("headers", "arguments", "sentence"), DIFFER.values(), ids=DIFFER.keys())
def test_a_header_mismatch_is_reported_as_one_sentence(
    headers: dict[str, str], arguments: dict[str, Any], sentence: str
) -> None:
    headers = {"Mcp-Method": "m", "Mcp-Name": "bar", **headers}
    assert compare_headers(headers, "m", name="bar", arguments=arguments, parameters=(REGION, LIMIT)) == sentence


def test_a_missing_header_is_reported() -> None:
    method = {"Mcp-Method": "tools/call"}
    assert compare_headers({}, "tools/call", name="t") == 'Mcp-Method header is missing; the body calls "tools/call".'
    assert compare_headers(method, "tools/call", name="t") == 'Mcp-Name header is missing; the body calls "t".'


def test_a_tool_that_mirrors_nothing_is_compared_by_its_name_alone() -> None:
    headers = {"Mcp-Method": "tools/call", "Mcp-Name": "t", "Mcp-Param-Region": "us"}
    assert compare_headers(headers, "tools/call", name="t", arguments={"region": "eu"}) is None


def test_parameter_headers_can_be_compared_separately() -> None:
    sentence = compare_parameter_headers({"mcp-param-region": "us"}, {"region": "eu"}, parameters=(REGION,))
    assert sentence == 'Mcp-Param-Region header says "us" but the body has "eu".'


@given(
    name=unicode_texts,
    region=unicode_texts | st.booleans() | st.none() | st.integers(1 - 2**53, 2**53 - 1),
    limit=st.integers(1 - 2**53, 2**53 - 1) | st.none(),
)
def test_built_headers_always_agree_with_the_body(name: str, region: Any, limit: int | None) -> None:
    arguments = {"region": region, "options": {"limit": limit}}
    headers = build_headers("tools/call", name, arguments=arguments, parameters=(REGION, LIMIT))
    assert compare_headers(headers, "tools/call", name=name, arguments=arguments, parameters=(REGION, LIMIT)) is None
