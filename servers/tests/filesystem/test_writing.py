"""The tools that change files and folders."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from servers.tests.filesystem.support import WALKS, call, calls, refused
from tests.support import run_async
from trunkline import Client
from trunkline_servers.filesystem import make_server, path_resolver, writing
from trunkline_servers.filesystem.path_resolver import Location
from trunkline_servers.filesystem.worker import FileLimits

_NO_END = "\\ No newline at end of file"


def edit(folder: Path, *pairs: tuple[str, str], **arguments: Any) -> str:
    edits = [{"oldText": old, "newText": new} for old, new in pairs]
    return call(folder, "edit_file", path="x", edits=edits, **arguments)


# --- writing ---------------------------------------------------------------------------------------------------------


@WALKS
def test_a_new_file_is_written(tmp_path: Path, kernel_walk: bool) -> None:
    said = call(tmp_path, "write_file", kernel_walk=kernel_walk, path=str(tmp_path / "x"), content="grüße")
    assert said == f"Successfully wrote to {tmp_path / 'x'}"
    assert (tmp_path / "x").read_bytes() == "grüße".encode()
    assert os.listdir(tmp_path) == ["x"]


def test_an_old_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    os.chmod(tmp_path / "x", 0o751)
    call(tmp_path, "write_file", path="x", content="new")
    assert ((tmp_path / "x").read_text(), (tmp_path / "x").stat().st_mode & 0o777) == ("new", 0o751)


def test_a_new_file_has_the_mode_that_the_system_gives(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        call(tmp_path, "write_file", path="x", content="new")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


def test_content_beyond_the_limit_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    server = make_server([tmp_path], limits=FileLimits(file_bytes=10))
    assert "--max-file-bytes" in refused(lambda: calls(server, ("write_file", {"path": "x", "content": "x" * 11})))
    assert (tmp_path / "x").read_text() == "old"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "x").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    assert "No space left" in refused(lambda: call(tmp_path, "write_file", path="x", content="new"))
    assert ((tmp_path / "x").read_text(), os.listdir(tmp_path)) == ("old", ["x"])


def test_a_folder_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    assert "is a folder" in refused(lambda: call(tmp_path, "write_file", path="x", content=""))
    assert "is a folder" in refused(lambda: call(tmp_path, "write_file", path=".", content=""))
    assert os.listdir(tmp_path) == ["x"]


def test_a_missing_folder_is_named_with_the_fix(tmp_path: Path) -> None:
    words = refused(lambda: call(tmp_path, "write_file", path="none/x", content=""))
    assert words == f"There is no folder {tmp_path / 'none'} to write to. Make it with create_directory first."


@WALKS
def test_writing_through_a_link_that_stays_inside_writes_its_target(tmp_path: Path, kernel_walk: bool) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    call(tmp_path, "write_file", kernel_walk=kernel_walk, path="link", content="new")
    assert ((tmp_path / "link").is_symlink(), (tmp_path / "target").read_text()) == (True, "new")


def test_the_other_names_of_a_file_keep_what_they_had(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (tmp_path / "outside").write_text("old")
    os.link(tmp_path / "outside", allowed / "inside")
    call(allowed, "write_file", path="inside", content="new")
    assert ((tmp_path / "outside").read_text(), (allowed / "inside").read_text()) == ("old", "new")


def test_a_read_only_server_has_no_tool_that_changes_something(tmp_path: Path) -> None:
    names = set(make_server([tmp_path], read_only=True).registry.tools)
    assert not names & {"write_file", "edit_file", "create_directory", "move_file"}
    assert len(names) == 10


# --- editing ---------------------------------------------------------------------------------------------------------


def test_an_edit_gives_a_fenced_diff(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a\nb\nc\n")
    path = tmp_path / "x"
    assert edit(tmp_path, ("b", "B")) == (
        f"```diff\nIndex: {path}\n{'=' * 67}\n--- {path}\toriginal\n+++ {path}\tmodified\n"
        "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n```\n\n"
    )
    assert path.read_text() == "a\nB\nc\n"


def test_edits_apply_one_after_the_other_each_to_the_first_place(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a a\n")
    edit(tmp_path, ("a", "b"), ("b", "c"))
    assert (tmp_path / "x").read_text() == "c a\n"


def test_lines_with_other_white_space_are_found_and_keep_their_indentation(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("def f():\n    if a:\n        return 1\n")
    edit(tmp_path, ("if a:\n    return 1", "if b:\n      return 2"))
    assert (tmp_path / "x").read_text() == "def f():\n    if b:\n      return 2\n"


def test_one_edit_that_fits_nowhere_undoes_all(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a\n")
    assert "not in the file" in refused(lambda: edit(tmp_path, ("a", "b"), ("zzz", "")))
    assert (tmp_path / "x").read_text() == "a\n"


def test_line_ends_of_windows_are_kept(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\r\nb\r\n")
    edit(tmp_path, ("a\nb", "a\nc"))
    assert (tmp_path / "x").read_bytes() == b"a\r\nc\r\n"


def test_a_file_that_is_not_text_is_not_edited(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\xff")
    assert "is not UTF-8 text" in refused(lambda: edit(tmp_path, ("a", "b")))
    assert (tmp_path / "x").read_bytes() == b"a\xff"


def test_a_fence_is_longer_than_those_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("```\n")
    assert edit(tmp_path, ("```", "````")).startswith("`````diff\n")


def test_a_file_that_changes_while_it_is_edited_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = writing._write_new

    def meanwhile(*given: Any) -> None:
        write(*given)
        (tmp_path / "x").write_text("somebody else's")

    (tmp_path / "x").write_text("a\n")
    monkeypatch.setattr(writing, "_write_new", meanwhile)
    assert "changed by another program" in refused(lambda: edit(tmp_path, ("a", "b")))
    assert ((tmp_path / "x").read_text(), os.listdir(tmp_path)) == ("somebody else's", ["x"])


@pytest.mark.parametrize(
    ("before", "old", "new", "hunks"),
    [
        pytest.param(
            "a",
            "a",
            "b",
            ["@@ -1,1 +1,1 @@", "-a", _NO_END, "+b", _NO_END],
            id="no-end",
        ),
        pytest.param("", "", "a\n", ["@@ -0,0 +1,1 @@", "+a"], id="from-nothing"),
        pytest.param("a\n", "a\n", "", ["@@ -1,1 +0,0 @@", "-a"], id="to-nothing"),
        pytest.param("a\n", "a", "a", [], id="no-change"),
    ],
)
def test_the_ends_of_a_diff_are_exact(tmp_path: Path, before: str, old: str, new: str, hunks: list[str]) -> None:
    (tmp_path / "x").write_text(before)
    assert edit(tmp_path, (old, new), dryRun=True).split("\n")[5:-3] == hunks
    assert (tmp_path / "x").read_text() == before


def test_changes_far_apart_are_shown_apart(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("".join(f"{number}\n" for number in range(30)))
    found = edit(tmp_path, ("3\n", "three\n"), ("26\n", "twenty-six\n"), dryRun=True).split("\n")
    assert [line for line in found if line.startswith("@@")] == ["@@ -1,8 +1,8 @@", "@@ -23,8 +23,8 @@"]


def test_a_file_of_equal_lines_takes_no_time(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(" a\n" * 100_000)
    assert "not in the file" in refused(lambda: edit(tmp_path, ("a\n" * 50_000 + "b", "c")))
    edit(tmp_path, *[(f" a\n{' a' * each}", "b") for each in (0, 0)])


# --- folders ---------------------------------------------------------------------------------------------------------


@WALKS
def test_folders_are_made_with_those_they_lie_in(tmp_path: Path, kernel_walk: bool) -> None:
    call(tmp_path, "create_directory", kernel_walk=kernel_walk, path=str(tmp_path / "a/b/c"))
    call(tmp_path, "create_directory", kernel_walk=kernel_walk, path="a/b/c")
    assert (tmp_path / "a/b/c").is_dir()


def test_a_folder_over_a_file_is_refused_and_leaves_no_half_made_path(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    assert "is not a folder" in refused(lambda: call(tmp_path, "create_directory", path="x"))
    assert refused(lambda: call(tmp_path, "create_directory", path=f"a/b/{'x' * 300}"))
    assert os.listdir(tmp_path) == ["x"]


# --- moving ----------------------------------------------------------------------------------------------------------

MOVES = pytest.mark.parametrize("renames", [pytest.param(True, id="kernel"), pytest.param(False, id="steps")])


@pytest.fixture
def no_rename(renames: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*given: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(writing, "rename_new", path_resolver.rename_new if renames else missing)


def move(folder: Path, source: str, destination: str) -> str:
    return call(folder, "move_file", source=source, destination=destination)


@MOVES
@pytest.mark.usefixtures("no_rename")
def test_files_and_folders_and_links_are_moved(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("x")
    (tmp_path / "link").symlink_to("nowhere")
    assert move(tmp_path, "file", "folder/file") == "Successfully moved file to folder/file"
    move(tmp_path, "folder", "moved")
    move(tmp_path, "link", "moved/link")
    assert sorted(os.listdir(tmp_path / "moved")) == ["file", "link", "x"]
    assert os.listdir(tmp_path) == ["moved"]


@MOVES
@pytest.mark.usefixtures("no_rename")
@pytest.mark.parametrize(
    ("source", "destination"), [("file", "taken"), ("file", "link"), ("folder", "taken"), ("folder", "empty")]
)
def test_a_move_never_replaces(tmp_path: Path, source: str, destination: str) -> None:
    (tmp_path / "file").write_text("file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "taken").write_text("taken")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    before = sorted(os.listdir(tmp_path))
    assert "exists already" in refused(lambda: move(tmp_path, source, destination))
    assert (sorted(os.listdir(tmp_path)), (tmp_path / "taken").read_text()) == (before, "taken")


@pytest.mark.parametrize(
    ("source", "destination", "words"),
    [
        pytest.param("missing", "x", "There is no file or folder missing.", id="missing"),
        pytest.param("folder", "none/x", "There is no folder ", id="missing-folder"),
        pytest.param(".", "x", "An allowed folder itself is not moved", id="the-folder-itself"),
        pytest.param("folder", ".", "An allowed folder itself is not moved", id="over-the-folder-itself"),
    ],
)
def test_an_impossible_move_reports_the_reason(tmp_path: Path, source: str, destination: str, words: str) -> None:
    (tmp_path / "folder").mkdir()
    assert refused(lambda: move(tmp_path, source, destination)).startswith(words)
    assert os.listdir(tmp_path) == ["folder"]


# --- several at once -------------------------------------------------------------------------------------------------


def together(folder: Path, wanted: list[tuple[str, dict[str, Any]]], **options: Any) -> list[bool]:
    """Call tools all at once; gives which of them failed."""

    async def scene() -> list[bool]:
        async with Client(make_server([folder], **options)) as client:
            results = await asyncio.gather(*(client.call_tool(*each, raise_on_error=False) for each in wanted))
            return [each.is_error for each in results]

    return run_async(scene())


def test_edits_of_one_file_that_come_at_once_are_all_made(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("".join(f"old {number}\n" for number in range(12)))
    edits = [[{"oldText": f"old {number}\n", "newText": f"new {number}\n"}] for number in range(12)]
    failed = together(tmp_path, [("edit_file", {"path": "x", "edits": each}) for each in edits])
    assert failed == [False] * 12
    assert (tmp_path / "x").read_text() == "".join(f"new {number}\n" for number in range(12))


def test_a_folder_created_meanwhile_by_another_process_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def late(*given: Any, **more: Any) -> None:
        mkdir(*given, **more)
        mkdir(*given, **more)

    monkeypatch.setattr(os, "mkdir", late)
    call(tmp_path, "create_directory", path="a/b")
    assert (tmp_path / "a" / "b").is_dir()


def test_many_edits_take_no_longer_than_allowed(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a\n")
    wanted = ("edit_file", {"path": "x", "edits": [{"oldText": "a", "newText": "a"}] * 100})
    server = make_server([tmp_path], limits=FileLimits(seconds=1e-9))
    assert "Make fewer edits" in refused(lambda: calls(server, wanted))


def test_a_folder_is_not_moved_into_itself(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert "into itself" in refused(lambda: call(tmp_path, "move_file", source="a", destination="a/b/c"))
    assert os.listdir(tmp_path / "a" / "b") == []


def test_permissions_of_the_old_group_do_not_apply_to_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    (tmp_path / "x").write_text("old")
    os.chmod(tmp_path / "x", 0o664)
    here = (tmp_path / "x").stat()
    status = Location.status

    def of_another_group(place: Location) -> os.stat_result | None:
        found = status(place)
        return None if found is None else os.stat_result((*found[:5], here.st_gid + 1, *found[6:]))

    monkeypatch.setattr(Location, "status", of_another_group)
    monkeypatch.setattr(os, "fchown", refuse)
    call(tmp_path, "write_file", path="x", content="new")
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o644
