"""One table of a TOML text is changed, and nothing else of it."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.devtools.client_configs.toml_edit import put_table, remove_table, render_table
from trunkline.errors import ConfigError

ENTRY: dict[str, Any] = {"command": "x", "args": ["-a"], "env": {"K": "v"}}
MADE = '[mcp_servers.a]\ncommand = "x"\nargs = ["-a"]\n\n[mcp_servers.a.env]\nK = "v"\n'
PATH = ("mcp_servers",)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.text("abc-_.# '\"é", min_size=1, max_size=4)
ENTRIES = st.fixed_dictionaries(
    {"command": TEXTS, "args": st.lists(TEXTS, max_size=3)},
    optional={"env": st.dictionaries(TEXTS, TEXTS, max_size=2), "enabled": st.booleans(), "timeout": st.integers()},
)
#: Pieces of a file that its owner wrote; each stands alone, and none defines what another does.
PIECES = (
    "# a comment\n",
    "\n",
    '\n# about the model\n[model]\nname = "m" # why\n',
    "[[projects]]\npath = '[mcp_servers.a]'\n\n",
    '[notes]\ntext = """\n[mcp_servers.a]\ncommand = "not this"\n"""\nlist = [\n  "[x]", # one\n  [1, 2],\n]\n',
    '[mcp_servers.other]\ncommand = "o"\n# below it\n',
    '\n[mcp_servers."with space".env]\nA = "1"\n',
    "[notes2]\nraw = '''\n[mcp_servers.b]\n'''\n",
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("", MADE, id="nothing"),
        pytest.param('model = "m"', f'model = "m"\n\n{MADE}', id="no newline at the end"),
        pytest.param(
            '[mcp_servers.a]\ncommand = "old" # mine\n\n# about b\n[mcp_servers.b]\nurl = "u"\n',
            f'{MADE}\n# about b\n[mcp_servers.b]\nurl = "u"\n',
            id="replaced where it stands",
        ),
        pytest.param(
            '[mcp_servers.a.env]\nX = "1"\n[z]\ny = 1\n[mcp_servers.a]\ncommand = "old"\n',
            f"{MADE}[z]\ny = 1\n",
            id="in two places",
        ),
        pytest.param(
            "a = 1\r\n[b]\r\nc = 2\r\n", "a = 1\r\n[b]\r\nc = 2\r\n\r\n" + MADE.replace("\n", "\r\n"), id="crlf"
        ),
    ],
)
def test_only_the_table_is_changed(before: str, after: str) -> None:
    assert put_table(before, PATH, "a", ENTRY) == after


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a = ", id="not TOML"),
        pytest.param('mcp_servers = {b = {command = "x"}}\n', id="inline"),
        pytest.param('[mcp_servers]\na = {command = "x"}\n', id="entry inline"),
        pytest.param('mcp_servers.a.command = "x"\n', id="dotted"),
        pytest.param("[[mcp_servers.a]]\n", id="array"),
        pytest.param("mcp_servers = 1\n", id="no table"),
    ],
)
def test_what_cannot_be_changed_safely_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError):
        put_table(text, PATH, "a", ENTRY)


@given(st.permutations(PIECES), st.integers(0, len(PIECES)), NAMES, ENTRIES, st.booleans())
def test_any_file_keeps_its_text_and_gains_one_table(
    pieces: list[str], count: int, name: str, entry: dict[str, Any], windows: bool
) -> None:
    text = "".join(pieces[:count])
    if windows:
        text = text.replace("\n", "\r\n")
    changed = put_table(text, PATH, name, entry)
    before = tomllib.loads(text)
    assert tomllib.loads(changed) == {**before, "mcp_servers": {**before.get("mcp_servers", {}), name: entry}}
    if name not in before.get("mcp_servers", {}):
        assert changed.startswith(text)
        assert remove_table(changed, PATH, name) == text
    other = put_table(changed, PATH, name, ENTRY)
    assert tomllib.loads(other)["mcp_servers"][name] == ENTRY


def test_a_comment_after_the_last_value_stays() -> None:
    text = put_table("", PATH, "a", ENTRY) + "# a later remark\n"
    assert remove_table(text, PATH, "a") == "# a later remark\n"


def test_what_is_not_there_is_not_removed() -> None:
    assert remove_table("a = 1\n", PATH, "a") == "a = 1\n"


def test_a_table_can_be_printed_alone() -> None:
    assert render_table(PATH, "a", ENTRY) == MADE
