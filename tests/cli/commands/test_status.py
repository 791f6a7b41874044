"""``trunkline status``: how each server is, told without starting what may not run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.hosted import demo_entry, write_config
from tests.cli.support import ROOT, Outcome, run

CONTROL = "a\x1b[2Jb"


class Desk:
    """A folder with a configuration that is named."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Start without servers."""
        self.folder = folder
        self.config = write_config(folder / "servers.json", {})
        self._capsys = capsys

    def status(self, *words: str) -> Outcome:
        """Ask how the servers of the configuration are."""
        return run(self._capsys, "status", "-c", str(self.config), *words)

    def verb(self, *words: str) -> Outcome:
        """Run another verb with the configuration."""
        return run(self._capsys, *words, "-c", str(self.config))

    def found(self, *words: str) -> Outcome:
        """Ask how the servers are that are found."""
        return run(self._capsys, "status", *words)

    def states(self, *words: str) -> dict[str, dict[str, Any]]:
        """The same as JSON, by name."""
        return {each["name"]: each for each in json.loads(self.status("--json", *words).out)["servers"]}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    return Desk(folder, capsys)


def touching(mark: Path) -> dict[str, Any]:
    """An entry whose program leaves a trace."""
    return {"command": sys.executable, "args": ["-c", f"open({str(mark)!r}, 'w')"]}


def test_a_server_that_never_ran_is_not_started(desk: Desk) -> None:
    write_config(desk.config, {"one": demo_entry()})
    heading, row, *_ = desk.status().out.splitlines()
    assert heading.split()[:3] == ["NAME", "STATE", "REVISION"]
    assert row.split()[:3] == ["one", "not", "started"]
    assert "it has not been run yet" in desk.status().out
    assert desk.verb("list", "tools").code == 0
    assert "counts are from its last run" in desk.status().out


def test_nothing_is_started_without_check(desk: Desk) -> None:
    write_config(desk.config, {"one": touching(desk.folder / "started")})
    assert (desk.status().code, desk.states()["one"]["state"]) == (0, "known")
    assert not (desk.folder / "started").exists()


def test_a_check_starts_nothing_that_is_not_approved(desk: Desk) -> None:
    write_config(desk.folder / "mcp.json", {"one": touching(desk.folder / "started")})
    code, out, _ = desk.found("--check")
    assert (code, "unapproved" in out, "trunkline trust approve one" in out) == (0, True, True)
    assert not (desk.folder / "started").exists()


def test_a_check_tells_state_era_process_and_tools(desk: Desk) -> None:
    write_config(desk.config, {"demo": demo_entry()})
    demo = desk.states("--check")["demo"]
    assert (demo["state"], demo["era"], demo["prompts"]) == ("ready", "2026-07-28", 1)
    assert demo["pid"] > 0
    assert demo["tools"] > 10
    assert demo["source"].startswith(str(desk.config))


def test_a_check_starts_a_lazy_server_too(desk: Desk) -> None:
    write_config(desk.config, {"demo": demo_entry(start="lazy")})
    assert desk.states("--check")["demo"]["state"] == "ready"


FILTERED = {"allow": ["add", "echo"]}
DENIED = '[[rule]]\neffect = "deny"\nserver = "demo"\ntool = "echo"\n'


@pytest.mark.parametrize("words", [("--check",), ()], ids=["checked", "at rest"])
def test_tools_are_counted_that_can_be_used(words: tuple[str, ...], desk: Desk) -> None:
    write_config(desk.config, {"demo": demo_entry(tools=FILTERED)})
    assert desk.status("--check").code == 0
    demo = desk.states(*words)["demo"]
    assert demo["tools"] == 2
    assert demo["unusable"] > 5
    home = desk.folder.parent / "home"
    home.mkdir(exist_ok=True)
    (home / "policy.toml").write_text(DENIED, encoding="utf-8")
    assert desk.states(*words)["demo"]["tools"] == 1
    assert "more cannot be used here" in desk.status(*words).out


def failing_entry() -> dict[str, Any]:
    """An entry whose server declares tools and does not list them."""
    env = {"PYTHONPATH": str(ROOT)}
    return {"command": sys.executable, "args": ["-m", "tests.host.servers.failing_list"], "env": env}


def test_a_list_that_failed_is_code_5(desk: Desk) -> None:
    write_config(desk.config, {"bad": failing_entry()})
    code, out, _ = desk.status("--check")
    assert (code, "partial" in out, "tools/list failed" in out) == (5, True, True)


@pytest.mark.parametrize("words", [("bad",), ()], ids=["one server", "all"])
def test_listing_what_could_not_be_listed_is_code_5_and_nothing_else_is(words: tuple[str, ...], desk: Desk) -> None:
    write_config(desk.config, {"bad": failing_entry()})
    code, _, err = desk.verb("list", "tools", *words)
    assert (code, "bad: tools/list failed: " in err) == (5, True)
    assert desk.verb("list", "prompts", *words).code == 0


def test_what_a_lazy_server_offered_is_known_afterwards(desk: Desk) -> None:
    write_config(desk.config, {"demo": demo_entry(start="lazy")})
    assert desk.verb("list", "tools", "demo").code == 0
    demo = desk.states()["demo"]
    assert (demo["state"], demo["prompts"], demo["pid"]) == ("known", 1, None)


def test_a_server_that_does_not_start_is_code_4_with_the_reason(desk: Desk) -> None:
    write_config(desk.config, {"gone": {"command": "no-such-command"}})
    code, out, _ = desk.status("--check")
    assert (code, "command not found: no-such-command" in out) == (4, True)


def test_a_server_that_is_too_slow_is_code_4(desk: Desk) -> None:
    write_config(desk.config, {"slow": {"command": "sleep", "args": ["30"]}})
    code, out, _ = desk.status("--check", "--timeout", "0.3")
    assert (code, "starting" in out) == (4, True)


def test_one_slow_server_does_not_hide_the_others(desk: Desk) -> None:
    write_config(desk.config, {"slow": {"command": "sleep", "args": ["30"]}, "demo": demo_entry(required=True)})
    states = desk.states("--check", "--timeout", "5")
    assert (states["slow"]["state"], states["demo"]["state"]) == ("starting", "ready")


@pytest.mark.parametrize(
    ("entry", "state", "code"),
    [
        pytest.param({"comand": "x"}, "misconfigured", 2, id="misspelt"),
        pytest.param({"command": "${NO_SUCH_VARIABLE}"}, "misconfigured", 2, id="variable"),
        pytest.param({"command": "x", "disabled": True}, "disabled", 0, id="disabled"),
        pytest.param({"url": "https://mcp.example.com/mcp?key=secret"}, "known", 0, id="url"),
    ],
)
def test_an_entry_has_its_state(entry: dict[str, Any], state: str, code: int, desk: Desk) -> None:
    write_config(desk.config, {"one": entry})
    assert (desk.states()["one"]["state"], desk.status().code) == (state, code)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("", "the file is empty", id="empty"),
        pytest.param("{", "the file is not JSON", id="not JSON"),
        pytest.param("[]", "expected an object at the top", id="a list"),
        pytest.param('{"mcpServers": {"a": {"command": "x"}, "a": {"url": "y"}}}', "two entries have", id="twice"),
    ],
)
def test_a_file_that_cannot_be_used_is_code_2_with_a_message_of_its_own(text: str, sentence: str, desk: Desk) -> None:
    desk.config.write_text(text, encoding="utf-8")
    code, out, err = desk.status()
    assert (code, out) == (2, "")
    assert sentence in err


def test_a_file_that_is_not_there_is_code_2(desk: Desk) -> None:
    desk.config.unlink()
    code, _, err = desk.status()
    assert (code, "there is no such file" in err) == (2, True)


def test_a_file_that_may_not_be_read_is_code_2(desk: Desk) -> None:
    desk.config.unlink()
    desk.config.mkdir()
    code, _, err = desk.status()
    assert (code, "it is a folder" in err) == (2, True)


def test_a_broken_file_in_a_default_location_is_reported_and_hides_no_server(desk: Desk, tmp_path: Path) -> None:
    (desk.folder / "mcp.json").write_text("{", encoding="utf-8")
    (tmp_path / "home").mkdir()
    write_config(tmp_path / "home" / "mcp.json", {"mine": {"command": "x"}})
    code, out, err = desk.found()
    assert (code, "mine" in out, "the file is not JSON" in err) == (2, True, True)


def test_a_missing_configuration_is_reported(desk: Desk) -> None:
    assert desk.found() == (
        0,
        "",
        "trunkline: no servers configured; give a file with -c, or create an mcp.json here\n",
    )


def test_every_line_fits_eighty_columns(desk: Desk) -> None:
    write_config(desk.config, {"demo": {"command": "x", "args": ["word"] * 60}, "bad": {"comand": "x"}})
    assert [line for line in desk.status().out.splitlines() if len(line) > 80 and str(desk.folder) not in line] == []


def test_nothing_in_a_file_can_control_the_terminal(desk: Desk) -> None:
    write_config(desk.config, {"one": {"command": "x", "args": [CONTROL]}, CONTROL: {"command": "x"}})
    out = desk.status().out
    assert ("\x1b" in out, "\\x1b[2J" in out) == (False, True)


def test_no_secret_is_shown(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "very-secret-value")
    write_config(desk.config, {"one": {"command": "x", "args": ["--token", "${MY_TOKEN}"]}})
    ended = desk.status()
    assert "very-secret-value" not in ended.out + ended.err
    assert "very-secret-value" not in desk.status("--json").out


def test_a_time_without_a_check_is_wrong_usage(desk: Desk) -> None:
    assert desk.status("--timeout", "3").code == 1
