"""The command: its options, and its error messages."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from servers.tests.commands import started
from servers.tests.filesystem.support import REVISIONS, calls, refused
from trunkline import Client, ConfigError
from trunkline_servers.filesystem import make_server
from trunkline_servers.filesystem.worker import FileLimits


def test_the_folders_and_limits_of_the_command_line_hold(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("12345")
    server = started("filesystem", "--read-only", "--max-file-bytes", "4", str(tmp_path)).server
    assert "write_file" not in server.registry.tools
    assert "larger than 4 B" in refused(lambda: calls(server, ("read_file", {"path": "x"})))


def test_without_folders_it_waits_for_roots(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("text")
    assert calls(started("filesystem").server, ("read_file", {"path": "x"}), roots=[tmp_path]) == ["text"]


def test_folders_that_are_not_there_are_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"None of these is a folder that can be opened: .*none"):
        started("filesystem", str(tmp_path / "none"))


@pytest.mark.parametrize("limits", [{"seconds": math.nan}, {"entries": 0}], ids=["no-number", "nothing"])
def test_limits_that_leave_nothing_to_do_are_a_configuration_error(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be more than zero"):
        FileLimits(**limits)


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (first / "x").write_text("first")
    (second / "x").write_text("second")
    return first, second


@REVISIONS
def test_a_write_happens_once_although_the_client_is_asked(two: tuple[Path, Path], revision: str) -> None:
    first, _ = two
    wanted = [("move_file", {"source": "x", "destination": "y"})]
    assert calls(make_server(), *wanted, revision=revision, roots=[first]) == ["Successfully moved x to y"]
    assert (first / "y").read_text() == "first"


@REVISIONS
async def test_files_of_roots_are_resources(two: tuple[Path, Path], revision: str) -> None:
    async with Client(make_server(), revision=revision, roots=[two[0]]) as client:
        (contents,) = await client.read_resource((two[0] / "x").as_uri())
        assert contents.text == "first"
