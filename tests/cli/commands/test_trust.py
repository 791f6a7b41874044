"""Approving a project's servers on the command line: what is shown, who is asked, and what never approves."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Cli, Outcome


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder, which we are in, with a file of two servers; approvals are kept beside it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "server.py").write_text("", encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    _write(
        folder,
        tool={"command": sys.executable, "args": ["server.py"], "env": {"TOKEN": "${TOKEN:-x}"}},
        remote={"url": "https://mcp.example.com/mcp"},
    )
    return folder


def _write(project: Path, **servers: Any) -> None:
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")


def _states(cli: Cli, *options: str) -> dict[str, str]:
    ended = cli("trust", "list", "--json", *options)
    assert ended.code == 0, ended.err
    return {row["name"]: row["state"] for row in json.loads(ended.out)["servers"]}


def _approve(cli: Cli, *words: str) -> Outcome:
    return cli("trust", "approve", "--yes", *words)


# --- who is asked ----------------------------------------------------------------------------------------------------


def test_a_person_who_says_yes_approves(project: Path, cli: Cli) -> None:
    code, screen = cli.at_a_terminal("trust", "approve", "tool", script=(("Approve tool? [y/N] ", "y\n"),))
    assert code == 0, screen
    assert _states(cli) == {"tool": "approved", "remote": "new"}


@pytest.mark.parametrize("typed", ["\n", "n\n", "no\n", "\x04"], ids=["nothing", "n", "no", "end of input"])
def test_any_other_answer_is_a_no(typed: str, project: Path, cli: Cli) -> None:
    code, screen = cli.at_a_terminal("trust", "approve", "tool", script=(("[y/N] ", typed),))
    assert code == 6, screen
    assert _states(cli)["tool"] == "new"


def test_an_answer_typed_before_its_question_does_not_count(project: Path, cli: Cli) -> None:
    script = (("Approve tool? [y/N] ", "y\ny\n"), ("Approve remote? [y/N] ", "n\n"))
    code, screen = cli.at_a_terminal("trust", "approve", "--all", script=script)
    assert code == 6, screen
    assert _states(cli) == {"tool": "approved", "remote": "new"}


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_a_yes_that_is_piped_in_never_approves(
    options: tuple[str, ...], project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\ny\n"))
    ended = cli("trust", "approve", "--all", *options)
    assert ended.code == 6
    assert "no terminal to confirm in" in ended.err
    assert _states(cli) == {"tool": "new", "remote": "new"}


def test_the_word_yes_on_the_command_line_approves_without_a_terminal(project: Path, cli: Cli) -> None:
    ended = _approve(cli, "--all", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out) == {
        "servers": [{"name": "tool", "state": "approved"}, {"name": "remote", "state": "approved"}]
    }


def test_what_is_approved_is_not_asked_again(project: Path, cli: Cli) -> None:
    _approve(cli, "tool")
    ended = cli("trust", "approve", "tool", "--yes")
    assert ended.code == 0
    assert "needs no approval" in ended.err


# --- what is shown ---------------------------------------------------------------------------------------------------


def test_all_that_would_run_is_shown_whole(project: Path, cli: Cli) -> None:
    long = "x" * 500
    _write(project, tool={"command": sys.executable, "args": ["server.py", long], "env": {"A": "1", "B": "2"}})
    shown = _approve(cli, "tool").err
    assert f"{sys.executable} server.py {long}\n" in shown
    assert "variables A, B\n" in shown
    assert f"directory {project}\n" in shown
    assert f"script    {project / 'server.py'} sha256:" in shown


def test_the_value_of_a_variable_is_not_shown(project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "very-secret")
    _write(project, tool={"command": sys.executable, "args": ["--key", "${TOKEN}"], "env": {"KEY": "${TOKEN}"}})
    ended = _approve(cli, "tool")
    assert "--key '***'" in ended.err
    assert "very-secret" not in ended.err + cli("trust", "list").out


def test_dangers_are_pointed_at(project: Path, cli: Cli) -> None:
    _write(project, tool={"command": "npx", "args": ["-y", "pkg"], "env": {"NODE_OPTIONS": "--require ./x.js"}})
    shown = _approve(cli, "tool").err
    assert "WARNING   it fetches pkg without a fixed version" in shown
    assert "WARNING   it sets NODE_OPTIONS=--require ./x.js" in shown


def test_what_changed_since_the_approval_is_shown(project: Path, cli: Cli) -> None:
    _approve(cli, "remote")
    _write(project, remote={"url": "https://evil.example/mcp"})
    assert _states(cli)["remote"] == "changed"
    shown = _approve(cli, "remote").err
    assert "CHANGED   url: https://mcp.example.com/mcp -> https://evil.example/mcp" in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("a\x1b[2Kb", "a\\x1b[2Kb", id="an escape"),
        pytest.param("a\nApprove tool? [y/N] y", "a\\nApprove tool? [y/N] y", id="a line of its own"),
        pytest.param("a\rb\tc", "a\\rb\\tc", id="a return and a tab"),
        pytest.param(f"a{' ' * 80}b", "a[80 spaces]b", id="a gap"),
        pytest.param("a\u202eb", "a\\u202eb", id="a change of direction"),
    ],
)
def test_nothing_in_a_command_can_control_the_terminal(text: str, shown: str, project: Path, cli: Cli) -> None:
    _write(project, tool={"command": sys.executable, "args": [text]})
    ended = _approve(cli, "tool")
    assert text not in ended.err
    assert shown in ended.err


# --- inputs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("password", [False, True], ids=["seen", "unseen"])
def test_a_value_that_the_file_leaves_open_is_asked_for(
    password: bool, project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {
        "inputs": [{"type": "promptString", "id": "key", "description": "The key", "password": password}],
        "servers": {"tool": {"type": "stdio", "command": sys.executable, "args": ["--key", "${input:key}"]}},
    }
    (project / "mcp.json").write_text(json.dumps(document), encoding="utf-8")
    script = (("key (The key): ", "opened\n"), ("Approve tool? [y/N] ", "y\n"))
    code, screen = cli.at_a_terminal("trust", "approve", "tool", script=script)
    assert code == 0, screen
    assert ("opened" in screen) is not password
    monkeypatch.setenv("TRUNKLINE_INPUT_KEY", "opened")
    assert _states(cli)["tool"] == "approved"


def test_a_server_with_an_unanswered_input_stays_unapproved(project: Path, cli: Cli) -> None:
    document = {
        "inputs": [{"type": "pickString", "id": "key", "options": ["one", "two"]}],
        "servers": {"tool": {"type": "stdio", "command": sys.executable, "args": ["${input:key}"]}},
    }
    (project / "mcp.json").write_text(json.dumps(document), encoding="utf-8")
    code, screen = cli.at_a_terminal("trust", "approve", "tool", script=(("key [one, two]: ", "\x04"),))
    assert code == 2, screen


# --- the list, and taking back ---------------------------------------------------------------------------------------


def test_the_list_has_a_line_for_each_server(project: Path, cli: Cli) -> None:
    _approve(cli, "tool")
    ended = cli("trust", "list")
    lines = [line.split() for line in ended.out.splitlines()]
    assert [line[:2] for line in lines] == [["NAME", "STATE"], ["remote", "new"], ["tool", "approved"]]
    assert lines[2][3:] == [str(project), sys.executable, "server.py"]


def test_an_approval_from_elsewhere_holds_in_the_project(
    project: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _approve(cli, "tool", "--config", "project/.mcp.json").code == 0
    monkeypatch.chdir(project)
    assert _states(cli)["tool"] == "approved"


def test_a_revoked_server_is_listed_as_such_elsewhere(
    project: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _approve(cli, "tool")
    ended = cli("trust", "revoke", "tool", "--folder", str(project), "--json")
    assert json.loads(ended.out) == {"revoked": ["tool"]}
    monkeypatch.chdir(tmp_path)
    assert _states(cli) == {"tool": "revoked"}


def test_revoking_what_was_never_approved_says_so(project: Path, cli: Cli) -> None:
    ended = cli("trust", "revoke", "tool")
    assert (ended.code, ended.out) == (0, "")
    assert "tool is not approved" in ended.err


# --- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(["approve"], 1, "or --all", id="no name"),
        pytest.param(["approve", "tool", "--all"], 1, "or --all", id="a name and all"),
        pytest.param(["revoke"], 1, "NAME", id="nothing to revoke"),
        pytest.param(["approve", "tol"], 2, 'did you mean "tool"?', id="a slip"),
        pytest.param(["approve", "zzz"], 2, "known names: tool, remote", id="an unknown name"),
        pytest.param(["approve", "tool", "-c", "absent.json"], 2, "absent.json", id="no such file"),
        pytest.param(["list", "-c", "absent.json"], 2, "absent.json", id="no such file to list"),
    ],
)
def test_a_mistake_is_told(words: list[str], code: int, said: str, project: Path, cli: Cli) -> None:
    ended = cli("trust", *words)
    assert ended.code == code, ended.err
    assert said in ended.err


def test_a_folder_without_a_projects_file_has_nothing_to_approve(project: Path, cli: Cli) -> None:
    (project / ".mcp.json").unlink()
    ended = _approve(cli, "--all", "--json")
    assert ended.code == 2
    assert "no project file" in json.loads(ended.out)["error"]["message"]


def test_a_server_that_cannot_run_does_not_stop_the_others(project: Path, cli: Cli) -> None:
    _write(project, bad={"command": "${NO_SUCH_VARIABLE}"}, good={"url": "https://mcp.example.com/mcp"})
    ended = _approve(cli, "--all")
    assert ended.code == 2
    assert "bad cannot run" in ended.err
    assert _states(cli) == {"good": "approved"}


def test_approvals_that_cannot_be_read_are_not_asked_for(project: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "trust.json").write_text("{", encoding="utf-8")
    ended = _approve(cli, "tool")
    assert ended.code == 2
    assert "delete it and approve again" in ended.err
    assert "WARNING" not in ended.err


def test_approvals_kept_inside_the_project_are_refused(
    project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_HOME", str(project / "state"))
    ended = _approve(cli, "tool")
    assert ended.code == 2
    assert "inside the project folder" in ended.err
