"""Differences between definitions, as a person reads them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.host.integrity.pins.definitions import compare_definitions, is_renamed

TOOL: dict[str, Any] = {
    "name": "read",
    "description": "Read a text file.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def lines(before: Any, after: Any) -> list[str]:
    return [str(change) for change in compare_definitions(before, after)]


def test_words_that_came_and_went_are_marked() -> None:
    assert lines({"description": "Read a text file."}, {"description": "Read or write a file."}) == [
        "~ /description: Read {+or write +}a[- text-] file."
    ]


def test_members_that_came_and_went_stand_under_their_pointers() -> None:
    before = {"annotations": {"readOnlyHint": True}}
    after = {"annotations": {}, "inputSchema": {"properties": {"a/b": {"type": "string"}}}}
    assert lines(before, after) == [
        "- /annotations/readOnlyHint: true",
        '+ /inputSchema: {"properties":{"a/b":{"type":"string"}}}',
    ]


def test_a_schema_is_followed_to_the_place_that_differs() -> None:
    changed = {**TOOL, "inputSchema": {"type": "object", "properties": {"path": {"type": "integer"}, "a/b": {}}}}
    assert lines(TOOL, changed) == [
        "+ /inputSchema/properties/a~1b: {}",
        "~ /inputSchema/properties/path/type: [-string-]{+integer+}",
        '- /inputSchema/required: ["path"]',
    ]


def test_arguments_of_a_prompt_are_matched_by_name() -> None:
    before = {"arguments": [{"name": "a"}, {"name": "b", "required": True}]}
    assert lines(before, {"arguments": [{"name": "b"}]}) == [
        '- /arguments/a: {"name":"a"}',
        "- /arguments/b/required: true",
    ]


def test_another_order_is_a_difference() -> None:
    assert lines([{"name": "a"}, {"name": "b"}], [{"name": "b"}, {"name": "a"}]) == [
        "~ (all of it): the order is now b, a"
    ]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, '~ /enum: [-["a"]-] {+["a","b"]+}'),
        ({"default": True}, {"default": 1}, "~ /default: [-true-] {+1+}"),
        ({"default": "1"}, {"default": 1}, '~ /default: [-"1"-] {+1+}'),
        ("one", "two", "~ (all of it): [-one-]{+two+}"),
    ],
    ids=["list", "boolean and number", "text and number", "the whole"],
)
def test_other_values_are_shown_before_and_after(before: Any, after: Any, text: str) -> None:
    assert lines(before, after) == [text]


def test_what_cannot_be_seen_is_written_out() -> None:
    after = {"description": "Read.\u200b\x1b[2J\U000e0041"}
    assert lines({"description": "Read."}, after) == [
        "~ /description: [-Read.-]{+Read.\\u200b\\x1b[2J\\U000e0041+}",
    ]


def test_of_a_long_text_only_the_neighbourhood_is_shown() -> None:
    words = [f"w{number}" for number in range(100)]
    changed = [*words[:50], "NEW", *words[50:]]
    (text,) = lines(" ".join(words), " ".join(changed))
    assert text == "~ (all of it): ...w46 w47 w48 w49 {+NEW +}w50 w51 w52 w53 ..."


def test_two_very_long_texts_are_distinguished_in_bounded_work() -> None:
    (change,) = compare_definitions("a " * 40_000, "b " * 40_000)
    assert (change.text[:6], "characters)" in change.text, len(change.text) < 10_000) == ("[-a a ", True, True)


def test_differences_beyond_a_number_are_counted_only() -> None:
    changes = compare_definitions({}, {str(number): 0 for number in range(1000)})
    assert (len(changes), "not shown" in changes[-1].text) == (201, True)


@given(json_values, json_values)
def test_two_values_differ_exactly_if_a_change_is_reported(one: Any, other: Any) -> None:
    told = compare_definitions(one, other)
    assert bool(told) is (repr(_sorted(one)) != repr(_sorted(other)))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("other", "renamed"),
    [
        ({**TOOL, "name": "view"}, True),
        ({**TOOL, "name": "view", "title": "View"}, True),
        (TOOL, False),
        ({**TOOL, "name": "view", "description": "View."}, False),
        ({"name": "view"}, False),
        ("view", False),
    ],
    ids=["name", "title too", "same", "description", "nothing said", "no object"],
)
def test_a_definition_that_says_the_same_under_another_name_was_renamed(other: Any, renamed: bool) -> None:
    assert is_renamed(TOOL, other) is renamed
