"""``trunkline status``: how each server is, told without starting what may not run."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.cli.hosted import SILENT, Desk, demo_entry, leaving, write_config
from tests.cli.support import ROOT, Served

CONTROL = "a\x1b[2Jb"


def states(desk: Desk, *words: str) -> dict[str, dict[str, Any]]:
    """What status says as JSON, by the name of the server."""
    return {each["name"]: each for each in desk.run("status", "--json", *words).json["servers"]}


def test_a_server_that_never_ran_is_not_started(desk: Desk) -> None:
    desk.configure(one=demo_entry())
    heading, row, *_ = desk.run("status").out.splitlines()
    assert heading.split()[:3] == ["NAME", "STATE", "REVISION"]
    assert row.split()[:3] == ["one", "not", "started"]
    assert "it has not been run yet" in desk.run("status").out
    assert desk.run("list", "tools").code == 0
    assert "counts are from its last run" in desk.run("status").out


def test_nothing_is_started_without_check(desk: Desk) -> None:
    desk.configure(one=leaving(desk.folder / "started"))
    assert (desk.run("status").code, states(desk)["one"]["state"]) == (0, "known")
    assert not (desk.folder / "started").exists()


def test_a_check_starts_nothing_that_is_not_approved(desk: Desk) -> None:
    write_config(desk.folder / "mcp.json", {"one": leaving(desk.folder / "started")})
    code, out, _ = desk.cli("status", "--check")
    assert (code, "unapproved" in out, "trunkline trust approve one" in out) == (0, True, True)
    assert not (desk.folder / "started").exists()


def test_a_check_tells_state_era_process_and_tools(desk: Desk) -> None:
    desk.configure(demo=demo_entry())
    demo = states(desk, "--check")["demo"]
    assert (demo["state"], demo["era"], demo["prompts"]) == ("ready", "2026-07-28", 1)
    assert demo["pid"] > 0
    assert demo["tools"] > 10
    assert demo["source"].startswith(str(desk.config))


FILTERED = {"allow": ["add", "echo"]}
DENIED = '[[rule]]\neffect = "deny"\nserver = "demo"\ntool = "echo"\n'


@pytest.mark.parametrize("words", [("--check",), ()], ids=["checked", "at rest"])
def test_tools_are_counted_that_can_be_used(words: tuple[str, ...], desk: Desk, demo: Served) -> None:
    desk.configure(demo={"url": demo.url, "tools": FILTERED})
    assert desk.run("status", "--check").code == 0
    row = states(desk, *words)["demo"]
    assert row["tools"] == 2
    assert row["unusable"] > 5
    desk.home.mkdir(exist_ok=True)
    (desk.home / "policy.toml").write_text(DENIED, encoding="utf-8")
    assert states(desk, *words)["demo"]["tools"] == 1
    assert "more cannot be used here" in desk.run("status", *words).out


def failing_entry() -> dict[str, Any]:
    """An entry whose server declares tools and does not list them."""
    env = {"PYTHONPATH": str(ROOT)}
    return {"command": sys.executable, "args": ["-m", "tests.host.servers.failing_list"], "env": env}


def test_a_list_that_failed_is_code_5(desk: Desk) -> None:
    desk.configure(bad=failing_entry())
    code, out, _ = desk.run("status", "--check")
    assert (code, "partial" in out, "tools/list failed" in out) == (5, True, True)


@pytest.mark.parametrize("words", [("bad",), ()], ids=["one server", "all"])
def test_listing_what_could_not_be_listed_is_code_5_and_nothing_else_is(words: tuple[str, ...], desk: Desk) -> None:
    desk.configure(bad=failing_entry())
    code, _, err = desk.run("list", "tools", *words)
    assert (code, "bad: tools/list failed: " in err) == (5, True)
    assert desk.run("list", "prompts", *words).code == 0


def test_what_a_lazy_server_offered_is_known_afterwards(desk: Desk) -> None:
    desk.configure(demo=demo_entry(start="lazy"))
    assert desk.run("list", "tools", "demo").code == 0
    demo = states(desk)["demo"]
    assert (demo["state"], demo["prompts"], demo["pid"]) == ("known", 1, None)


def test_a_server_that_does_not_start_is_code_4_with_the_reason(desk: Desk) -> None:
    desk.configure(gone={"command": "no-such-command"})
    code, out, _ = desk.run("status", "--check")
    assert (code, "command not found: no-such-command" in out) == (4, True)


def test_one_slow_server_does_not_hide_the_others(desk: Desk, demo: Served) -> None:
    desk.configure(slow=SILENT, demo={"url": demo.url, "required": True})
    found = states(desk, "--check", "--timeout", "1")
    assert (found["slow"]["state"], found["demo"]["state"]) == ("starting", "ready")


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
    desk.configure(one=entry)
    assert (states(desk)["one"]["state"], desk.run("status").code) == (state, code)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("{", "the file is not JSON", id="not JSON"),
        pytest.param('{"mcpServers": {"a": {"command": "x"}, "a": {"url": "y"}}}', "two entries have", id="twice"),
        pytest.param(None, "there is no such file", id="absent"),
    ],
)
def test_a_file_that_cannot_be_used_is_code_2_with_the_reason(text: str | None, sentence: str, desk: Desk) -> None:
    desk.config.unlink()
    if text is not None:
        desk.config.write_text(text, encoding="utf-8")
    code, out, err = desk.run("status")
    assert (code, out) == (2, "")
    assert sentence in err


def test_a_broken_file_in_a_default_location_is_reported_and_hides_no_server(desk: Desk) -> None:
    (desk.folder / "mcp.json").write_text("{", encoding="utf-8")
    desk.home.mkdir()
    write_config(desk.home / "mcp.json", {"mine": {"command": "x"}})
    code, out, err = desk.cli("status")
    assert (code, "mine" in out, "the file is not JSON" in err) == (2, True, True)


def test_a_missing_configuration_is_reported(desk: Desk) -> None:
    assert desk.cli("status") == (
        0,
        "",
        "trunkline: no servers configured; give a file with -c, or create an mcp.json here\n",
    )


def test_every_line_fits_eighty_columns(desk: Desk) -> None:
    desk.configure(demo={"command": "x", "args": ["word"] * 60}, bad={"comand": "x"})
    lines = desk.run("status").out.splitlines()
    assert [line for line in lines if len(line) > 80 and str(desk.folder) not in line] == []


def test_nothing_in_a_file_can_control_the_terminal(desk: Desk) -> None:
    desk.configure({"one": {"command": "x", "args": [CONTROL]}, CONTROL: {"command": "x"}})
    out = desk.run("status").out
    assert ("\x1b" in out, "\\x1b[2J" in out) == (False, True)


def test_no_secret_is_shown(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "very-secret-value")
    desk.configure(one={"command": "x", "args": ["--token", "${MY_TOKEN}"]})
    ended = desk.run("status")
    assert "very-secret-value" not in ended.out + ended.err
    assert "very-secret-value" not in desk.run("status", "--json").out


def test_a_time_without_a_check_is_wrong_usage(desk: Desk) -> None:
    assert desk.run("status", "--timeout", "3").code == 1
