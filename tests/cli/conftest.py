"""Fixtures of the tests of the command line: the command in this process, and servers over HTTP that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.chatting import NO_MODELS, Place
from tests.cli.hosted import Desk
from tests.cli.support import DEMO, GUARDED, Cli, Served, serving
from trunkline.devtools.client_configs.files import Machine


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command, run in this process; without the line about a slow server, which a busy machine may cause."""
    monkeypatch.setattr("trunkline.cli.ui.terminal._SECONDS_BEFORE_LINE", 3600.0)
    return Cli(capsys, monkeypatch)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Desk:
    """A folder that the test is in, and a home."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    return Desk(folder, tmp_path / "home", cli)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, demo: Served) -> Place:
    """A folder to chat or ask in, with the server that tests share."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    for name in NO_MODELS:
        monkeypatch.setenv(name, "")
    return Place(tmp_path, {"url": demo.url})


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine whose applications have files of their own, with a project that the test is in."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "own"))
    monkeypatch.delenv("PYTHONPATH", raising=False)  # it would be part of each entry
    found = Machine(system="linux", home=home, environ={}, project=project)
    monkeypatch.setattr("trunkline.devtools.client_configs.files.current_machine", lambda: found)
    return found


@pytest.fixture(scope="session")
def demo() -> Iterator[Served]:
    """The demo server over HTTP; no test may change what it offers."""
    with serving(DEMO, "--http", "0") as served:
        yield served


@pytest.fixture(scope="session")
def guarded() -> Iterator[Served]:
    """A server that asks who calls, with an address of its own."""
    with serving(GUARDED, "--http") as served:
        yield served
