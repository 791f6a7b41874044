"""Untrusted text and JSON: printable, on one line, truncated, and of the expected type."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline_servers.untrusted import as_dict, as_list, as_text, one_line, printable, truncate

# --- lines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("as it is", "as it is", id="plain"),
        pytest.param(" two\nlines\tand  more ", "two lines and more", id="lines"),
        pytest.param("a\x1b[31mb\u202ec\x00", "a [31mb c", id="unseen"),
        pytest.param("", "", id="empty"),
        pytest.param("12345678901", "1234567890…", id="long"),
    ],
)
def test_a_text_is_returned_on_one_line(text: str, line: str) -> None:
    assert one_line(text, 10 if text.isdigit() else 400) == line


def test_a_text_that_fits_is_not_cut() -> None:
    assert (truncate("12345", 5), truncate("123456", 5)) == ("12345", "12345…")


@pytest.mark.parametrize(
    ("text", "python", "json"),
    [
        ("plain ü", "plain ü", "plain ü"),
        ("a\nb", "a\\nb", "a\\nb"),
        ("a\x1bb", "a\\x1bb", "a\\u001bb"),
        ("a\u202eb", "a\\u202eb", "a\\u202eb"),
        ("a\ud800", "a\\ud800", "a\\ud800"),
        ("⠀", "\\u2800", "\\u2800"),
    ],
    ids=ascii,
)
def test_unprintable_and_invisible_characters_are_escaped(text: str, python: str, json: str) -> None:
    escaped = printable(text, replacement="python", invisible="⠀"), printable(text, invisible="⠀")
    assert escaped == (python, json)


def test_unprintable_characters_are_removed_or_become_spaces() -> None:
    text = "a\x00b\nc\td"
    shown = printable(text, replacement="nothing", keep="\n\t"), printable(text, replacement="space")
    assert shown == ("ab\nc\td", "a b c d")


def test_a_printable_text_is_cut_by_its_own_length() -> None:
    assert (printable("\n" * 3, 3), printable("x" * 4, 3)) == ("\\n" * 3, "xxx…")


# --- members ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 1, "x", [1], {"a": 1}], ids=repr)
def test_a_member_of_another_type_counts_as_absent(value: Any) -> None:
    taken = (as_dict(value) or as_list(value) or as_text(value)) or None
    assert taken == (None if value in (None, 1) else value)


def test_a_text_of_others_is_cut() -> None:
    assert (len(as_text("x" * 1000)), as_text("abc", 2)) == (500, "ab")
