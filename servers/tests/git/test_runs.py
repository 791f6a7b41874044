"""How often git is run: results are cached until a byte of their input changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servers.tests.git.support import NEEDS_GIT, calls, git, make_repository, outcome, write
from trunkline import Server
from trunkline_servers.git import make_server

pytestmark = NEEDS_GIT

STATUS: tuple[str, dict[str, Any]] = ("git_status", {})
AS_ROOT = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give folders away")
Change = Callable[[Path], object]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where the first argument of each run of git is written."""
    return tmp_path / "log"


@pytest.fixture
def server(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server whose git tells of each run."""
    real = shutil.which("git")
    program = f"#!/bin/sh\necho \"$1\" >> '{log}'\nexec '{real}' \"$@\"\n"
    write(tmp_path / "programs" / "git", program, runs=True)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"), prepend=os.pathsep)
    return make_server(any_repository=True)


def runs(server: Server, log: Path, repository: Path, *wanted: tuple[str, dict[str, Any]]) -> list[str]:
    """Return the git commands that were run for these calls, all of which succeed."""
    log.write_text("")
    results = calls(server, repository, wanted)
    assert [outcome(each) for each in results if each.is_error] == []
    return log.read_text().split()


RUNS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("git_status", {}, ["status"]),
    ("git_diff_unstaged", {}, ["diff"]),
    ("git_diff_staged", {}, ["diff"]),
    ("git_diff", {"target": "HEAD"}, ["rev-parse", "diff"]),
    ("git_log", {}, ["log"]),
    ("git_show", {"revision": "HEAD"}, ["cat-file", "diff-tree"]),
    ("git_branch", {"branch_type": "local"}, ["branch"]),
    ("git_reset", {}, ["reset"]),
    ("git_create_branch", {"branch_name": "new"}, ["update-ref"]),
    ("git_checkout", {"branch_name": "main"}, ["cat-file", "checkout"]),
    ("git_checkout", {"branch_name": "HEAD"}, ["cat-file", "checkout"]),
    ("git_add", {"files": ["."]}, ["ls-files", "update-index"]),
    ("git_commit", {"message": "m"}, ["commit", "rev-parse"]),
]


def test_a_known_repository_needs_no_extra_runs_of_git(server: Server, log: Path, repository: Path) -> None:
    runs(server, log, repository, STATUS)
    assert [runs(server, log, repository, (tool, given), STATUS) for tool, given, _ in RUNS] == [
        [*expected, "status"] for _, _, expected in RUNS
    ]


def test_the_users_configuration_is_read_until_all_of_its_files_are_known(
    server: Server, log: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "more.config", "[user]\n\temail = work@example.com\n")
    text = f'[user]\n\tname = Bea\n[includeIf "gitdir:{repository}/"]\n\tpath = more.config\n'
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(write(tmp_path / "global.config", text)))
    runs(server, log, repository, STATUS, STATUS)
    assert runs(server, log, repository, STATUS) == ["status"]
    write(tmp_path / "more.config", "[user]\n\temail = home@example.com\n")
    assert runs(server, log, repository, STATUS) == ["config", "status"]


@pytest.mark.parametrize("condition", ["onbranch:main", "hasconfig:remote.*.url:**"])
def test_a_users_include_that_hangs_on_the_repository_is_looked_up_each_time(
    server: Server, log: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    text = f'[includeIf "{condition}"]\n\tpath = more.config\n'
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(write(tmp_path / "global.config", text)))
    runs(server, log, repository, STATUS, STATUS)
    assert runs(server, log, repository, STATUS) == ["config", "status"]


def test_another_branch_or_commit_needs_no_new_check(server: Server, log: Path, repository: Path) -> None:
    git(repository, "branch", "side")
    runs(server, log, repository, STATUS)
    git(repository, "checkout", "--quiet", "side")
    on_side = runs(server, log, repository, STATUS)
    git(repository, "checkout", "--quiet", "--detach")
    assert (on_side, runs(server, log, repository, STATUS)) == (["status"], ["status"])


def test_a_long_configuration_is_not_kept(server: Server, log: Path, repository: Path) -> None:
    with (repository / ".git" / "config").open("a") as config:
        config.write("#" * 64 * 1024 + "\n")
    runs(server, log, repository, STATUS)
    assert runs(server, log, repository, STATUS) == ["config", "rev-parse", "status"]


# --- what is not the same any more is asked again --------------------------------------------------------------------


def same_times(path: Path, text: str) -> None:
    """Write another text of the same length, so that only the bytes are different."""
    about = path.stat()
    assert len(text) == about.st_size
    path.write_text(text)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def test_a_configuration_is_read_again_though_its_times_and_size_are_the_same(
    server: Server, log: Path, repository: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "executed"
    program = write(tmp_path / "program", f"#!/bin/sh\n: > '{marker}'\nexec /bin/cat\n", runs=True)
    config = repository / ".git" / "config"
    harmless, evil = (f'[{name} "evil"]\n\tclean = {program}\n' for name in ("nothin", "filter"))
    config.write_text(config.read_text() + harmless)
    write(repository / ".git" / "info" / "attributes", "* filter=evil\n")
    runs(server, log, repository, STATUS, ("git_diff_unstaged", {}))

    same_times(config, config.read_text().replace(harmless, evil))
    runs(server, log, repository, STATUS, ("git_diff_unstaged", {}))

    assert not marker.exists()
    git(repository, "diff")
    assert marker.exists()


def test_an_include_that_comes_later_is_refused(server: Server, log: Path, repository: Path) -> None:
    runs(server, log, repository, STATUS)
    git(repository, "config", "include.path", "more")
    (result,) = calls(server, repository, [STATUS])
    assert "Remove include.path" in outcome(result)[1]


def leave_an_empty_folder(repository: Path) -> None:
    shutil.rmtree(repository / ".git")
    (repository / ".git").mkdir()


def lead_elsewhere(repository: Path) -> None:
    other = make_repository(repository / "other")
    shutil.rmtree(repository / ".git")
    # Git takes the blank for a part of the name.
    write(repository / ".git", f"gitdir:  {other / '.git'}\n")


def become_bare(repository: Path) -> None:
    shutil.copytree(repository / ".git", repository, dirs_exist_ok=True)
    (repository / ".git" / "HEAD").write_text("nothing\n")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(leave_an_empty_folder, id="emptied"),
        pytest.param(lead_elsewhere, id="a-file-that-git-reads-otherwise"),
        pytest.param(become_bare, id="bare"),
        pytest.param(lambda top: (top / ".git" / "HEAD").write_text("ref: nowhere\n"), id="head"),
        pytest.param(lambda top: (top / ".git" / "refs").rename(top / ".git" / "no-refs"), id="no-refs"),
        pytest.param(lambda top: (top / ".git" / "objects").rename(top / ".git" / "no-objects"), id="no-objects"),
        pytest.param(lambda top: write(top / ".git" / "commondir", "..\n"), id="commondir"),
        pytest.param(lambda top: git(top, "config", "core.repositoryFormatVersion", "99"), id="version"),
    ],
)
def test_a_former_repository_is_not_mistaken_for_the_enclosing_one(
    server: Server, log: Path, tmp_path: Path, change: Change
) -> None:
    around = make_repository(tmp_path / "around")
    # With this name the ceiling that git is given has no effect.
    inside = make_repository(around / "a:b" / "inside")
    runs(server, log, inside, STATUS)
    change(inside)
    (result,) = calls(server, inside, [("git_log", {})])
    assert result.is_error is True


@AS_ROOT
@pytest.mark.parametrize("name", [".", ".git"])
def test_a_repository_that_changes_owner_is_no_longer_trusted(
    server: Server, log: Path, repository: Path, name: str
) -> None:
    runs(server, log, repository, STATUS)
    os.chown(repository / name, 12345, 12345)
    (result,) = calls(server, repository, [STATUS])
    assert "dubious ownership" in outcome(result)[1]


@AS_ROOT
def test_a_repository_owned_by_another_user_is_trusted_only_while_configured(
    server: Server, log: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(repository, 12345, 12345)
    trusting = write(tmp_path / "global.config", f"[safe]\n\tdirectory = {repository}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(trusting))
    runs(server, log, repository, STATUS, STATUS)
    trusting.write_text("")
    (result,) = calls(server, repository, [STATUS])
    assert "dubious ownership" in outcome(result)[1]


def test_an_include_of_the_users_goes_by_where_the_repository_is_now(
    server: Server, log: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "more.config", "[user]\n\temail = work@example.com\n")
    text = (
        f'[user]\n\tname = Bea\n\temail = b@example.com\n[includeIf "gitdir:{tmp_path}/work/"]\n\tpath = more.config\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(write(tmp_path / "global.config", text)))
    git(repository, "config", "--remove-section", "user")
    git(repository, "add", ".")
    runs(server, log, repository, STATUS, STATUS, STATUS)
    (tmp_path / "work").mkdir()
    (repository / ".git").rename(tmp_path / "work" / "moved")
    write(repository / ".git", f"gitdir: {tmp_path / 'work' / 'moved'}\n")

    (result,) = calls(server, repository, [("git_commit", {"message": "m"})])

    assert result.is_error is False
    assert git(repository, "log", "-1", "--format=%an %ae") == "Bea work@example.com"


def test_a_path_of_the_users_configuration_is_not_looked_up_in_the_repository(
    server: Server, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name in ((tmp_path, "Bea"), (repository, "Eve")):
        write(folder / "own.config", f"[user]\n\tname = {name}\n\temail = {name}@example.com\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "own.config")
    git(repository, "config", "--remove-section", "user")
    git(repository, "add", ".")
    (result,) = calls(server, repository, [("git_commit", {"message": "m"})])
    assert result.is_error is False
    assert git(repository, "log", "-1", "--format=%an") == "Bea"


@AS_ROOT
def test_a_folder_of_the_users_that_is_trusted_may_be_named_from_the_home_folder(
    server: Server, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(repository, 12345, 12345)
    monkeypatch.setenv("HOME", str(tmp_path))
    trusting = write(tmp_path / "global.config", "[safe]\n\tdirectory = ~/repository\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(trusting))
    (result,) = calls(server, repository, [STATUS])
    assert outcome(result)[1].startswith("Repository status")
