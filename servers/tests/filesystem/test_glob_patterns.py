"""Patterns of paths."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline import ToolError
from trunkline_servers.filesystem.folders import GlobPattern, exclude_filter


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        pytest.param("*.ts", "a.ts", True, id="star"),
        pytest.param("*.ts", "src/a.ts", False, id="star-stays-in-its-folder"),
        pytest.param("*", ".hidden", True, id="star-takes-dots"),
        pytest.param("**/*.ts", "a.ts", True, id="stars-take-no-folder"),
        pytest.param("**/*.ts", "a/b/c.ts", True, id="stars-take-folders"),
        pytest.param("src/**", "src/a/b", True, id="all-below"),
        pytest.param("src/**", "src", False, id="below-is-not-itself"),
        pytest.param("a/**/b", "a/b", True, id="stars-in-between"),
        pytest.param("a/**/b", "a/x/y/b", True, id="stars-in-between-folders"),
        pytest.param("a?c", "abc", True, id="one-character"),
        pytest.param("a?c", "ac", False, id="no-character"),
        pytest.param("[a-c]x", "bx", True, id="class"),
        pytest.param("[!a-c]x", "bx", False, id="other-class"),
        pytest.param("[]x]", "]", True, id="bracket-in-class"),
        pytest.param("[x", "[x", True, id="bracket-alone"),
        pytest.param("*.{ts,tsx}", "a.tsx", True, id="braces"),
        pytest.param("{a,{b,c}}.ts", "c.ts", True, id="nested-braces"),
        pytest.param("{a}", "{a}", True, id="braces-alone"),
        pytest.param("f{1..3}", "f2", True, id="numbers"),
        pytest.param("f{1..3}", "f4", False, id="other-number"),
        pytest.param("!*.ts", "a.js", True, id="negated"),
        pytest.param("!!*.ts", "a.js", False, id="negated-twice"),
        pytest.param("#x", "#x", False, id="comment"),
        pytest.param("\\#x", "#x", True, id="escaped"),
        pytest.param("a\\*b", "axb", False, id="escaped-star"),
        pytest.param("@(a|b).ts", "b.ts", True, id="either"),
        pytest.param("@(a).ts", "a.ts", True, id="either-of-one"),
        pytest.param("?(a)x", "x", True, id="perhaps"),
        pytest.param("a//b", "a/b", True, id="two-slashes"),
    ],
)
def test_a_pattern_fits_or_not(pattern: str, path: str, fits: bool) -> None:
    assert GlobPattern(pattern).matches(path) is fits


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("a" * 3000, id="long"),
        pytest.param("{a,b}" * 20, id="many-variants"),
        pytest.param("{0..99999}", id="many-numbers"),
        pytest.param("{1..400}" + "x" * 100, id="long-variants"),
        pytest.param("+(a|b)", id="repeated"),
        pytest.param("!(a)", id="all-but"),
    ],
)
def test_a_pattern_that_costs_or_says_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(ToolError):
        GlobPattern(pattern)


def test_many_stars_take_no_time() -> None:
    pattern, start = GlobPattern("*a" * 60 + "b"), time.process_time()
    assert not pattern.matches("a" * 250)
    assert time.process_time() - start < 1


def test_many_patterns_to_leave_out_are_bounded_braces_written_out() -> None:
    with pytest.raises(ToolError, match="braces written out"):
        exclude_filter(["{1..499}x"] * 20, anywhere=False)


@settings(max_examples=300, deadline=None)
@given(st.text("ab*.", max_size=7), st.text("ab.", max_size=7))
def test_stars_between_pieces_fit_what_they_fit_step_by_step(pattern: str, name: str) -> None:
    # A class of one letter is that letter, and is matched character by character.
    by_steps = pattern.replace("a", "[a]").replace("b", "[b]").replace(".", "[.]")
    assert GlobPattern(f"x{pattern}").matches(f"x{name}") == GlobPattern(f"[x]{by_steps}").matches(f"x{name}")
