"""``trunkline config explain``: what a person and a program get to see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Cli, Outcome
from tests.host.config.support import write
from tests.host.config.test_documents import REMOTE, STDIO
from trunkline.host.config import loading


class _Explained:
    """Runs the command in a folder of its own."""

    def __init__(self, folder: Path, cli: Cli) -> None:
        self.folder = folder
        self._cli = cli

    def __call__(self, *arguments: str) -> Outcome:
        return self._cli("config", "explain", *arguments)


@pytest.fixture
def explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> _Explained:
    """The command, in a folder without any configuration."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(loading, "managed_config_path", lambda: tmp_path / "managed.json")
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    return _Explained(tmp_path / "here", cli)


def test_a_started_server_is_explained(explained: _Explained) -> None:
    write(explained.folder / "mcp.json", STDIO)
    assert explained("-c", "mcp.json").out == (
        "filesystem [mcp.json:3, given]\n"
        "  command = node [mcp.json:4]\n"
        "  args[0] = path/to/filesystem-server.js [mcp.json:5]\n"
        "  env.ROOT_PATH = /workspace [mcp.json:7]\n"
        "\n"
    )


def test_a_remote_server_is_explained_without_its_token(explained: _Explained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "gh-1234567")
    write(explained.folder / "mcp.json", REMOTE)
    ended = explained("-c", "mcp.json")
    assert "headers.Authorization = Bearer ${GITHUB_TOKEN} [mcp.json:6; GITHUB_TOKEN is\n      set]" in ended.out
    assert "gh-1234567" not in ended.out


def test_an_unset_variable_is_told_with_the_fix(explained: _Explained) -> None:
    write(explained.folder / "mcp.json", REMOTE)
    ended = explained("-c", "mcp.json")
    assert ended.code == 0
    assert "problem: mcp.json:6: github.headers.Authorization: the variable GITHUB_TOKEN" in ended.out


def test_lines_fit_a_terminal_of_80_columns(explained: _Explained) -> None:
    write(explained.folder / "mcp.json", {"mcpServers": {"a": {"command": "x", "args": ["word " * 60]}, "b": {}}})
    assert max(map(len, explained("-c", "mcp.json").out.splitlines())) <= 80


def test_one_server_is_explained_with_all_its_settings(explained: _Explained) -> None:
    write(
        explained.folder / "mcp.json", {"mcpServers": {"a": {"command": "x", "tools": ["t*"]}, "b": {"command": "y"}}}
    )
    out = explained("-c", "mcp.json", "a").out
    assert ("settings: era auto," in out, '"allow":["t*"]' in out, "b [" in out) == (True, True, False)


def test_what_is_hidden_and_what_is_odd_is_told(explained: _Explained) -> None:
    write(explained.folder / "mcp.json", {"mcpServers": {"a": {"command": "x", "timout": 1, "disabled": True}}})
    write(explained.folder.parent / "home" / "mcp.json", {"mcpServers": {"a": {"command": "y"}}})
    out = " ".join(explained().out.split())
    assert f"a [{explained.folder / 'mcp.json'}:3, project, disabled]" in out
    assert "a: not used: hidden by" in out
    assert "a.'timout': unknown member, ignored; did you mean \"timeout\"?" in out


def test_the_managed_file_holds_for_a_file_that_was_named_too(explained: _Explained) -> None:
    write(explained.folder / "mcp.json", STDIO)
    write(explained.folder.parent / "managed.json", {"exclusive": True})
    assert "filesystem: not used: the managed file is exclusive" in explained("-c", "mcp.json").out


def test_text_of_a_file_cannot_control_the_terminal(explained: _Explained) -> None:
    content: dict[str, Any] = {"mcpServers": {"a\x1b[2J": {"command": "x\x1b]0;y", "\x9bkey": 1, "env": {"\x1b": "z"}}}}
    write(explained.folder / "mcp.json", content)
    out = explained("-c", "mcp.json").out
    assert ("\x1b" in out, "\x9b" in out, "\\x1b" in out) == (False, False, True)


def test_a_program_gets_one_document(explained: _Explained) -> None:
    write(explained.folder / "mcp.json", REMOTE)
    document = json.loads(explained("-c", "mcp.json", "--json").out)
    assert set(document) == {"files", "servers", "hidden", "problems"}
    assert (document["servers"][0]["name"], document["servers"][0]["line"]) == ("github", 3)
    assert document["files"][0] == {"path": "mcp.json", "scope": "given", "servers": ["github"], "problem": None}


def test_a_file_that_cannot_be_used_ends_the_command_and_is_told_to_a_program_too(explained: _Explained) -> None:
    ended = explained("-c", "nowhere.json", "--json")
    assert (ended.code, "nowhere.json: there is no such file" in ended.err) == (2, True)
    assert "there is no such file" in ended.json["error"]["message"]


def test_explaining_without_servers_is_reported(explained: _Explained) -> None:
    ended = explained()
    assert (ended.code, ended.out) == (0, "")
    assert "no servers configured" in ended.err
