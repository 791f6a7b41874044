"""A folder of skills on disk: what is found in it, what is left out, and that manifests agree with files."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.extensions.skills.made import add_skill
from trunkline.errors import ConfigError
from trunkline.extensions.skills.folder import MAX_FILES, SkillFolder, SkillManifest, digest_of


def files(folder: SkillFolder) -> dict[str, list[str]]:
    return {path: list(manifest.files) for path, manifest in folder.manifests.items()}


def test_each_folder_with_a_main_file_is_a_skill_and_its_path_is_its_place(tmp_path: Path) -> None:
    add_skill(tmp_path, "pdf", references__FORMS_md="forms", z_txt="")
    add_skill(tmp_path, "acme/billing/refunds")
    (tmp_path / "README.md").write_text("not a skill")
    assert files(SkillFolder(tmp_path)) == {
        "acme/billing/refunds": ["SKILL.md"],
        "pdf": ["SKILL.md", "references/FORMS.md", "z.txt"],
    }


def test_a_prefix_is_put_before_each_path(tmp_path: Path) -> None:
    add_skill(tmp_path, "pdf")
    assert list(SkillFolder(tmp_path, prefix="my team/docs").manifests) == ["my%20team/docs/pdf"]


@pytest.mark.parametrize("prefix", ["/a", "a/", "a//b", "..", "a/./b"])
def test_a_prefix_that_is_no_path_is_an_error(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(ConfigError, match="names separated by"):
        SkillFolder(tmp_path, prefix=prefix)


def test_without_a_yaml_parser_a_folder_is_an_error_at_once_even_if_it_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml.cyaml", None)
    with pytest.raises(ConfigError, match=r"needs PyYAML; run: pip install 'trunkline\[skills\]'"):
        SkillFolder(tmp_path)


def test_a_folder_may_itself_be_a_skill(tmp_path: Path) -> None:
    add_skill(tmp_path, "pdf", a_txt="x")
    assert files(SkillFolder(tmp_path / "pdf")) == {"pdf": ["SKILL.md", "a.txt"]}


def test_a_nested_skill_is_a_skill_and_its_files_belong_to_the_outer_one_too(tmp_path: Path) -> None:
    add_skill(tmp_path, "outer")
    add_skill(tmp_path, "outer/inner", a_txt="x")
    assert files(SkillFolder(tmp_path)) == {
        "outer": ["SKILL.md", "inner/SKILL.md", "inner/a.txt"],
        "outer/inner": ["SKILL.md", "a.txt"],
    }


def test_hidden_files_and_what_python_leaves_behind_are_not_part_of_a_skill(tmp_path: Path) -> None:
    home = add_skill(tmp_path, "pdf", a_txt="x")
    (home / ".env").write_text("SECRET=1")
    for name in (".git", "__pycache__"):
        (home / name).mkdir()
        (home / name / "x").write_text("x")
    assert files(SkillFolder(tmp_path)) == {"pdf": ["SKILL.md", "a.txt"]}


def test_names_that_are_no_uris_are_encoded(tmp_path: Path) -> None:
    home = add_skill(tmp_path, "pdf")
    for name in ["a b.md", "ü.md", "icon@2x.png", "50%.md", "a#b?.md"]:
        (home / name).write_text("x")
    with open(os.fsencode(home) + b"/\xff.md", "wb") as file:
        file.write(b"x")
    assert set(files(SkillFolder(tmp_path))["pdf"]) == {
        "SKILL.md",
        "a%20b.md",
        "%C3%BC.md",
        "icon@2x.png",
        "50%25.md",
        "a%23b%3F.md",
        "%FF.md",
    }


def test_links_that_leave_the_folder_are_refused_and_others_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    home = add_skill(tmp_path / "skills", "pdf", a_txt="x")
    (home / "inside.txt").symlink_to("a.txt")
    (home / "secret.txt").symlink_to(outside / "secret.txt")
    (home / "folder").symlink_to(outside)
    (home / "gone.txt").symlink_to("nowhere")
    (home / "loop").symlink_to(".")
    folder = SkillFolder(tmp_path / "skills")
    assert files(folder) == {"pdf": ["SKILL.md", "a.txt", "inside.txt"]}
    assert folder.read("pdf", "inside.txt") == b"x"
    assert "pdf/secret.txt is a link that leads out of the folder; copy its target" in caplog.text
    assert "pdf/gone.txt cannot be read" in caplog.text


def test_a_file_that_became_a_link_to_the_outside_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    home = add_skill(tmp_path / "skills", "pdf", a_txt="x", sub__b_txt="x")
    folder = SkillFolder(tmp_path / "skills")
    (home / "a.txt").unlink()
    (home / "a.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(FileNotFoundError):
        folder.read("pdf", "a.txt")
    (tmp_path / "b.txt").write_text("x")
    (home / "sub" / "b.txt").unlink()
    (home / "sub").rmdir()
    (home / "sub").symlink_to(tmp_path)
    with pytest.raises(FileNotFoundError):
        folder.read("pdf", "sub/b.txt")


def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    home = add_skill(tmp_path, "pdf")
    os.mkfifo(home / "pipe")
    assert files(SkillFolder(tmp_path)) == {"pdf": ["SKILL.md"]}


def test_a_file_that_became_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    home = add_skill(tmp_path, "pdf", a_txt="x")
    folder = SkillFolder(tmp_path)
    (home / "a.txt").unlink()
    os.mkfifo(home / "a.txt")
    with pytest.raises(FileNotFoundError):
        folder.read("pdf", "a.txt")


@pytest.mark.parametrize(
    ("main", "message"),
    [
        ("---\nname: other\ndescription: x\n---\n", "the skill bad is left out: its name is 'other' and its folder is"),
        ("---\nname: bad\n---\n", "its description is missing"),
        ("# Bad\n", "make its first line ---"),
        ("---\nname: bad\ndescription: a: b\n---\n", "line 3: a value that contains"),
    ],
)
def test_a_broken_skill_is_left_out_with_the_fix_and_the_others_are_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, main: str, message: str
) -> None:
    add_skill(tmp_path, "good")
    add_skill(tmp_path, "bad")
    (tmp_path / "bad" / "SKILL.md").write_text(main)
    folder = SkillFolder(tmp_path)
    assert list(folder.manifests) == ["good"]
    assert message in caplog.text
    caplog.clear()
    folder.refresh()
    assert not caplog.records, "a problem is reported once"
    add_skill(tmp_path, "bad")
    folder.refresh()
    assert list(folder.manifests) == ["bad", "good"]


def test_a_skill_has_at_most_512_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = add_skill(tmp_path, "big")
    for number in range(MAX_FILES - 1):
        (home / f"{number}.txt").touch()
    folder = SkillFolder(tmp_path)
    assert len(folder.manifests["big"].files) == MAX_FILES
    (home / "more.txt").touch()
    folder.refresh()
    assert not folder.manifests
    assert "it has 513 files; a skill may have 512" in caplog.text


def test_a_skill_has_at_most_16_mebibytes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = add_skill(tmp_path, "big")
    left = 16 * 1024 * 1024 - (home / "SKILL.md").stat().st_size
    (home / "data.bin").write_bytes(bytes(left))
    folder = SkillFolder(tmp_path)
    assert len(folder.read("big", "data.bin")) == left
    (home / "one.bin").write_bytes(b"x")
    folder.refresh()
    assert not folder.manifests
    assert "its files have 16777217 bytes; a skill may have 16777216" in caplog.text


def test_a_missing_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder of skills"):
        SkillFolder(tmp_path / "nowhere")


def test_a_folder_that_went_away_keeps_what_was_known_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_skill(tmp_path / "skills", "pdf")
    folder = SkillFolder(tmp_path / "skills")
    (tmp_path / "skills").rename(tmp_path / "elsewhere")
    folder.refresh()
    assert list(folder.manifests) == ["pdf"]
    assert "not refreshed" in caplog.text


def test_a_folder_inside_that_cannot_be_read_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_skill(tmp_path, "pdf", a_txt="x", sub__b_txt="x")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if os.fspath(path).endswith("sub"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert files(SkillFolder(tmp_path)) == {"pdf": ["SKILL.md", "a.txt"]}
    assert "pdf/sub cannot be read: Permission denied" in caplog.text


def test_a_folder_with_far_too_many_files_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_skill(tmp_path, "pdf", a_txt="x", b_txt="x")
    monkeypatch.setattr("trunkline.extensions.skills.folder._MAX_ENTRIES", 3)
    with pytest.raises(ConfigError, match="choose a folder that contains only skills"):
        SkillFolder(tmp_path)


# --- changes ----------------------------------------------------------------------------------------------------------


def test_a_change_is_found_and_what_did_not_change_keeps_its_manifest(tmp_path: Path) -> None:
    add_skill(tmp_path, "pdf", a_txt="one")
    add_skill(tmp_path, "other")
    folder = SkillFolder(tmp_path)
    before = folder.manifests
    (tmp_path / "pdf" / "a.txt").write_text("two")
    folder.refresh()
    assert folder.manifests["pdf"].files["a.txt"].digest == digest_of(b"two")
    assert folder.manifests["other"] is before["other"]


def test_a_change_that_keeps_size_and_time_is_found(tmp_path: Path) -> None:
    home = add_skill(tmp_path, "pdf", a_txt="one")
    folder = SkillFolder(tmp_path)
    times = (home / "a.txt").stat()
    (home / "a.txt").write_text("two")
    os.utime(home / "a.txt", ns=(times.st_atime_ns, times.st_mtime_ns))
    folder.refresh()
    assert folder.manifests["pdf"].files["a.txt"].digest == digest_of(b"two")


def test_a_file_that_has_not_changed_for_a_while_is_not_hashed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_skill(tmp_path, "pdf", a_txt="one")
    hashed: list[bytes] = []
    module = "trunkline.extensions.skills.folder"

    def noted(content: bytes) -> str:
        hashed.append(content)
        return digest_of(content)

    monkeypatch.setattr(f"{module}.digest_of", noted)
    monkeypatch.setattr(f"{module}._SETTLED_NS", -3600 * 10**9)
    folder = SkillFolder(tmp_path)
    assert b"one" in hashed
    hashed.clear()
    folder.refresh()
    assert hashed == []
    (tmp_path / "pdf" / "a.txt").write_text("two")
    folder.refresh()
    assert hashed == [b"two"]


def test_a_changed_file_is_read_only_after_the_manifest_that_describes_it_is_published(tmp_path: Path) -> None:
    home = add_skill(tmp_path, "pdf", a_txt="one")
    folder = SkillFolder(tmp_path)
    published: list[str] = []
    folder.on_change = lambda before, after: published.append(after["pdf"].files["a.txt"].digest)
    (home / "a.txt").write_text("two")
    assert folder.read("pdf", "a.txt") == b"two"
    assert published == [digest_of(b"two")]


def test_a_file_that_went_away_is_not_found_and_the_manifest_knows(tmp_path: Path) -> None:
    home = add_skill(tmp_path, "pdf", a_txt="one")
    folder = SkillFolder(tmp_path)
    (home / "a.txt").unlink()
    with pytest.raises(FileNotFoundError):
        folder.read("pdf", "a.txt")
    assert list(folder.manifests["pdf"].files) == ["SKILL.md"]


@pytest.mark.parametrize(("skill", "file"), [("pdf", "b.txt"), ("pdf", "../other"), ("nope", "SKILL.md")])
def test_what_no_manifest_lists_is_not_read(tmp_path: Path, skill: str, file: str) -> None:
    add_skill(tmp_path, "pdf")
    (tmp_path / "other").write_text("x")
    with pytest.raises(FileNotFoundError):
        SkillFolder(tmp_path).read(skill, file)


def test_content_is_never_returned_that_no_manifest_has_described(tmp_path: Path) -> None:
    home = add_skill(tmp_path, "pdf", a_txt="0")
    folder = SkillFolder(tmp_path)
    described = {folder.manifests["pdf"].files["a.txt"].digest}

    def note(before: Mapping[str, SkillManifest], after: Mapping[str, SkillManifest]) -> None:
        # The file may be missing at the moment of a look.
        described.update(each.files["a.txt"].digest for each in after.values() if "a.txt" in each.files)

    folder.on_change = note
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            (home / "new").write_text(f"{number}" * 50)
            os.replace(home / "new", home / "a.txt")

    writer = threading.Thread(target=write)
    writer.start()
    unknown: list[bytes] = []
    try:
        for _ in range(150):
            unknown += [content for content in [try_read(folder)] if content and digest_of(content) not in described]
    finally:
        stop.set()
        writer.join(120)
    assert unknown == []


def try_read(folder: SkillFolder) -> bytes | None:
    try:
        return folder.read("pdf", "a.txt")
    except OSError:
        return None


def test_threads_that_want_a_refresh_during_another_share_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_skill(tmp_path, "pdf")
    folder = SkillFolder(tmp_path)
    walks: list[int] = []
    looked, arrived, go = threading.Event(), threading.Semaphore(0), threading.Event()
    walk, monotonic = SkillFolder._walk, time.monotonic

    def slow_walk(self: SkillFolder) -> object:
        walks.append(1)
        looked.set()
        assert go.wait(120)
        return walk(self)

    def noted() -> float:
        arrived.release()
        return monotonic()

    monkeypatch.setattr(SkillFolder, "_walk", slow_walk)
    threads = [threading.Thread(target=folder.refresh) for _ in range(6)]
    threads[0].start()
    assert looked.wait(120)
    monkeypatch.setattr("trunkline.extensions.skills.folder.time.monotonic", noted)
    for thread in threads[1:]:
        thread.start()
    assert all(arrived.acquire(timeout=120) for _ in threads[1:])
    go.set()
    for thread in threads:
        thread.join(120)
    assert len(walks) == 2
