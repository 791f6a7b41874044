"""``trunkline import``: servers of other applications are taken over, shown before, and the others' files only read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Cli, Outcome
from trunkline.devtools.client_configs.files import Machine, files_of
from trunkline.host.authorization.grants import GrantStore

GITHUB = {"command": "npx", "args": ["-y", "github@1.0.0"], "env": {"GITHUB_TOKEN": "s3cret-token"}}


class Desk:
    """A home with applications, and a configuration of one's own."""

    def __init__(self, machine: Machine, own: Path, cli: Cli) -> None:
        """Take the machine."""
        self.machine = machine
        self.own = own / "mcp.json"
        self._cli = cli

    def have(self, app: str, servers: dict[str, Any], scope: str = "user", **more: Any) -> Path:
        """Write an application's file."""
        file = next(file for file in files_of(app, self.machine) if file.scope == scope)
        document: Any = servers
        for name in reversed(file.key_path):
            document = {name: document}
        file.path.parent.mkdir(parents=True, exist_ok=True)
        file.path.write_text(json.dumps({**document, **more}), encoding="utf-8")
        return file.path

    def run(self, *words: str) -> Outcome:
        """Run the command."""
        return self._cli("import", *words)

    def status(self) -> Outcome:
        """Show the status of the imported servers."""
        return self._cli("status", "-c", str(self.own))

    def servers(self) -> dict[str, Any]:
        """What is in the user's own configuration."""
        found: dict[str, Any] = json.loads(self.own.read_text(encoding="utf-8"))["mcpServers"]
        return found


@pytest.fixture
def desk(machine: Machine, tmp_path: Path, cli: Cli) -> Desk:
    return Desk(machine, tmp_path / "own", cli)


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


@pytest.mark.parametrize("app", ["cursor", "vscode"])
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


def test_without_confirmation_nothing_is_written(desk: Desk) -> None:
    desk.have("cursor", {"github": GITHUB})
    code, _, err = desk.run("cursor")
    assert (code, "--yes" in err, desk.own.exists()) == (6, True, False)


@pytest.mark.parametrize(("typed", "code", "written"), [("y\n", 0, True), ("\n", 6, False)])
def test_a_person_is_asked(desk: Desk, typed: str, code: int, written: bool, cli: Cli) -> None:
    desk.have("cursor", {"github": GITHUB})
    ended, _ = cli.at_a_terminal("import", "--no-start", "cursor", script=(("[y/a/m/N]", typed),))
    assert (ended, desk.own.exists()) == (code, written)


@pytest.mark.parametrize(
    ("conflict", "names"), [("skip", {"github"}), ("replace", {"github"}), ("rename", {"github", "github-cursor"})]
)
def test_a_name_conflict_is_resolved_as_the_option_says(desk: Desk, conflict: str, names: set[str]) -> None:
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


def test_a_file_can_be_named_and_written_elsewhere(desk: Desk) -> None:
    desk.have("vscode", {"a": {"command": "x"}}, "project")
    assert desk.run(".vscode/mcp.json", "--to", "mine.json", "--yes").code == 0
    made = json.loads((desk.machine.project / "mine.json").read_text(encoding="utf-8"))
    assert made["mcpServers"]["a"]["cwd"] == str(desk.machine.project)


def test_an_import_reports_unpinned_packages_and_permissions_that_are_left_out(desk: Desk) -> None:
    desk.have("cursor", {"a": {"command": "npx", "args": ["-y", "thing"], "alwaysAllow": ["x"]}})
    _, out, _ = desk.run("cursor", "--dry-run")
    assert "without a fixed version" in out
    assert "not imported: alwaysAllow" in out


def test_one_broken_file_does_not_hide_the_others(desk: Desk) -> None:
    desk.have("cursor", {"a": {"command": "x"}})
    desk.have("vscode", {}).write_text("{", encoding="utf-8")
    code, _, err = desk.run("--yes")
    assert (code, "is not JSON" in err, set(desk.servers())) == (0, True, {"a"})


@pytest.mark.parametrize("words", [("cursor",), ("no-such-file.json",), ()])
def test_where_nothing_is_found_it_says_so(desk: Desk, words: tuple[str, ...]) -> None:
    assert desk.run(*words, "--yes").code == 2


# --- our own gateway -------------------------------------------------------------------------------------------------


def test_our_own_gateway_is_skipped_and_that_is_said(desk: Desk) -> None:
    own = {"command": "/usr/bin/python3", "args": ["-P", "-m", "trunkline", "serve", "-c", "/x.json"]}
    source = desk.have("cursor", {"trunkline": own, "github": GITHUB})
    code, out, _ = desk.run("cursor", "--yes", "--remove-originals")
    assert (code, set(desk.servers())) == (0, {"github"})
    assert "it starts this gateway (trunkline serve), which cannot be its own server" in out
    assert json.loads(source.read_text(encoding="utf-8")) == {"mcpServers": {"trunkline": own}}


# --- the originals ---------------------------------------------------------------------------------------------------


def test_the_originals_stay_unless_it_is_said(desk: Desk) -> None:
    source = desk.have("cursor", {"github": GITHUB})
    before = source.read_bytes()
    _, _, err = desk.run("cursor", "--yes")
    assert source.read_bytes() == before
    assert f"the originals stay in {source}; to remove them, run: trunkline import cursor --remove-originals" in err


def test_the_originals_are_taken_out_with_a_backup(desk: Desk) -> None:
    source = desk.have("cursor", {"github": GITHUB, "broken": {}}, theme="dark")
    before = source.read_bytes()
    outcome = desk.run("cursor", "--yes", "--remove-originals", "--json")
    said = json.loads(outcome.out)
    assert json.loads(source.read_text(encoding="utf-8")) == {"mcpServers": {"broken": {}}, "theme": "dark"}
    ((file, backup),) = [(Path(each["file"]), Path(each["backup"])) for each in said["removed"]]
    assert (file, backup.read_bytes()) == (source, before)
    assert desk.servers() == {"github": GITHUB}


def test_what_was_taken_out_is_put_back_by_undo(desk: Desk, cli: Cli) -> None:
    source = desk.have("cursor", {"github": GITHUB})
    before = source.read_bytes()
    _, _, err = desk.run("cursor", "--yes", "--remove-originals")
    assert "to use the servers there again, run: trunkline install --gateway --into cursor" in err
    assert cli("install", "--undo", "--into", "cursor").code == 0
    assert source.read_bytes() == before


def test_both_places_of_one_file_are_taken_out_and_a_shared_file_is_left_alone(desk: Desk) -> None:
    shared = desk.have("claude-code", {"c": {"command": "z"}}, "project")
    source = desk.have("claude-code", {"b": {"command": "y"}}, "local", mcpServers={"a": {"command": "x"}})
    before = shared.read_bytes()
    assert desk.run("claude-code", "--yes", "--remove-originals").code == 0
    left = json.loads(source.read_text(encoding="utf-8"))
    assert (left["mcpServers"], left["projects"][str(desk.machine.project)]["mcpServers"]) == ({}, {})
    assert shared.read_bytes() == before
    assert set(desk.servers()) == {"a", "b", "c"}


def test_taking_out_later_asks_for_nothing_else(desk: Desk, cli: Cli) -> None:
    source = desk.have("cursor", {"github": GITHUB})
    desk.run("cursor", "--yes")
    code, screen = cli.at_a_terminal("import", "--no-start", "--remove-originals", script=(("[y/N] ", "y\n"),))
    assert (code, waiting(desk), "nothing to import" in screen) == (0, [], False)
    assert json.loads(source.read_text(encoding="utf-8")) == {"mcpServers": {}}


def test_a_name_that_was_skipped_is_not_taken_out(desk: Desk) -> None:
    source = desk.have("cursor", {"github": GITHUB})
    desk.own.parent.mkdir()
    desk.own.write_text('{"mcpServers": {"github": {"command": "mine"}}}', encoding="utf-8")
    desk.run("cursor", "--yes", "--remove-originals")
    assert json.loads(source.read_text(encoding="utf-8")) == {"mcpServers": {"github": GITHUB}}


# --- one question for all of it --------------------------------------------------------------------------------------


def waiting(desk: Desk) -> list[str]:
    """Give the servers whose reading tools are allowed once they are listed."""
    return sorted(grant.server for grant in GrantStore(desk.own.parent / "grants.json").deferred())


@pytest.mark.parametrize(
    ("typed", "allowed", "removed"),
    [("y\n", ["github"], False), ("yes\n", ["github"], False), ("a\n", [], False), ("m\n", ["github"], True)],
)
def test_one_question_settles_what_is_allowed_and_what_is_taken_out(
    desk: Desk, typed: str, allowed: list[str], removed: bool, cli: Cli
) -> None:
    source = desk.have("cursor", {"github": GITHUB})
    code, screen = cli.at_a_terminal("import", "--no-start", "cursor", script=(("[y/a/m/N] ", typed),))
    assert (code, set(desk.servers()), waiting(desk)) == (0, {"github"}, allowed)
    assert (json.loads(source.read_text(encoding="utf-8")) == {"mcpServers": {}}) is removed
    assert "Write 1 server to " in screen


def test_the_question_says_where_is_asked_and_what_can_be_typed(desk: Desk, cli: Cli) -> None:
    desk.have("cursor", {"github": GITHUB})
    script = (("[y/a/m/N] ", "q\n"), ("Type one of: y, a, m, n, yes, no.", ""), ("[y/a/m/N] ", "n\n"))
    code, screen = cli.at_a_terminal("import", "--no-start", "cursor", script=script)
    assert code == 6, screen
    assert "in mode client the client does" in screen


def test_the_mode_of_a_gateway_is_said_with_one_prefix(desk: Desk) -> None:
    desk.have("cursor", {"github": GITHUB})
    ended = desk.run("cursor", "--yes")
    assert "trunkline: a gateway over stdio (trunkline serve) has approval mode client: " in ended.err


@pytest.mark.parametrize(
    ("flags", "keys", "typed", "allowed"),
    [
        (("--allow-reading",), "[y/m/N]", "y\n", ["github"]),
        (("--ask-all",), "[y/m/N]", "y\n", []),
        (("--remove-originals",), "[y/a/N]", "a\n", []),
        (("--remove-originals", "--allow-reading"), "[y/N]", "y\n", ["github"]),
    ],
)
def test_what_the_command_line_said_is_not_asked(
    desk: Desk, flags: tuple[str, ...], keys: str, typed: str, allowed: list[str], cli: Cli
) -> None:
    source = desk.have("cursor", {"github": GITHUB})
    code, _ = cli.at_a_terminal("import", "--no-start", "cursor", *flags, script=((keys, typed),))
    assert (code, waiting(desk)) == (0, allowed)
    left = json.loads(source.read_text(encoding="utf-8"))["mcpServers"]
    assert (left == {}) is ("--remove-originals" in flags)


@pytest.mark.parametrize(("flags", "allowed"), [((), []), (("--ask-all",), []), (("--allow-reading",), ["github"])])
def test_a_script_allows_reading_only_by_a_flag(desk: Desk, flags: tuple[str, ...], allowed: list[str]) -> None:
    desk.have("cursor", {"github": GITHUB})
    assert desk.run("cursor", "--yes", *flags).code == 0
    assert waiting(desk) == allowed


def test_flags_that_contradict_each_other_are_refused(desk: Desk) -> None:
    desk.have("cursor", {"github": GITHUB})
    assert desk.run("cursor", "--yes", "--allow-reading", "--ask-all").code == 1
    assert not desk.own.exists()


def test_a_dry_run_allows_nothing_and_takes_nothing_out(desk: Desk) -> None:
    source = desk.have("cursor", {"github": GITHUB})
    before = source.read_bytes()
    code, out, _ = desk.run("cursor", "--dry-run", "--allow-reading", "--remove-originals")
    assert (code, waiting(desk), source.read_bytes()) == (0, [], before)
    assert f"--- {source}" in out
    assert "s3cret" not in out


def test_one_server_can_be_picked(desk: Desk) -> None:
    desk.have("cursor", {"a": {"command": "x"}, "b": {"command": "y"}})
    desk.run("cursor", "--only", "b", "--yes")
    assert set(desk.servers()) == {"b"}
    assert desk.run("cursor", "--only", "c", "--yes").code == 2


def test_the_file_that_is_written_to_is_no_original(desk: Desk) -> None:
    path = desk.machine.project / "mine.json"
    path.write_text(json.dumps({"mcpServers": {"github": GITHUB}}), encoding="utf-8")
    desk.run("mine.json", "--to", "mine.json", "--yes", "--remove-originals")
    assert json.loads(path.read_text(encoding="utf-8")) == {"mcpServers": {"github": GITHUB}}


def test_imported_servers_are_started_once_so_that_their_tools_are_known(desk: Desk) -> None:
    plain = {
        "command": sys.executable,
        "args": ["-S", "-m", "tests.host.servers.plain"],
        "env": {"PYTHONPATH": str(Path(__file__).parents[3])},
    }
    desk.have("cursor", {"plain": plain, "absent": {"command": "/no/such/program"}})
    assert "started once" not in desk.run("cursor", "--yes", "--only", "absent").err
    _, _, err = desk.run("cursor", "--yes", "--start", "--only", "plain")
    assert "started once: 1 of 1 servers, 1 tool for the first list" in err
    assert "counts are from its last run" in desk.status().out
