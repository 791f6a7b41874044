"""Globs: what they fit, what is none, and that no pattern makes them slow."""

from __future__ import annotations

import re
import time
from fnmatch import translate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.host.authorization.policy.patterns import InvalidGlob, any_glob, compile_glob, is_glob


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("read_file", "read_file", True),
        ("read_file", "read_files", False),
        ("read_file", "Read_file", False),
        ("*", "", True),
        ("*", "any\nthing/at.all", True),
        ("read_*", "read_", True),
        ("read_*", "bread_x", False),
        ("*_file", "read_file", True),
        ("*_file", "read_files", False),
        ("a*b*c", "aXbYc", True),
        ("a*b*c", "aXbYd", False),
        ("a*bc*c", "abc", False),
        ("a*a", "a", False),
        ("?", "x", True),
        ("?", "", False),
        ("?", "\n", True),
        ("?_*", "x_y", True),
        ("*_?", "y_x", True),
        ("[ab]c", "bc", True),
        ("[ab]c", "cc", False),
        ("[a-c]x", "bx", True),
        ("[!a-c]x", "bx", False),
        ("[!a-c]x", "dx", True),
        ("[]]", "]", True),
        ("[!]]", "]", False),
        ("[a-]", "-", True),
        ("[*]", "*", True),
        ("[*]", "x", False),
        ("[[]x", "[x", True),
        ("a.c", "abc", False),
        ("\\d", "\\d", True),
        ("{a,b}", "a", False),
    ],
)
def test_a_glob_fits_what_it_says(pattern: str, text: str, fits: bool) -> None:
    assert bool(compile_glob(pattern)(text)) is fits


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


@pytest.mark.parametrize(
    ("patterns", "text", "fits"),
    [
        (("a", "b"), "b", True),
        (("a", "b"), "c", False),
        (("a*",), "ab", True),
        (("a", "b*"), "a", True),
        (("a", "b*"), "bc", True),
        (("a", "b*"), "c", False),
        (("a*", "b*"), "bc", True),
    ],
)
def test_one_of_several_is_enough(patterns: tuple[str, ...], text: str, fits: bool) -> None:
    assert bool(any_glob(patterns)(text)) is fits


@given(st.text("ab*?", max_size=8).filter(lambda text: "**" not in text), st.text("abc", max_size=10))
def test_a_glob_fits_what_the_shell_s_does(pattern: str, text: str) -> None:
    assert bool(compile_glob(pattern)(text)) is (re.match(translate(pattern), text) is not None)


@pytest.mark.parametrize("pattern", ["a*a*a*a*a*a*a*a*b", "*a?a?a?a*b", "*a*a*a*[!x]*a*a*b"])
def test_no_pattern_takes_more_than_the_length_of_the_text(pattern: str) -> None:
    fits, text = compile_glob(pattern), "a" * 50_000
    started = time.process_time()
    assert not fits(text)
    assert time.process_time() - started < 1.0
