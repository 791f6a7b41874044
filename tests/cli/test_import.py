"""``trunkline import``: servers of other applications are taken over, shown before, and the others' files only read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Outcome, at_a_terminal, run
from trunkline.host.apps.places import Machine, files_of

GITHUB = {"command": "npx", "args": ["-y", "github@1.0.0"], "env": {"GITHUB_TOKEN": "s3cret-token"}}


class Desk:
    """A home with applications, and a configuration of one's own."""

    def __init__(self, machine: Machine, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Take the machine."""
        self.machine = machine
        self.own = own / "mcp.json"
        self._capsys = capsys

    def have(self, app: str, servers: dict[str, Any], scope: str = "user", **more: Any) -> Path:
        """Write an application's file."""
        file = next(file for file in files_of(app, self.machine) if file.scope == scope)
        document: Any = servers
        for name in reversed(file.way):
            document = {name: document}
        file.path.parent.mkdir(parents=True, exist_ok=True)
        file.path.write_text(json.dumps({**document, **more}), encoding="utf-8")
        return file.path

    def run(self, *words: str) -> Outcome:
        """Run the command."""
        return run(self._capsys, "import", *words)

    def servers(self) -> dict[str, Any]:
        """What is in the user's own configuration."""
        found: dict[str, Any] = json.loads(self.own.read_text(encoding="utf-8"))["mcpServers"]
        return found


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "own"))
    machine = Machine(system="linux", home=home, environ={}, project=project)
    monkeypatch.setattr("trunkline.host.apps.places.here", lambda: machine)
    return Desk(machine, tmp_path / "own", capsys)


def test_an_input_that_comes_along_is_not_called_undeclared(desk: Desk, tmp_path: Path) -> None:
    asking = {"command": "github", "env": {"TOKEN": "${input:github}"}}
    inputs = [{"id": "github", "type": "promptString", "description": "token", "password": True}]
    source = tmp_path / "given.json"
    source.write_text(json.dumps({"inputs": inputs, "servers": {"github": asking}}), encoding="utf-8")

    code, out, _ = desk.run(str(source), "--dry-run", "--json")

    (row,) = json.loads(out)["servers"]
    assert (code, row["app"]) == (0, "vscode")
    assert "declared" not in row["remark"]
    assert "set TRUNKLINE_INPUT_GITHUB" in row["remark"]


@pytest.mark.parametrize("app", ["claude-desktop", "claude-code", "cursor", "vscode"])
def test_the_servers_of_an_application_are_taken_over(desk: Desk, app: str) -> None:
    source = desk.have(app, {"github": GITHUB})
    before = source.read_bytes()
    assert desk.run(app, "--yes").code == 0
    assert (desk.servers(), source.read_bytes()) == ({"github": GITHUB}, before)
    assert desk.own.stat().st_mode & 0o777 == 0o600


def test_all_applications_are_looked_at(desk: Desk) -> None:
    desk.have("cursor", {"a": {"command": "x"}})
    desk.have("claude-code", {"b": {"command": "y"}}, "local")
    desk.have("vscode", {"c": {"url": "https://x/"}}, "project")
    desk.run("--yes")
    folder = str(desk.machine.project)
    assert desk.servers() == {
        "a": {"command": "x"},
        "b": {"command": "y", "cwd": folder},
        "c": {"url": "https://x/"},
    }


def test_what_would_be_added_is_shown_without_secrets(desk: Desk) -> None:
    desk.have("cursor", {"github": GITHUB})
    code, out, err = desk.run("cursor", "--dry-run")
    assert (code, '+    "github": {' in out, "s3cret" in out + err, desk.own.exists()) == (0, True, False, False)


def test_without_anybody_to_ask_nothing_is_written(desk: Desk) -> None:
    desk.have("cursor", {"github": GITHUB})
    code, _, err = desk.run("cursor")
    assert (code, "--yes" in err, desk.own.exists()) == (6, True, False)


@pytest.mark.parametrize(("typed", "code", "written"), [("y\n", 0, True), ("\n", 6, False)])
def test_a_person_is_asked(desk: Desk, monkeypatch: pytest.MonkeyPatch, typed: str, code: int, written: bool) -> None:
    desk.have("cursor", {"github": GITHUB})
    ended, _ = at_a_terminal(monkeypatch, "import", "cursor", script=(("[y/N]", typed),))
    assert (ended, desk.own.exists()) == (code, written)


@pytest.mark.parametrize(
    ("conflict", "names"), [("skip", {"github"}), ("replace", {"github"}), ("rename", {"github", "github-cursor"})]
)
def test_a_name_that_is_taken_is_treated_as_was_said(desk: Desk, conflict: str, names: set[str]) -> None:
    desk.have("cursor", {"github": GITHUB})
    desk.own.parent.mkdir()
    desk.own.write_text('{"mcpServers": {"github": {"command": "mine"}}} // kept', encoding="utf-8")
    desk.run("cursor", "--yes", "--conflict", conflict)
    text = desk.own.read_text(encoding="utf-8")
    assert set(json.loads(text.partition(" //")[0])["mcpServers"]) == names
    assert text.endswith(" // kept")
    assert ("mine" in text) == (conflict != "replace")


def test_the_file_as_it_was_is_kept(desk: Desk) -> None:
    desk.have("cursor", {"github": GITHUB})
    desk.own.parent.mkdir()
    desk.own.write_text("{}", encoding="utf-8")
    said = json.loads(desk.run("cursor", "--yes", "--json").out)
    assert Path(said["backup"]).read_text(encoding="utf-8") == "{}"


def test_one_server_can_be_picked(desk: Desk) -> None:
    desk.have("cursor", {"a": {"command": "x"}, "b": {"command": "y"}})
    desk.run("cursor", "--only", "b", "--yes")
    assert set(desk.servers()) == {"b"}
    assert desk.run("cursor", "--only", "c", "--yes").code == 2


def test_a_file_can_be_named_and_written_elsewhere(desk: Desk) -> None:
    desk.have("vscode", {"a": {"command": "x"}}, "project")
    assert desk.run(".vscode/mcp.json", "--to", "mine.json", "--yes").code == 0
    made = json.loads((desk.machine.project / "mine.json").read_text(encoding="utf-8"))
    assert made["mcpServers"]["a"]["cwd"] == str(desk.machine.project)


def test_what_deserves_a_look_is_said(desk: Desk) -> None:
    desk.have("cursor", {"a": {"command": "npx", "args": ["-y", "thing"], "alwaysAllow": ["x"]}})
    _, out, _ = desk.run("cursor", "--dry-run")
    assert "in no fixed version" in out
    assert "not taken over: alwaysAllow" in out


def test_one_broken_file_does_not_hide_the_others(desk: Desk) -> None:
    desk.have("cursor", {"a": {"command": "x"}})
    desk.have("vscode", {}).write_text("{", encoding="utf-8")
    code, _, err = desk.run("--yes")
    assert (code, "is not JSON" in err, set(desk.servers())) == (0, True, {"a"})


@pytest.mark.parametrize("words", [("cursor",), ("no-such-file.json",), ()])
def test_where_nothing_is_found_it_says_so(desk: Desk, words: tuple[str, ...]) -> None:
    assert desk.run(*words, "--yes").code == 2


def test_importing_twice_changes_nothing(desk: Desk) -> None:
    desk.have("cursor", {"github": GITHUB})
    desk.run("--yes")
    code, _, err = desk.run("--yes")
    assert (code, "nothing to take over" in err) == (0, True)
