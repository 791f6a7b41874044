"""Roots of a connected client: which folders they allow, and which they no longer allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from servers.tests.filesystem.support import REVISIONS, calls, refused
from tests.support import run_async
from trunkline import Client, ToolError
from trunkline_servers.filesystem import make_server


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (first / "x").write_text("first")
    (second / "x").write_text("second")
    return first, second


@REVISIONS
def test_roots_open_one_folder_and_close_the_configured_one(two: tuple[Path, Path], revision: str) -> None:
    first, second = two
    server = make_server([first])
    wanted = [("read_file", {"path": "x"}), ("list_allowed_directories", {})]
    assert calls(server, *wanted, revision=revision, roots=[second]) == ["second", f"Allowed directories:\n{second}"]
    said = refused(lambda: calls(server, ("read_file", {"path": str(first / "x")}), revision=revision, roots=[second]))
    assert "Access denied" in said


@REVISIONS
async def test_roots_that_change_close_what_they_had_opened(two: tuple[Path, Path], revision: str) -> None:
    first, second = two
    shared = [first]

    async with Client(make_server(), revision=revision, roots=lambda: shared) as client:
        await client.call_tool("read_file", {"path": str(first / "x")})
        shared[:] = [second]
        await client.notify_roots_changed()
        assert (await client.call_tool("read_file", {"path": "x"})).text == "second"
        with pytest.raises(ToolError, match="Access denied"):
            await client.call_tool("read_file", {"path": str(first / "x")})


@REVISIONS
def test_a_write_happens_once_although_the_client_is_asked(two: tuple[Path, Path], revision: str) -> None:
    first, _ = two
    wanted = [("move_file", {"source": "x", "destination": "y"})]
    assert calls(make_server(), *wanted, revision=revision, roots=[first]) == ["Successfully moved x to y"]
    assert (first / "y").read_text() == "first"


@REVISIONS
def test_without_folders_and_roots_the_fix_is_named(revision: str) -> None:
    said = refused(lambda: calls(make_server(), ("read_file", {"path": "x"}), revision=revision))
    assert "Start the server with the folders as arguments" in said


@REVISIONS
def test_files_of_roots_are_resources(two: tuple[Path, Path], revision: str) -> None:
    async def scene() -> str | None:
        async with Client(make_server(), revision=revision, roots=[two[0]]) as client:
            (contents,) = await client.read_resource((two[0] / "x").as_uri())
            return contents.text

    assert run_async(scene()) == "first"
