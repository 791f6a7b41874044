"""The reader of JSON that knows where everything stands."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.host.config.jsonc import (
    MAX_DEPTH,
    InvalidJson,
    JsonArray,
    JsonObject,
    JsonScalar,
    kind_of,
    parse_jsonc,
    to_python,
)

_NUMBERS = st.integers(-(10**30), 10**30) | st.floats(-1e100, 1e100)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(_VALUES, st.sampled_from([None, 0, 2]), st.booleans())
def test_a_document_means_what_the_standard_reader_says(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert to_python(parse_jsonc(text)) == json.loads(text)


@given(_VALUES, st.integers(0, 200), st.sampled_from(['"', "{", "}", "[", "]", ",", ":", "\\", "1", "t", "\n", ""]))
def test_a_document_with_one_character_changed_is_not_read_where_the_standard_reader_refuses_it(
    value: Any, at: int, character: str
) -> None:
    whole = json.dumps(value, ensure_ascii=False)
    text = whole[: at % len(whole)] + character + whole[at % len(whole) + 1 :]
    assert _read(text, parse_jsonc) == _read(text, json.loads) or _has_last_comma(text)


def _read(text: str, reader: Any) -> str:
    try:
        read = reader(text)
    except (InvalidJson, ValueError):
        return "refused"
    return repr(to_python(read) if isinstance(read, JsonScalar | JsonArray | JsonObject) else read)


def _has_last_comma(text: str) -> bool:
    return re.search(r",\s*[\]}]", text) is not None


def _place(text: str) -> tuple[int, int]:
    """Give the place of the mistake in a text, or its beginning."""
    try:
        parse_jsonc(text)
    except InvalidJson as error:
        return error.line, error.column
    return 1, 1


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_place_in_it(text: str) -> None:
    line, column = _place(text)
    assert 1 <= line <= text.count("\n") + text.count("\r") + 1
    assert 1 <= column <= len(text) + 1


def test_comments_and_commas_after_the_last_item_are_accepted() -> None:
    text = '// head\n{ /* a */ "a": [1, 2,], // end\n "b": {"c": "//no /*comment*/",},\n}\n// tail'
    assert to_python(parse_jsonc(text)) == {"a": [1, 2], "b": {"c": "//no /*comment*/"}}


def test_names_and_values_have_their_lines_and_columns() -> None:
    root = parse_jsonc('{\r\n  "a":\n    [1,\n     true]}')
    assert isinstance(root, JsonObject)
    member = root.members["a"]
    assert (root.line, root.column, member.line, member.column) == (1, 1, 2, 3)
    assert (member.value.line, member.value.column) == (3, 5)


def test_a_name_that_stands_twice_is_noted_with_both_lines_and_the_last_is_kept() -> None:
    root = parse_jsonc('{"a": 1,\n"b": 2,\n"a": 3}')
    assert isinstance(root, JsonObject)
    assert root.repeated == (("a", 1, 3),)
    assert to_python(root) == {"a": 3, "b": 2}


def test_characters_beyond_the_basic_plane_are_read_from_their_two_escapes() -> None:
    assert parse_jsonc('"\\ud83d\\ude00"') == JsonScalar("\U0001f600", 1, 1)


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        pytest.param("", 1, 1, "nothing is written", id="nothing"),
        pytest.param('{"a": 1', 1, 8, 'expected "," or "}", found the end of the file', id="unfinished"),
        pytest.param('{\n "a" 1}', 2, 6, 'expected ":"', id="no colon"),
        pytest.param('{"a": 1\n"b": 2}', 2, 1, 'expected "," or "}"', id="no comma"),
        pytest.param("{a: 1}", 1, 2, "expected a name in double quotes", id="bare name"),
        pytest.param('{"a": True}', 1, 7, "write true", id="Python's true"),
        pytest.param('{"a": None}', 1, 7, "write null", id="Python's none"),
        pytest.param("['a']", 1, 2, "double quotes", id="single quoted value"),
        pytest.param('["a\nb"]', 1, 2, 'no closing "', id="line end in a text"),
        pytest.param('["a\tb"]', 1, 4, "U+0009", id="tab in a text"),
        pytest.param('["C:\\Users"]', 1, 5, 'write "\\\\"', id="backslash"),
        pytest.param('["\\u12"]', 1, 3, "four hexadecimal digits", id="short escape"),
        pytest.param('["\\ud83d"]', 1, 9, "half of a pair", id="half a pair"),
        pytest.param('["\\ud83d\\u0041"]', 1, 15, "half of a pair", id="half a pair and another"),
        pytest.param("[01]", 1, 2, "expected a number", id="leading zero"),
        pytest.param("[NaN]", 1, 2, "expected a value", id="NaN"),
        pytest.param("[1e999]", 1, 2, "too large", id="too large"),
        pytest.param(f"[{'9' * 5000}]", 1, 2, "more than 300 digits", id="many digits"),
        pytest.param("{} {}", 1, 4, "nothing more", id="two documents"),
        pytest.param("[1 /* ", 1, 4, 'no closing "*/"', id="open comment"),
        pytest.param("[,]", 1, 2, "expected a value", id="comma alone"),
        pytest.param('["\ufeff", \u200b]', 1, 7, "U+200B", id="invisible"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_was_expected(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        parse_jsonc(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert said in str(caught.value)


@pytest.mark.parametrize(("text", "depth"), [("[", MAX_DEPTH), ('{"a":', MAX_DEPTH), ("[", 100_000)])
def test_nesting_beyond_the_limit_is_refused(text: str, depth: int) -> None:
    with pytest.raises(InvalidJson, match="nested deeper than 64"):
        parse_jsonc(text * (depth + 1))


def test_nesting_up_to_the_limit_is_read() -> None:
    assert isinstance(parse_jsonc("[" * MAX_DEPTH + "]" * MAX_DEPTH).line, int)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("{}", "an object"),
        ("[]", "a list"),
        ("true", "true"),
        ("false", "false"),
        ("null", "null"),
        ('"x"', "a string"),
        ("1.5", "a number"),
    ],
)
def test_a_kind_is_named_without_the_value(text: str, kind: str) -> None:
    assert kind_of(parse_jsonc(text)) == kind
