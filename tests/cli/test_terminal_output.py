"""How the program looks at a terminal and elsewhere: groups, colour, tables, spinners, announcements."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.support import DEMO, Cli, command, in_a_terminal

ESCAPE = "\x1b["
COLOR = re.compile(r"\x1b\[[0-9;]*m")
GROUPS = ("Build:", "Call:", "Host:", "Security:", "Record:")

SLOW = """
import time
time.sleep(0.8)
from trunkline import Server
server = Server("slow")

@server.tool
def work(city: str) -> str:
    time.sleep(0.8)
    return "done"
"""
LONG_TEXT = "Repeat a text to whom it may concern, which takes a sentence that no narrow terminal has room for at all."
LONG = f"""
from trunkline import Server
server = Server("long")

@server.tool
def speak(text: str) -> str:
    \"\"\"{LONG_TEXT}\"\"\"
    return text
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "long.py").write_text(LONG)
    return tmp_path


# --- help ------------------------------------------------------------------------------------------------------------


def test_the_help_has_the_commands_in_groups(cli: Cli) -> None:
    lines = cli("--help").out.splitlines()
    assert [line for line in lines if line in GROUPS] == list(GROUPS)


@pytest.mark.parametrize(
    ("words", "columns"), [(("--help",), 60), (("grants", "--help"), 80), (("pins", "--help"), 120)]
)
def test_no_summary_is_cut(words: tuple[str, ...], columns: int) -> None:
    page = COLOR.sub("", in_a_terminal(*words, columns=columns).out).partition("Examples:")[0]
    assert not re.search(r"\.\.\.$", page.replace("[ARGS]...", ""), re.M)
    assert max(map(len, page.splitlines())) <= columns


# --- colour ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (("--help", "--no-color"), {}),
        (("--help",), {"NO_COLOR": "1", "FORCE_COLOR": "1"}),
        (("--help",), {"TERM": "dumb"}),
        (("list", "tools", DEMO, "--no-color"), {}),
        (("status", "-c", "none.json"), {"NO_COLOR": "1"}),
    ],
)
def test_colour_can_be_declined(arguments: tuple[str, ...], env: dict[str, str]) -> None:
    shown = in_a_terminal(*arguments, env=env).out
    assert not COLOR.search(shown)
    assert shown


def test_no_colour_goes_into_a_pipe_unless_it_is_forced() -> None:
    assert ESCAPE not in command("--help").out
    assert ESCAPE in command("--help", env={"FORCE_COLOR": "1"}).out
    assert ESCAPE not in command("--help", env={"FORCE_COLOR": "0"}).out


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_a_list_has_one_line_a_tool_that_ends_after_a_word(folder: Path, columns: int) -> None:
    shown = COLOR.sub("", in_a_terminal("list", "tools", "long.py", columns=columns, cwd=folder).out)
    *_, line = shown.splitlines()
    described = line.partition("text")[2].strip()
    assert (line.startswith("speak"), len(line) <= columns) == (True, True)
    assert f"{LONG_TEXT} ".startswith(described.removesuffix("...")), line
    assert described.endswith(" ...")


def test_a_long_list_is_wrapped(folder: Path) -> None:
    shown = COLOR.sub("", in_a_terminal("list", "tools", "long.py", "-l", columns=60, cwd=folder).out)
    lines = shown[shown.index("speak") :].splitlines()
    assert (lines[0], max(map(len, lines)) < 60) == ("speak(text: string)", True)
    assert {line[:4] for line in lines[1:]} == {"    "}
    assert " ".join(shown.split()).endswith(LONG_TEXT)


def test_a_result_that_is_json_is_indented_and_coloured_in_a_terminal() -> None:
    shown = in_a_terminal("call", DEMO, "show", 'value={"a": [1, "x\\u202e"], "b": null}').out
    assert "\x1b[36m" in shown
    assert COLOR.sub("", shown).endswith('{\n  "a": [\n    1,\n    "x\\u202e"\n  ],\n  "b": null\n}\n')


# --- progress --------------------------------------------------------------------------------------------------------


def test_what_takes_long_is_shown_and_removed(folder: Path) -> None:
    shown = in_a_terminal("call", "slow.py", "work", "city=x", cwd=folder)
    assert shown.code == 0
    assert "connecting to slow.py" in shown.out
    assert "calling work" in shown.out
    assert shown.out.endswith("\r\x1b[Kdone\n")


def test_nothing_moves_where_there_is_no_terminal(folder: Path) -> None:
    assert command("call", "slow.py", "work", "city=x", cwd=folder) == (0, "done\n", "")


def test_a_dumb_terminal_gets_no_spinner(folder: Path) -> None:
    assert in_a_terminal("call", "slow.py", "work", "city=x", env={"TERM": "dumb"}, cwd=folder).out == "done\n"


# --- run -------------------------------------------------------------------------------------------------------------


def test_a_server_run_at_a_terminal_says_what_it_serves_and_how_to_call_it(folder: Path) -> None:
    shown = in_a_terminal("run", "slow.py", cwd=folder, interrupt_at="--http 8000")
    assert "importing slow.py" in shown.out
    assert "slow serves 1 tool over stdio" in shown.out
    assert "trunkline call slow.py work city=..." in shown.out
    assert "Traceback" not in shown.out


def test_the_same_over_http(folder: Path) -> None:
    shown = in_a_terminal("run", "long.py", "--port", "0", cwd=folder, interrupt_at="to call it:")
    url = re.search(r"is served at (\S+);", shown.out)
    assert url is not None
    assert "it offers 1 tool over HTTP" in shown.out
    assert f"trunkline call {url.group(1)} speak text=..." in " ".join(shown.out.split())
    assert shown.code == 0


def test_a_client_that_starts_a_server_hears_nothing_of_it() -> None:
    assert command("run", DEMO).err == ""
