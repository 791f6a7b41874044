"""Outputs in files: private, bounded, expiring, named by ids that are never paths."""

from __future__ import annotations

import builtins
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from trunkline.host.chat import spill as module
from trunkline.host.chat.spill import Spill, SpillError, sweep

NAME = "0123456789abcdef"


def spill(tmp_path: Path, **more: Any) -> Spill:
    """Make one."""
    return Spill(tmp_path / "spill", NAME, **more)


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    output = spill(tmp_path).keep("text")
    assert stat.S_IMODE(os.stat(output.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(Path(output.path).parent).st_mode) == 0o700


def test_outputs_are_paged_in_characters(tmp_path: Path) -> None:
    kept = spill(tmp_path)
    name = kept.keep("äöü" * 10).id
    assert kept.read(name, offset=3, limit=3) == f"[{name}, characters 3 to 6 of 30; continue with offset 6]\näöü"
    assert kept.read(name, offset=27, limit=100).startswith(f"[{name}, characters 27 to 30 of 30; the end]")
    with pytest.raises(SpillError, match="nothing at offset 30"):
        kept.read(name, offset=30)


@pytest.mark.parametrize("name", ["out-2", "../audit", "out-1.txt", "/etc/passwd", ""])
def test_an_id_is_looked_up_and_never_a_path(tmp_path: Path, name: str) -> None:
    kept = spill(tmp_path)
    kept.keep("text")
    with pytest.raises(SpillError, match=r"There is no output .*the latest are out-1"):
        kept.read(name)


@pytest.mark.parametrize("name", ["..", "a/b", "", "UPPER123"])
def test_a_conversation_has_a_name_that_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a conversation"):
        Spill(tmp_path, name)


def test_a_search_gives_offsets_that_can_be_read_from(tmp_path: Path) -> None:
    kept = spill(tmp_path)
    name = kept.keep("ä one\nä two\nä three\n").id
    found = kept.search(name, "t[a-z]+")
    assert found == f"[{name}: 2 matches; each with its offset for read_output]\n8: ä two\n14: ä three"
    assert kept.read(name, offset=8, limit=3).endswith("\ntwo")


def test_a_search_shows_so_many_and_says_that_there_are_more(tmp_path: Path) -> None:
    kept = spill(tmp_path)
    found = kept.search(kept.keep("x\n" * 1000).id, "x")
    assert "the first 50 of more" in found
    assert len(found.splitlines()) == 51


def test_a_long_line_is_shown_around_the_match(tmp_path: Path) -> None:
    kept = spill(tmp_path)
    found = kept.search(kept.keep("a" * 100_000 + "needle" + "b" * 100_000).id, "needle")
    assert len(found) < 500
    assert "aneedleb" in found


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "Not a valid RE2 pattern"),
        ("", "1 to 1000"),
        ("a" * 1001, "1 to 1000"),
        ("(?=a)", "Not a valid RE2 pattern"),
    ],
)
def test_what_is_no_pattern_is_said(tmp_path: Path, pattern: str, problem: str) -> None:
    kept = spill(tmp_path)
    name = kept.keep("aaa").id
    with pytest.raises(SpillError, match=problem):
        kept.search(name, pattern)


def test_a_pattern_that_others_take_for_ever_over_is_quick(tmp_path: Path) -> None:
    kept = spill(tmp_path)
    assert "nothing matches" in kept.search(kept.keep("a" * 50_000 + "!").id, "(a+)+$")


def test_without_an_engine_a_pattern_is_looked_for_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "re2", None)
    kept = spill(tmp_path)
    name = kept.keep("a.c abc a.c").id
    assert kept.search(name, "a.c").splitlines()[1:] == ["0: a.c abc a.c", "8: a.c abc a.c"]
    assert "no regular expression engine" in kept.search(name, "a.c")


def test_what_is_no_text_cannot_be_read(tmp_path: Path) -> None:
    kept = spill(tmp_path)
    with pytest.raises(SpillError, match="is not text"):
        kept.read(kept.keep(b"\x00", suffix="png").id)


def test_an_output_beyond_the_limit_is_cut_and_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 200)
    kept = spill(tmp_path)
    output = kept.keep("x" * 1000)
    assert output.bytes == 200
    assert kept.read(output.id).endswith("larger than the limit]")


@pytest.mark.parametrize(("bound", "value"), [("MOST_OUTPUTS", 2), ("MOST_TOTAL_BYTES", 25)])
def test_the_oldest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int) -> None:
    monkeypatch.setattr(module, bound, value)
    kept = spill(tmp_path)
    first, second, third = (kept.keep("0123456789") for _ in range(3))
    assert (len(kept), Path(first.path).exists()) == (2, False)
    assert kept.read(third.id)
    assert kept.read(second.id)


def test_outputs_expire_and_say_so(tmp_path: Path) -> None:
    now = 1_000_000.0
    kept = spill(tmp_path, seconds=10.0, clock=lambda: now)
    old = kept.keep("old")
    os.utime(old.path, (now - 60, now - 60))
    now += 3600.0
    kept.keep("new")
    with pytest.raises(SpillError, match="has expired"):
        kept.read(old.id)


def test_sweeping_touches_outputs_alone_and_follows_no_link(tmp_path: Path) -> None:
    folder = tmp_path / "spill"
    kept = spill(tmp_path)
    kept.keep("old")
    (folder / NAME / "notes.txt").write_text("mine")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "out-1.txt").write_text("theirs")
    (folder / "abcdefabcdef").symlink_to(outside)
    assert sweep(folder, older_than=10e12) == 1
    assert (folder / NAME / "notes.txt").exists()
    assert (outside / "out-1.txt").exists()
    assert sweep(tmp_path / "none", older_than=10e12) == 0


def test_outputs_of_an_earlier_run_are_found_and_numbers_go_on(tmp_path: Path) -> None:
    spill(tmp_path).keep("first")
    again = spill(tmp_path)
    assert again.read("out-1").endswith("first")
    assert again.keep("second").id == "out-2"


def test_clearing_deletes_all(tmp_path: Path) -> None:
    kept = spill(tmp_path)
    output = kept.keep("text")
    kept.clear()
    assert not Path(output.path).parent.exists()
    assert kept.keep("more").id == "out-2"


def test_half_an_output_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.open

    class Full:
        def __init__(self, file: Any) -> None:
            self._file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *exc: object) -> None:
            self._file.close()

        def write(self, data: bytes) -> None:
            self._file.write(data[:1])
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "open", lambda *given: Full(real(*given)), raising=False)
    kept = spill(tmp_path)
    with pytest.raises(OSError, match="No space"):
        kept.keep("text")
    assert list((tmp_path / "spill" / NAME).iterdir()) == []
