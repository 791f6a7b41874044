"""Repositories whose own files were written by hand: an index, a configuration and alternates that git never writes."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from servers.tests.git.support import (
    EVERY_TOOL,
    NEEDS_GIT,
    any_server,
    call,
    calls,
    git,
    make_repository,
    outcome,
    refused,
    write,
)
from trunkline import Server
from trunkline_servers.git import make_server

pytestmark = NEEDS_GIT

#: An id that every repository of these tests has.
EMPTY_BLOB = bytes.fromhex("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")


@pytest.fixture(autouse=True)
def indexed(repository: Path) -> None:
    """Give the repository the empty blob, and threads: however small an index is, its table of blocks is gone by."""
    git(repository, "hash-object", "-w", os.devnull)
    git(repository, "config", "index.threads", "3")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file outside of the repository, with an odd content."""
    return write(tmp_path / "secret.txt", "a secret\n")


# --- the index -------------------------------------------------------------------------------------------------------


def entry(name: bytes) -> bytes:
    """An entry of the index for an empty file, whose state git has to look up."""
    made = bytes(24) + struct.pack(">I", 0o100644) + bytes(12) + EMPTY_BLOB + struct.pack(">H", len(name)) + name
    return made + bytes(8 - len(made) % 8)


def short_entry(name: bytes, length: int | None = None) -> bytes:
    """An entry of the fourth version: all of the name before it, and this behind it."""
    told = len(name) if length is None else length
    made = bytes(24) + struct.pack(">I", 0o100644) + bytes(12) + EMPTY_BLOB + struct.pack(">H", told)
    return made + b"\0" + name + b"\0"


def index(entries: Sequence[bytes], *, version: int = 2, more: bytes = b"", count: int | None = None) -> bytes:
    head = b"DIRC" + struct.pack(">II", version, len(entries) if count is None else count)
    body = head + b"".join(entries) + more
    return body + hashlib.sha1(body).digest()


def extension(name: bytes, data: bytes) -> bytes:
    return name + struct.pack(">I", len(data)) + data


def parallel(hidden: bytes) -> bytes:
    """An index whose table of blocks leads to an entry that is in no list of entries."""
    shown = b"DIRC" + struct.pack(">II", 2, 1) + entry(b"a.txt")
    blocks = extension(b"ZZZZ", hidden)
    at = len(shown) + 8
    table = extension(b"IEOT", struct.pack(">III", 1, at, 1))
    covered = hashlib.sha1(b"".join(each[:8] for each in (blocks, table))).digest()
    body = shown + blocks + table + extension(b"EOIE", struct.pack(">I", len(shown)) + covered)
    return body + hashlib.sha1(body).digest()


INDEXES = [
    pytest.param(lambda path: index([entry(b"../secret.txt")]), id="up"),
    pytest.param(lambda path: index([entry(b"a.txt"), entry(b"folder/../../secret.txt")]), id="down-and-up"),
    pytest.param(lambda path: index([entry(os.fsencode(path))]), id="absolute"),
    pytest.param(lambda path: index([short_entry(b"../secret.txt")], version=4), id="fourth-version"),
    pytest.param(lambda path: parallel(entry(b"../secret.txt")), id="blocks"),
]
LOOKS = [("git_diff_unstaged", {}), ("git_status", {}), ("git_diff", {"target": "HEAD"})]


@pytest.mark.parametrize("made", INDEXES)
def test_an_index_that_names_a_file_outside_shows_nothing_of_it_though_plain_git_does(
    repository: Path, secret: Path, made: Callable[[Path], bytes]
) -> None:
    (repository / "folder").mkdir()
    (repository / ".git" / "index").write_bytes(made(secret))
    results = calls(make_server(repositories=[repository]), repository, LOOKS)
    assert [each for each in map(outcome, results) if "secret" in each[1].replace(str(secret), "")] == []
    assert "+a secret" in git(repository, "diff")


def test_a_hostile_index_is_refused_by_every_tool(repository: Path, secret: Path) -> None:
    (repository / ".git" / "index").write_bytes(index([entry(b"../secret.txt")]))
    results = calls(make_server(repositories=[repository]), repository, EVERY_TOOL)
    assert [each.is_error for each in results] == [True] * len(EVERY_TOOL)
    assert "names files that are not in the working tree" in outcome(results[0])[1]
    assert secret.read_text() == "a secret\n"


def test_an_index_does_not_lead_through_a_link_in_the_tree(repository: Path, secret: Path) -> None:
    (repository / "link").symlink_to(secret.parent)
    tools = ["git_diff_unstaged", "git_status", "git_add", "git_diff", "git_checkout", "git_reset"]
    before = index([entry(b"a.txt"), entry(b"link/secret.txt")])
    for tool in tools:
        (repository / ".git" / "index").write_bytes(before)
        (result,) = calls(any_server(), repository, [each for each in EVERY_TOOL if each[0] == tool])
        assert "+a secret" not in outcome(result)[1], tool
        assert git(repository, "hash-object", str(secret)) not in git(repository, "ls-files", "-s"), tool
    assert secret.read_text() == "a secret\n"


def test_names_that_grow_without_end_are_refused(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline_servers.git.repository._MOST_BYTES", 100_000)
    grown = [short_entry(b"n" * 50, length=50 * (number + 1)) for number in range(80)]
    (repository / ".git" / "index").write_bytes(index(grown, version=4))
    assert "is not as git writes it" in refused(repository, "git_status")


def test_an_index_that_comes_later_is_looked_at_too(repository: Path, secret: Path) -> None:
    server = make_server(repositories=[repository])
    first = calls(server, repository, LOOKS)
    (repository / ".git" / "index").write_bytes(index([entry(b"../secret.txt")]))
    then = calls(server, repository, LOOKS)
    assert ([each.is_error for each in first], [each.is_error for each in then]) == ([False] * 3, [True] * 3)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(b"DIRC", id="short"),
        pytest.param(index([], count=3), id="fewer-than-said"),
        pytest.param(index([entry(b"a.txt").replace(b"\0\x05a", b"\0\x03a")]), id="another-length"),
        pytest.param(b"x" * 1000, id="something-else"),
    ],
)
def test_an_invalid_index_is_an_error_in_words(repository: Path, made: bytes) -> None:
    (repository / ".git" / "index").write_bytes(made)
    assert "is not as git writes it" in refused(repository, "git_add", files=["."])


def test_a_pipe_in_place_of_the_index_is_not_waited_for(repository: Path) -> None:
    (repository / ".git" / "index").unlink()
    os.mkfifo(repository / ".git" / "index")
    assert "it is not a plain file" in refused(repository, "git_status")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["-c", "index.version=4", "update-index", "--index-version=4"], id="fourth-version"),
        pytest.param(["update-index", "--split-index"], id="split"),
        pytest.param(["sparse-checkout", "set", "--cone", "--sparse-index", "folder"], id="sparse"),
        pytest.param(["update-index", "--skip-worktree", "a.txt"], id="third-version"),
        pytest.param(["update-index", "--force-untracked-cache"], id="untracked-cache"),
    ],
)
def test_an_index_of_any_form_that_git_makes_is_good(repository: Path, options: list[str]) -> None:
    write(repository / "folder" / "b.txt", "b\n")
    write(repository / "other" / ("n" * 200) / "c..d.txt", "c\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "more")
    git(repository, *options)
    write(repository / "folder" / "b.txt", "B\n")
    results = calls(any_server(), repository, EVERY_TOOL)
    assert [outcome(each)[1] for each in results if each.is_error] == []
    assert git(repository, "log", "-1", "--format=%s", "main") == "by the server"


def test_a_name_longer_than_the_index_can_count_is_good(repository: Path) -> None:
    inside = "/".join(["n" * 200] * 30)
    blob = git(repository, "rev-parse", "HEAD:a.txt")
    git(repository, "update-index", "--add", "--cacheinfo", f"100644,{blob},{inside}")
    git(repository, "update-index", "--add", "--cacheinfo", f"100644,{blob},z")
    assert call(repository, "git_status")[0] is False


# --- the configuration -----------------------------------------------------------------------------------------------


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """Where the settings are written that git is given when it commits."""
    return tmp_path / "told"


@pytest.fixture
def telling(tmp_path: Path, told: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git in front of the real one that tells what it is given; the folder comes first in the path."""
    real = shutil.which("git")
    program = f"#!/bin/sh\n[ \"$1\" != commit ] || /usr/bin/env > '{told}'\nexec '{real}' \"$@\"\n"
    write(tmp_path / "programs" / "git", program, runs=True)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"), prepend=os.pathsep)
    return tmp_path / "programs"


def settings(told: Path) -> dict[str, str]:
    """Read what git is told: the last setting of each name is the one that counts."""
    said = dict(line.split("=", 1) for line in told.read_text().splitlines() if "=" in line)
    numbers = range(int(said["GIT_CONFIG_COUNT"]))
    return {said[f"GIT_CONFIG_KEY_{each}"]: said[f"GIT_CONFIG_VALUE_{each}"] for each in numbers}


def commit(server: Server, repository: Path) -> None:
    git(repository, "add", ".")
    (result,) = calls(server, repository, [("git_commit", {"message": "m"})])
    assert result.is_error is False


def test_configured_hooks_are_disabled(repository: Path, telling: Path, told: Path) -> None:
    git(repository, "config", "hook.my linter.command", "false")
    git(repository, "config", "hook.my linter.event", "pre-commit")
    commit(make_server(any_repository=True), repository)
    said = settings(told)
    assert (said["hook.my linter.enabled"], said["hook.my linter.event"]) == ("false", "")


def test_configured_hooks_run_with_run_hooks(repository: Path, telling: Path, told: Path) -> None:
    git(repository, "config", "hook.linter.command", "false")
    commit(make_server(any_repository=True, run_hooks=True), repository)
    assert [each for each in settings(told) if each.startswith(("hook.", "core.hookspath"))] == []


@pytest.mark.parametrize("value", ["files:///elsewhere", "reftable:../../elsewhere", "/elsewhere"])
def test_branches_that_are_kept_elsewhere_are_refused(repository: Path, value: str) -> None:
    git(repository, "config", "extensions.refStorage", value)
    assert "names a location for its branches" in refused(repository, "git_status")


@pytest.mark.parametrize("name", ["", "ü", "a b", "x.y", "=", "Evil"])
def test_a_filter_of_any_name_is_disabled(repository: Path, tmp_path: Path, name: str) -> None:
    marker = tmp_path / "executed"
    program = write(tmp_path / "program", f"#!/bin/sh\n: > '{marker}'\nexec /bin/cat\n", runs=True)
    write(repository / ".git" / "info" / "attributes", f"* filter={name}\n")
    with (repository / ".git" / "config").open("a", encoding="utf-8") as config:
        config.write(f'[filter "{name}"]\n\tclean = {program}\n')
    results = calls(any_server(), repository, LOOKS)
    assert [each.is_error for each in results] == [False] * 3
    assert not marker.exists()


SCENE = """
import asyncio, os, sys
from trunkline import Client
from trunkline_servers.git import make_server

async def main():
    async with Client(make_server(any_repository=True)) as client:
        for tool, more in (("git_status", {}), ("git_diff_unstaged", {}), ("git_add", {"files": ["."]})):
            answer = await client.call_tool(tool, {"repo_path": sys.argv[1], **more}, raise_on_error=False)
            print(sys.getfilesystemencoding(), answer.is_error, ascii(answer.content[0].text[:50]))

asyncio.run(main())
"""


def test_a_filter_with_a_name_that_is_not_utf_8_is_disabled(repository: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    program = write(tmp_path / "program", f"#!/bin/sh\n: > '{marker}'\nexec /bin/cat\n", runs=True)
    write(repository / ".git" / "info" / "attributes", "")
    (repository / ".git" / "info" / "attributes").write_bytes("* filter=ü\n".encode())
    with (repository / ".git" / "config").open("ab") as config:
        config.write(f'[filter "ü"]\n\tclean = {program}\n'.encode())
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    done = subprocess.run(
        [sys.executable, "-c", SCENE, str(repository)], env=env, capture_output=True, check=True, timeout=120
    )

    assert [each.split()[:2] for each in done.stdout.decode().splitlines()] == [
        ["ascii", "False"],
        ["ascii", "False"],
        ["ascii", "True"],
    ]
    assert b"Nothing was staged" in done.stdout
    assert not marker.exists()


# --- borrowed objects ------------------------------------------------------------------------------------------------


def test_an_alternate_may_not_lead_out_through_its_own_link(repository: Path, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other")
    git(other, "commit", "--quiet", "-am", "second")
    git(other, "repack", "--quiet", "-a", "-d")
    (repository / "lender").mkdir()
    (repository / "lender" / "pack").symlink_to(other / ".git" / "objects" / "pack")
    write(repository / ".git" / "objects" / "info" / "alternates", f"{repository / 'lender'}\n")
    blob = git(other, "rev-parse", "HEAD:a.txt")
    assert "leads out" in refused(repository, "git_show", revision=blob)
    assert git(repository, "cat-file", "-p", blob) == "one\n2\nthree"


def test_an_alternate_is_resolved_as_every_git_version_does(repository: Path, tmp_path: Path) -> None:
    make_repository(tmp_path / "secret")
    (repository / "a" / "b" / "c" / "d").mkdir(parents=True)
    (repository / ".git" / "objects" / "inside").symlink_to(repository / "a" / "b" / "c" / "d")
    # Through the link it is in the repository; read as text, as older versions of git do, it is beside it.
    lender = "inside/../../../../secret/.git/objects"
    write(repository / ".git" / "objects" / "info" / "alternates", f"{lender}\n")
    assert "borrows objects" in refused(repository, "git_status")


def test_a_link_among_the_tables_of_branches_may_not_lead_out(repository: Path, secret: Path) -> None:
    (repository / ".git" / "reftable").mkdir()
    (repository / ".git" / "reftable" / "tables.list").symlink_to(secret)
    assert "leads out" in refused(repository, "git_status")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        pytest.param("HEAD:a.txt", "The file cannot be read", id="file"),
        pytest.param("HEAD:", "git cat-file failed", id="folder"),
        pytest.param("HEAD", "git cat-file failed", id="commit"),
    ],
)
def test_an_object_that_is_cut_off_is_not_taken_for_an_empty_one(repository: Path, name: str, told: str) -> None:
    number = git(repository, "rev-parse", name)
    path = repository / ".git" / "objects" / number[:2] / number[2:]
    header, _, content = zlib.decompress(path.read_bytes()).partition(b"\0")
    path.chmod(0o644)
    # Of the right size, as its header says, but all of it is not there.
    half = zlib.compressobj(0)
    path.write_bytes(half.compress(header + b"\0" + content[:1]) + half.flush(zlib.Z_SYNC_FLUSH))
    assert told in refused(repository, "git_show", revision=name)
