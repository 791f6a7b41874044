"""JSON pointers: where they lead, and what they lead to in place of a value."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from trunkline.host.authorization.policy.patterns import (
    MISSING,
    UNJUDGED,
    InvalidPointer,
    parse_pointer,
    resolve_pointer,
)

DOCUMENT: dict[str, Any] = {
    "": "empty",
    "a": {"b": [10, {"c": "deep"}], "0": "key"},
    "m~n": "tilde",
    "x/y": "slash",
    "text": '{"b": 1}',
    "none": None,
    "empty": [],
    "rows": [{"id": 1}, {"id": 2}, {}],
    "-": "minus",
}


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("", [DOCUMENT]),
        ("/", ["empty"]),
        ("/a/b/0", [10]),
        ("/a/b/1/c", ["deep"]),
        ("/a/0", ["key"]),
        ("/m~0n", ["tilde"]),
        ("/x~1y", ["slash"]),
        ("/-", ["minus"]),
        ("/nothing", [MISSING]),
        ("/nothing/below", [MISSING]),
        ("/nothing/*", [MISSING]),
        ("/a/b/7", [MISSING]),
        ("/a/b/-", [UNJUDGED]),
        ("/a/b/01", [UNJUDGED]),
        ("/a/b/\u0661", [UNJUDGED]),
        ("/a/b/" + "9" * 30, [UNJUDGED]),
        ("/text/b", [UNJUDGED]),
        ("/text/*", [UNJUDGED]),
        ("/none/b", [UNJUDGED]),
        ("/rows/*/id", [1, 2, MISSING]),
        ("/empty/*", [MISSING]),
        ("/a/b/*/c", [UNJUDGED, "deep"]),
        ("/a/*", [[10, {"c": "deep"}], "key"]),
    ],
)
def test_a_pointer_leads_where_it_says(pointer: str, found: list[Any]) -> None:
    assert resolve_pointer(DOCUMENT, parse_pointer(pointer)) == found


def test_any_mapping_is_an_object() -> None:
    frozen = MappingProxyType({"a": MappingProxyType({"b": 1})})
    assert resolve_pointer(frozen, ("a", "b")) == [1]
    assert resolve_pointer(frozen, ("a", "*")) == [1]


def test_more_elements_than_are_examined_cannot_be_judged() -> None:
    assert resolve_pointer({"a": list(range(10_000))}, ("a", "*")) == list(range(10_000))
    assert resolve_pointer({"a": list(range(10_001))}, ("a", "*")) == [UNJUDGED]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("path", "write '/path'"),
        ("/a~2", "a '~' by itself"),
        ("/a~", "write '~0'"),
        ("/a" * 33, "the limit is 32"),
    ],
)
def test_what_is_no_pointer_is_refused_with_the_fix(text: str, said: str) -> None:
    with pytest.raises(InvalidPointer, match=said):
        parse_pointer(text)
