"""How the program looks at a terminal and elsewhere: groups, colour, tables, spinners, announcements."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import trunkline
from tests.cli.support import DEMO, command, in_a_terminal

ESCAPE = "\x1b["
COLOR = re.compile(r"\x1b\[[0-9;]*m")
GROUPS = ("Build:", "Call:", "Host:", "Security:", "Record:")

SLOW = """
import time
time.sleep(1)
from trunkline import Server
server = Server("slow")

@server.tool
def work(city: str) -> str:
    time.sleep(1)
    return "done"
"""
LONG = """
from trunkline import Server
server = Server("long")

@server.tool
def speak(text: str) -> str:
    \"\"\"Repeat a text to whom it may concern, which takes a sentence that no narrow terminal has room for.\"\"\"
    return text
"""
MODULES = """
import sys
from trunkline.cli.main import main
code = main(sys.argv[1:])
print("RICH" if "rich" in sys.modules else "NO RICH")
sys.exit(code)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "long.py").write_text(LONG)
    return tmp_path


# --- help ------------------------------------------------------------------------------------------------------------


def test_the_help_has_the_commands_in_groups() -> None:
    lines = command("--help").out.splitlines()
    assert [line for line in lines if line in GROUPS] == list(GROUPS)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_summary_is_cut(columns: int) -> None:
    for arguments in (("--help",), ("grants", "--help"), ("pins", "--help")):
        page = COLOR.sub("", in_a_terminal(*arguments, columns=columns).out).partition("Examples:")[0]
        assert not re.search(r"\.\.\.$", page.replace("[ARGS]...", ""), re.M)
        assert max(map(len, page.splitlines())) <= columns


# --- colour ----------------------------------------------------------------------------------------------------------


def test_a_terminal_gets_colour() -> None:
    assert ESCAPE in in_a_terminal("--help").out


@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (("--no-color", "--help"), {}),
        (("--help", "--no-color"), {}),
        (("list", "--help", "--no-color"), {}),
        (("--help",), {"NO_COLOR": "1"}),
        (("--help",), {"NO_COLOR": "1", "FORCE_COLOR": "1"}),
        (("--help",), {"TERM": "dumb"}),
        (("list", "tools", DEMO, "--no-color"), {}),
        (("list", "tools", DEMO), {"TERM": "dumb"}),
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
    assert ESCAPE not in command("--help", env={"FORCE_COLOR": "1"}, stdin="").err
    assert ESCAPE not in command("--help", env={"FORCE_COLOR": "0"}).out


@pytest.mark.parametrize("env", [{}, {"FORCE_COLOR": "1"}])
def test_rich_is_not_loaded_without_a_terminal(env: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MODULES, "list", "tools", DEMO],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": str(Path(trunkline.__file__).parents[1]), **env},
        check=True,
    )
    assert done.stdout.endswith("NO RICH\n")


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_long_cell_is_wrapped_in_its_column(folder: Path) -> None:
    pytest.importorskip("rich")
    shown = COLOR.sub("", in_a_terminal("list", "tools", "long.py", columns=60, cwd=folder).out)
    table = shown[shown.index("TOOL") :]
    assert max(map(len, table.splitlines())) <= 60
    assert "..." not in table
    assert "has room for." in " ".join(table.split())


def test_without_rich_the_table_is_plain_text(folder: Path) -> None:
    (folder / "stub" / "rich").mkdir(parents=True)
    (folder / "stub" / "rich" / "__init__.py").write_text("raise ImportError('not installed')")
    path = os.pathsep.join([str(folder / "stub"), str(Path(trunkline.__file__).parents[1])])
    shown = in_a_terminal("list", "tools", DEMO, env={"PYTHONPATH": path}, cwd=folder)
    assert shown.code == 0
    assert re.search(r"^add +a \[b\] +Add two numbers\.$", shown.out, re.M)


def test_names_of_a_server_cannot_control_the_terminal() -> None:
    shown = COLOR.sub("", in_a_terminal("list", "tools", DEMO, columns=200).out)
    assert "\x1b[2J" not in shown
    assert "\\x1b[2Jscreen" in shown


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
