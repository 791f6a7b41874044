"""The longest walks through the host and the command line, each held to a budget of files by a profiler.

A walk that passes through many files is one that has to be read in many files. Counted are files whose functions are
entered; the module-level code of an import is not, since every run is preceded by one that loads the same modules.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from tests.architecture.test_call_path import PACKAGE, Profile, Step
from tests.cli.hosted import ALLOW_ALL, demo_entry, write_config
from tests.cli.support import run

MAX_HOST_FILES_OF_A_GATEWAY_CALL = 18
MAX_FILES_OF_A_COMMAND_LINE_CALL = 60
MAX_HOST_FILES_OF_CONFIG_EXPLAIN = 12


class Walk(Profile):
    """The functions of the package that are entered, in all threads; holds no frames, so that nothing lives longer."""

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Note a function that is entered or resumed."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            self.steps.append(Step(code.co_filename.removeprefix(PACKAGE), code.co_qualname))

    def files_in(self, folder: str) -> list[str]:
        """The files entered below a folder of the package."""
        return sorted(file for file in self.files if file.startswith(folder))

    def count(self, file: str, function: str) -> int:
        """How often a function was entered."""
        return self.steps.count(Step(file, function))


@contextmanager
def walking() -> Iterator[Walk]:
    """Profile this thread, and those that are started meanwhile."""
    walk = Walk()
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration of one server, and folders of the user's own that are empty."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path / "mcp.json", {"demo": demo_entry()})
    (tmp_path / "policy.toml").write_text(ALLOW_ALL, encoding="utf-8")
    return tmp_path


# --- the configuration is parsed once --------------------------------------------------------------------------------

READ = Step("host/config/documents.py", "read_text")
LOAD = Step("host/config/loading.py", "load_configuration")
COMMANDS = {
    "call": ("call", "-c", "mcp.json", "demo/add", "a=1"),
    "call-by-name": ("call", "demo", "add", "a=1"),
    "list": ("list", "tools", "-c", "mcp.json"),
    "read": ("read", "-c", "mcp.json", "demo/note://one"),
    "status": ("status", "-c", "mcp.json"),
    "status-check": ("status", "-c", "mcp.json", "--check"),
    "serve": ("serve", "-c", "mcp.json"),
    "doctor": ("doctor", "-c", "mcp.json"),
    "ask": ("ask", "-c", "mcp.json", "--no-input", "Hello"),
    "config-explain": ("config", "explain", "-c", "mcp.json"),
    "policy-check": ("policy", "check", "policy.toml", "-c", "mcp.json"),
    "install": ("install", "--into", "claude-code", "demo", "-c", "mcp.json", "--dry-run"),
    "trust-list": ("trust", "list"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_parses_each_configuration_file_once(
    name: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with walking() as walk:
        outcome = run(capsys, *COMMANDS[name])
    assert (walk.steps.count(LOAD), walk.steps.count(READ)) == (1, 1), f"{outcome}\n{walk.files}"
