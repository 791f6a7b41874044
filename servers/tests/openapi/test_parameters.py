"""Each style of a parameter, read back by a decoder that was written from the specification's table alone."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline import ToolError
from trunkline_servers.openapi.parameters import ApiParameter, header_text, path_text, query_pairs

_STEP = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(lambda s: "." not in s)
#: Neither delimiter of the styles whose delimiter cannot be encoded.
_UNDELIMITED = _STEP.filter(lambda text: " " not in text and "|" not in text)
_HEADER = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=",="), min_size=1, max_size=8)

scalars = st.one_of(_STEP, st.integers(-(2**53), 2**53).map(str))


def a_parameter(where: str, style: str, *, explode: bool, reserved: bool = False) -> ApiParameter:
    """Make a parameter named ``p q`` of a style."""
    return ApiParameter(
        name="p q", where=where, style=style, explode=explode, argument="p", schema={}, reserved=reserved
    )


def lists(items: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    """Make lists that are not empty."""
    return st.lists(items, min_size=1, max_size=4)


def objects(items: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, str]]:
    """Make objects that are not empty."""
    return st.dictionaries(items, items, min_size=1, max_size=4)


# --- the decoder -----------------------------------------------------------------------------------------------------


def pairs_of(pieces: list[str]) -> dict[str, str]:
    """Read names and values in turn."""
    return {unquote(name): unquote(value) for name, value in zip(pieces[::2], pieces[1::2], strict=True)}


def named(pieces: list[str]) -> dict[str, str]:
    """Read ``name=value`` pieces."""
    return {unquote(piece.partition("=")[0]): unquote(piece.partition("=")[2]) for piece in pieces}


def values(pieces: list[str]) -> list[str]:
    """Read plain pieces."""
    return [unquote(piece) for piece in pieces]


# --- paths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("style", "prefix"), [("simple", ""), ("label", "."), ("matrix", ";p%20q=")])
@given(value=scalars)
@settings(max_examples=10)
def test_a_plain_value_of_a_path_is_read_back(style: str, prefix: str, value: str) -> None:
    text = path_text(a_parameter("path", style, explode=False), value)
    assert text.startswith(prefix)
    assert unquote(text.removeprefix(prefix)) == value
    assert "/" not in text


# --- queries ---------------------------------------------------------------------------------------------------------


PATHS = [
    ("simple", False, "", ",", ""),
    ("simple", True, "", ",", ""),
    ("label", False, ".", ",", "."),
    ("label", True, ".", ".", "."),
    ("matrix", False, ";p%20q=", ",", ";p%20q="),
    ("matrix", True, ";p%20q=", ";p%20q=", ";"),
]


@pytest.mark.parametrize(("style", "explode", "prefix", "separator", "of_object"), PATHS)
@given(items=lists(_STEP), members=objects(_STEP))
@settings(max_examples=10)
def test_lists_and_objects_in_a_path_are_read_back(
    style: str, explode: bool, prefix: str, separator: str, of_object: str, items: list[str], members: dict[str, str]
) -> None:
    described = a_parameter("path", style, explode=explode)
    assert values(path_text(described, items).removeprefix(prefix).split(separator)) == items
    between = of_object if explode and of_object else separator
    pieces = path_text(described, members).removeprefix(of_object).split(between)
    assert (named(pieces) if explode else pairs_of(pieces)) == members


def written(parameter: ApiParameter, value: Any) -> list[tuple[str, str]]:
    """Write a query and take it apart at its marks, as a server does before it decodes."""
    query = "&".join(f"{name}={text}" for name, text in query_pairs(parameter, value))
    assert "#" not in query
    assert " " not in query
    return [(name, text) for name, _, text in (piece.partition("=") for piece in query.split("&"))]


@pytest.mark.parametrize("reserved", [False, True])
@pytest.mark.parametrize("style", ["form", "spaceDelimited", "pipeDelimited"])
@given(value=lists(_STEP))
@settings(max_examples=10)
def test_an_exploded_list_in_a_query_is_read_back(style: str, reserved: bool, value: list[str]) -> None:
    pairs = written(a_parameter("query", style, explode=True, reserved=reserved), value)
    assert [(unquote(name), unquote(text)) for name, text in pairs] == [("p q", item) for item in value]


@pytest.mark.parametrize("reserved", [False, True])
@pytest.mark.parametrize(("style", "separator"), [("form", ","), ("spaceDelimited", "%20"), ("pipeDelimited", "%7C")])
@given(value=lists(_UNDELIMITED))
@settings(max_examples=10)
def test_a_joined_list_in_a_query_is_read_back(style: str, separator: str, reserved: bool, value: list[str]) -> None:
    ((name, text),) = written(a_parameter("query", style, explode=False, reserved=reserved), value)
    assert unquote(name) == "p q"
    assert values(text.split(separator)) == value


@given(value=objects(_STEP.filter(lambda text: "]" not in text)))
@settings(max_examples=10)
def test_an_object_in_a_query_is_read_back_in_each_style(value: dict[str, str]) -> None:
    ((_, joined),) = written(a_parameter("query", "form", explode=False), value)
    assert pairs_of(joined.split(",")) == value
    spread = written(a_parameter("query", "form", explode=True), value)
    assert {unquote(name): unquote(text) for name, text in spread} == value
    deep = written(a_parameter("query", "deepObject", explode=True), value)
    assert {unquote(name).removeprefix("p q[").removesuffix("]"): unquote(text) for name, text in deep} == value


@pytest.mark.parametrize(("style", "item"), [("spaceDelimited", "a b"), ("pipeDelimited", "a|b")])
def test_an_item_that_holds_the_delimiter_is_refused(style: str, item: str) -> None:
    with pytest.raises(ToolError, match="separates the items"):
        query_pairs(a_parameter("query", style, explode=False), [item, "c"])


@pytest.mark.parametrize(("value", "text"), [(True, "true"), (3.0, "3"), (0.5, "0.5"), (10**20, str(10**20)), ("", "")])
def test_plain_values_are_written_as_json_has_them(value: Any, text: str) -> None:
    assert query_pairs(a_parameter("query", "form", explode=True), value) == [("p%20q", text)]


@pytest.mark.parametrize(("value", "text"), [("a/b,c:d", "a/b,c:d"), ("a;b&c=d#e", "a%3Bb%26c%3Dd%23e")])
def test_reserved_characters_are_kept_where_they_end_nothing(value: str, text: str) -> None:
    assert query_pairs(a_parameter("query", "form", explode=True, reserved=True), value) == [("p%20q", text)]


def test_an_item_keeps_its_comma_to_itself_whatever_is_reserved() -> None:
    joined = query_pairs(a_parameter("query", "form", explode=False, reserved=True), ["a,b", "c"])
    assert joined == [("p%20q", "a%2Cb,c")]


@pytest.mark.parametrize("value", [None, []])
def test_null_and_empty_lists_are_not_written(value: Any) -> None:
    assert query_pairs(a_parameter("query", "form", explode=False), value) == []


@pytest.mark.parametrize("value", ["", None, [], {}])
def test_empty_values_cannot_be_part_of_a_path(value: Any) -> None:
    with pytest.raises(ToolError, match="part of the path"):
        path_text(a_parameter("path", "simple", explode=False), value)


# --- headers ---------------------------------------------------------------------------------------------------------


@given(items=lists(_HEADER), members=objects(_HEADER))
@settings(max_examples=10)
def test_lists_and_objects_in_a_header_are_read_back(items: list[str], members: dict[str, str]) -> None:
    assert header_text(a_parameter("header", "simple", explode=False), items).split(",") == items
    exploded = a_parameter("header", "simple", explode=True)
    assert header_text(exploded, items).split(",") == items
    assert dict(piece.split("=") for piece in header_text(exploded, members).split(",")) == members
