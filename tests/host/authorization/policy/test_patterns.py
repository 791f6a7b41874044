"""Globs and JSON pointers: what they fit and lead to, and what is none."""

from __future__ import annotations

import re
from fnmatch import translate
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.host.authorization.policy.patterns import (
    MISSING,
    UNJUDGED,
    InvalidGlob,
    InvalidPointer,
    any_glob,
    compile_glob,
    is_glob,
    parse_pointer,
    resolve_pointer,
)

#: Of each pattern: what it fits, and what it does not.
GLOBS: dict[str, tuple[list[str], list[str]]] = {
    "read_file": (["read_file"], ["read_files", "Read_file"]),
    "*": (["", "any\nthing/at.all"], []),
    "read_*": (["read_"], ["bread_x"]),
    "*_file": (["read_file"], ["read_files"]),
    "a*b*c": (["aXbYc"], ["aXbYd"]),
    "a*bc*c": ([], ["abc"]),
    "a*a": ([], ["a"]),
    "?": (["x", "\n"], [""]),
    "?_*": (["x_y"], []),
    "*_?": (["y_x"], []),
    "[ab]c": (["bc"], ["cc"]),
    "[a-c]x": (["bx"], []),
    "[!a-c]x": (["dx"], ["bx"]),
    "[]]": (["]"], []),
    "[!]]": ([], ["]"]),
    "[a-]": (["-"], []),
    "[*]": (["*"], ["x"]),
    "[[]x": (["[x"], []),
    "a.c": ([], ["abc"]),
    "\\d": (["\\d"], []),
    "{a,b}": ([], ["a"]),
}


def test_a_glob_fits_what_it_says() -> None:
    missed = [(glob, text) for glob, (fits, _) in GLOBS.items() for text in fits if not compile_glob(glob)(text)]
    wrong = [(glob, text) for glob, (_, others) in GLOBS.items() for text in others if compile_glob(glob)(text)]
    assert (missed, wrong) == ([], [])


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a**b", r"a single '\*' matches any text already"),
        ("[abc", "write '\\[\\[\\]' for a bracket"),
        ("[^a]", "write '\\[!'"),
        ("[z-a]", "empty range z-a"),
        ("x[", "without its"),
    ],
)
def test_what_is_no_glob_is_refused_with_the_fix(pattern: str, said: str) -> None:
    with pytest.raises(InvalidGlob, match=said):
        compile_glob(pattern)


@pytest.mark.parametrize(("text", "is_one"), [("a", False), ("a*", True), ("a?", True), ("[a]", True), ("a]", False)])
def test_a_pattern_is_distinguished_from_a_name(text: str, is_one: bool) -> None:
    assert is_glob(text) is is_one


@pytest.mark.parametrize("patterns", [("a", "b", "c"), ("a*",), ("a", "b*", "c"), ("a*", "b*", "c")])
def test_one_of_several_is_enough(patterns: tuple[str, ...]) -> None:
    fits = any_glob(patterns)
    assert [bool(fits(pattern.rstrip("*"))) for pattern in patterns] == [True] * len(patterns)
    assert not fits("d")


@given(st.text("ab*?", max_size=8).filter(lambda text: "**" not in text), st.text("abc", max_size=10))
def test_a_glob_fits_what_the_shell_s_does(pattern: str, text: str) -> None:
    assert bool(compile_glob(pattern)(text)) is (re.match(translate(pattern), text) is not None)


@pytest.mark.parametrize("pattern", ["a*a*a*a*a*a*a*a*b", "*a?a?a?a*b", "*a*a*a*[!x]*a*a*b"])
def test_no_pattern_takes_more_than_the_length_of_the_text(pattern: str) -> None:
    fits, text = compile_glob(pattern), "a" * 50_000
    # In quadratic time it would take minutes.
    assert not fits(text)


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
