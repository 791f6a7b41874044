"""What a sandbox kept from a server, found in what the server wrote."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from trunkline.host.sandbox.file_access import SYSTEM, FileAccess
from trunkline.host.sandbox.hints import SandboxHints


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "home"
    for name in ("with space/a b.txt", "data.csv", "work/tool/__main__.py", "work/notes.txt", "readable/x"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("x")
    return made


def hints_of(home: Path, cwd: str = "work") -> SandboxHints:
    private = str(home / "state" / "private")
    return SandboxHints(
        made="bwrap",
        access=FileAccess(system=SYSTEM, read=(str(home / "readable"),), write=(private,)),
        cwd=str(home / cwd),
        home=str(home),
        private_home=f"{private}/home",
        passed=frozenset({"HOME", "PATH"}),
        withheld=frozenset({"API_KEY", "DEBUG", "_", "USER"}),
    )


@pytest.mark.parametrize(
    ("output", "hidden"),
    [
        ("PermissionError: [Errno 13] Permission denied: '{home}/with space/a b.txt'", "with space/a b.txt"),
        ("node: cannot open {home}/data.csv: no such file", "data.csv"),
        ("cannot open {home}/with space/a b.txt: no such file", "with space/a b.txt"),
        ("can't open '{home}/with space/a b.txt': no such file", "with space/a b.txt"),
        ("open {home}/with space/absent failed", None),
        ("there is no file ./notes.txt", "work"),
        ("/usr/bin/python: No module named tool.__main__", "work"),
        ("ModuleNotFoundError: No module named 'tool'", "work"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'notes.txt'", "work"),
        ("no such file: '{home}/state/private/home/data.csv'", "data.csv"),
        ("~/data.csv does not exist", "data.csv"),
        ("Error: '{home}/absent' in '/usr/bin' at '.' of '{home}/readable/x'", None),
    ],
)
def test_the_path_that_a_server_missed_is_found_in_its_output(home: Path, output: str, hidden: str | None) -> None:
    paths = hints_of(home).hidden_paths(output.format(home=home))
    assert paths == (() if hidden is None else (str(home / hidden),))


def test_a_relative_path_out_of_a_visible_folder_is_named_itself(home: Path) -> None:
    output = "FileNotFoundError: [Errno 2] No such file or directory: '../data.csv'"
    assert hints_of(home, "readable").hidden_paths(output) == (str(home / "data.csv"),)


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("KeyError: 'API_KEY'", 'does not pass on API_KEY (allow it with "env": ["API_KEY"] in its "sandbox")'),
        (
            "set $USER, or API_KEY",
            'does not pass on USER, API_KEY (allow it with "env": ["USER", "API_KEY"] in its "sandbox")',
        ),
        ("DEBUG: started by a user, 'PATH' is '_'", ""),
    ],
)
def test_a_variable_that_the_host_has_and_the_server_misses_is_named(home: Path, output: str, found: str) -> None:
    assert hints_of(home).find(output) == found


def test_a_long_output_is_examined_in_bounded_time(home: Path) -> None:
    began = time.process_time()
    hints_of(home).find("/a 'b' " * 100_000)
    assert time.process_time() - began < 0.5
