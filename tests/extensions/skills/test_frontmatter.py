"""The frontmatter of a ``SKILL.md``: where it is, which fields it must have, and when two are the same."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.extensions.skills.frontmatter import (
    FrontmatterError,
    allowed_tools,
    check_fields,
    differing_fields,
    is_skill_name,
    read_frontmatter,
    write_frontmatter,
)


@pytest.mark.parametrize(
    "text",
    [
        "---\nname: a\n---\nBody\n---\n",
        "---\r\nname: a\r\n---\r\n",
        "\ufeff---\nname: a\n---",
        "--- \nname: a\n---\t\n",
    ],
    ids=["with a body", "other line ends", "with a byte order mark", "blanks after the markers"],
)
def test_frontmatter_stands_between_two_markers(text: str) -> None:
    assert read_frontmatter(text.encode()) == {"name": "a"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"# Title\n", "make its first line ---"),
        (b"", "make its first line ---"),
        (b"---\nname: a\n", "put a line --- after it"),
        (b"---\n" + b"a\n" * 8_000_000, "put a line --- after it"),
        (b"---\nname: 0x" + b"f" * 5000 + b"\n---\n", "is too large"),
        (b"---\n---\n", "holds no fields"),
        (b"---\n- a\n---\n", "holds no fields"),
        (b"---\nname: \xff\n---\n", "save it as UTF-8"),
        (b"---\nname: a\nname: b\n---\n", "line 3: the key 'name' occurs twice"),
    ],
)
def test_a_file_without_readable_frontmatter_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(FrontmatterError, match=re.escape(message)):
        read_frontmatter(content)


@pytest.mark.parametrize("name", ["a", "pdf-processing", "a1-b2-c3", "0", "x" * 64])
def test_names_of_skills(name: str) -> None:
    assert is_skill_name(name)


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a--b", "x" * 65, "a b", "ä", "a/b", "a\n", None, 1])
def test_what_is_no_name_of_a_skill(name: object) -> None:
    assert not is_skill_name(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": None}, "its name is missing"),
        ({"name": "PDF"}, "its name is 'PDF'"),
        ({"name": "x" * 70}, "its name is 70 characters long"),
        ({"name": "other"}, "its name is 'other' and its folder is 'pdf'; give both the same name"),
        ({"description": None}, "its description is missing"),
        ({"description": "  "}, "its description is '  '"),
        ({"description": ["x"]}, "its description is ['x']"),
        ({"description": "x" * 1025}, "its description is 1025 characters long"),
        ({"compatibility": ""}, "its compatibility is ''"),
        ({"compatibility": "x" * 501}, "its compatibility is 501 characters long"),
        ({"license": 1.0}, "its license is not a text"),
        ({"metadata": ["x"]}, "its metadata is not a set"),
    ],
)
def test_a_field_that_breaks_a_rule_is_named_with_the_fix(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FrontmatterError, match=re.escape(message)):
        check_fields({"name": "pdf", "description": "x", **change}, "pdf")


def test_other_fields_pass() -> None:
    fields = {"name": "pdf", "description": "x" * 1024, "license": "MIT", "compatibility": "any", "metadata": {"v": 1}}
    check_fields({**fields, "hooks": {"anything": ["at", "all"]}}, "pdf")


@pytest.mark.parametrize(
    ("one", "other", "fields"),
    [
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": {"b": [1, "x", None]}}, {"a": {"b": [1, "x", None]}}, []),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": "1"}, {"a": 1}, ["a"]),
        ({"a": None}, {}, ["a"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a"]),
        ({"a": {"b": 1}}, {"a": {"c": 1}}, ["a"]),
        ({"a": 1, "b": 2}, {"b": 3, "c": 4}, ["a", "b", "c"]),
    ],
)
def test_two_frontmatters_are_compared_field_by_field(one: Any, other: Any, fields: list[str]) -> None:
    assert differing_fields(one, other) == fields


@pytest.mark.parametrize(
    ("given_tools", "tools"),
    [
        ("Read Grep", ["Read", "Grep"]),
        ("Read, Bash(git add:*) Bash(a, b)", ["Read", "Bash(git add:*)", "Bash(a, b)"]),
        (["Read", 1], ["Read", "1"]),
        (["Read"] * 1000, ["Read"] * 256),
        ("  ", []),
        ({"Read": True}, []),
        (None, []),
    ],
)
def test_requested_tools_are_listed(given_tools: object, tools: list[str]) -> None:
    assert allowed_tools({"allowed-tools": given_tools}) == tools


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-9, 9) | st.lists(st.booleans()) | st.none(),
        min_size=1,
        max_size=5,
    )
)
def test_written_frontmatter_reads_back_as_it_was(fields: dict[str, Any]) -> None:
    assert read_frontmatter(write_frontmatter(fields) + "\nBody\n") == fields
