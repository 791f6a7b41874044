"""One entry of a YAML mapping is changed, and no other line."""

from __future__ import annotations

from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from trunkline.devtools.client_configs.yaml_edit import parse_entries, put_entry, remove_entry, render_entry
from trunkline.errors import ConfigError

ENTRY: dict[str, Any] = {"enabled": True, "cmd": "x", "args": ["-a"], "envs": {"K": "v"}, "timeout": 300}
MADE = '  a:\n    enabled: true\n    cmd: x\n    args:\n    - "-a"\n    envs:\n      K: v\n    timeout: 300\n'

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.text("abc-_", min_size=1, max_size=4).filter(lambda name: not name.startswith("-"))
ENTRIES = st.fixed_dictionaries(
    {"cmd": TEXTS, "args": st.lists(TEXTS, max_size=3)},
    optional={"envs": st.dictionaries(TEXTS, TEXTS, max_size=2), "enabled": st.booleans(), "timeout": st.integers()},
)
#: What a file has before and after its mapping, and entries as Goose and its users write them.
AROUND = (
    "# my settings\n",
    "\n",
    "GOOSE_PROVIDER: openai # why\n",
    'GOOSE_MODEL: "gpt: 5"\n',
    "slash_commands:\n- command: a\n  path: /x\n- command: b\n",
    "notes: |\n  extensions:\n    a: not this\n\n  more\n",
    "nested:\n    list: [1, 2]\n    map: {a: b}\n",
)
ENTRIES_THERE = (
    "  developer:\n    bundled: true\n    display_name: null\n    enabled: true\n    type: builtin\n",
    "  # about memory\n  memory:\n    enabled: false\n    available_tools: []\n\n",
    "  fetch:\n    args:\n    - -y\n    - 'it''s'\n    cmd: npx\n    envs: {}\n    description: don't panic # really\n",
    "  notes:\n    text: >-\n      a folded\n      text\n    env_keys:\n      - A\n",
    "  inline: {enabled: true, type: builtin}\n",
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("", f"extensions:\n{MADE}", id="nothing"),
        pytest.param("A: 1", f"A: 1\nextensions:\n{MADE}", id="no newline at the end"),
        pytest.param("extensions: {}\nA: 1\n", f"extensions:\n{MADE}A: 1\n", id="empty in braces"),
        pytest.param("extensions:\nA: 1\n", f"extensions:\n{MADE}A: 1\n", id="empty"),
        pytest.param(
            "extensions:\n  # first\n  b:\n    cmd: y # why\n\n# about A\nA: 1\n",
            f"extensions:\n  # first\n  b:\n    cmd: y # why\n{MADE}\n# about A\nA: 1\n",
            id="comments",
        ),
        pytest.param(
            "extensions:\n  a:\n    cmd: old\n\n  # about b\n  b:\n    cmd: y\n",
            f"extensions:\n{MADE}\n  # about b\n  b:\n    cmd: y\n",
            id="replaced where it stands",
        ),
    ],
)
def test_only_the_entry_is_changed(before: str, after: str) -> None:
    assert put_entry(before, "extensions", "a", ENTRY) == after


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("extensions: {b: {cmd: x}}\n", id="flow"),
        pytest.param("extensions: &x\n  b:\n    cmd: x\n", id="anchor"),
        pytest.param("extensions:\n- a\n", id="list"),
        pytest.param("extensions:\n  b: &x\n    cmd: y\n", id="anchor at an entry"),
        pytest.param("extensions:\n  b:\n    <<: *base\n", id="alias"),
        pytest.param("extensions:\n\tb:\n", id="tab"),
        pytest.param("extensions:\n  b:\n    cmd: x\n b:\n", id="indentation"),
        pytest.param('A: "x\nextensions:\n"\n', id="string of several lines"),
        pytest.param('A:\n  b: "x\nextensions:\n  "\n', id="string of several lines inside"),
        pytest.param("A: 1\n---\nextensions:\n", id="two documents"),
        pytest.param("{extensions: {}}\n", id="flow document"),
        pytest.param("extensions:\n  b:\n    cmd: 1\nextensions:\n", id="twice"),
        pytest.param("extensions:\n  b:\n    x: 1\n  b:\n    x: 2\n", id="entry twice"),
        pytest.param("extensions:\n  b:\n    x: [1,\n  2]\n", id="open bracket"),
        pytest.param("A: 1\u2028extensions:\n", id="other line break"),
        pytest.param("just text\n", id="no mapping"),
    ],
)
def test_a_style_that_is_not_understood_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError):
        put_entry(text, "extensions", "a", ENTRY)


@given(
    st.permutations(AROUND),
    st.integers(0, len(AROUND)),
    st.permutations(ENTRIES_THERE),
    st.integers(0, len(ENTRIES_THERE)),
    NAMES,
    ENTRIES,
    st.booleans(),
)
def test_any_file_keeps_its_lines_and_gains_one_entry(
    around: list[str], split: int, there: list[str], count: int, name: str, entry: dict[str, Any], windows: bool
) -> None:
    text = "".join([*around[:split], "extensions:\n" if count else "", *there[:count], *around[split:]])
    if windows:
        text = text.replace("\n", "\r\n")
    changed = put_entry(text, "extensions", name, entry)
    before = yaml.safe_load(text) or {}
    assert yaml.safe_load(changed) == {**before, "extensions": {**(before.get("extensions") or {}), name: entry}}
    kept = changed.splitlines()
    assert [line for line in text.splitlines() if line in kept] == text.splitlines()
    if count:
        assert remove_entry(changed, "extensions", name) == text
    assert yaml.safe_load(put_entry(changed, "extensions", name, ENTRY))["extensions"][name] == ENTRY


@pytest.mark.parametrize("entry", ENTRIES_THERE)
def test_plain_values_are_read_as_yaml_reads_them(entry: str) -> None:
    text = f"extensions:\n{entry}"
    (name, found), *_ = parse_entries(text, "extensions").items()
    assert found in (yaml.safe_load(text)["extensions"][name], {})


def test_the_last_entry_leaves_an_empty_mapping() -> None:
    assert remove_entry(f"extensions:\n{MADE}A: 1\n", "extensions", "a") == "extensions: {}\nA: 1\n"


def test_what_is_not_there_is_not_removed() -> None:
    assert remove_entry("A: 1\n", "extensions", "a") == "A: 1\n"


def test_an_entry_can_be_printed_alone() -> None:
    assert render_entry("extensions", "a", ENTRY) == f"extensions:\n{MADE}"


SCRIPTS = """\
extensions:
  first:
    script: |
      echo first
  - LAST
"""


def scripts(last: str) -> str:
    return SCRIPTS.replace("  - LAST\n", last)


LAST = """\
  last:
    script: |
      echo last

      # the end
"""


def test_a_line_of_a_block_that_looks_like_a_comment_is_removed_with_its_entry() -> None:
    """It would otherwise become a part of the block above it."""
    assert remove_entry(scripts(LAST), "extensions", "last") == scripts("")


def test_a_line_of_a_block_that_looks_like_a_comment_stays_in_its_entry() -> None:
    added = put_entry(scripts(LAST), "extensions", "new", {"cmd": "x"})
    assert added == scripts(LAST) + "  new:\n    cmd: x\n"


def test_a_comment_behind_a_block_stays_where_it_is() -> None:
    text = scripts(LAST) + "  # about the next\n  next:\n    cmd: y\n"
    assert remove_entry(text, "extensions", "last") == scripts("") + "  # about the next\n  next:\n    cmd: y\n"


def test_a_comment_that_mentions_a_block_begins_none() -> None:
    text = "extensions:\n  # such as: |\n  one:\n    cmd: x\n"
    assert remove_entry(text, "extensions", "one") == "extensions: {}\n  # such as: |\n"
