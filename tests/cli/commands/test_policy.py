"""``trunkline policy``: what is decided and why, tests of a policy, and its mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.hosted import demo_entry
from tests.cli.support import Cli

POLICY = """\
[[rule]]
name = "work files"
effect = "allow"
server = "files"
tool = "read_*"
when = [{ arg = "/path", within = "~/work" }]

[[rule]]
name = "no deletes"
effect = "deny"
tool = "delete_*"
message = "Deleting is not done here."

[[rule]]
effect = "deny"
server = "mail"
"""
CONFIG = {
    "mcpServers": {
        "files": {"command": "no-such-program-anywhere", "cwd": "/srv"},
        "mail": {"url": "https://mail.example/mcp"},
        "safe": {"command": "no-such-program-anywhere", "trusted": True},
    }
}
READER = ("--annotations", '{"read_only": true}')


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of our own, with a policy and a configuration in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    (tmp_path / "policy.toml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "servers.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return tmp_path


def _why(cli: Cli, *arguments: str) -> tuple[int, dict[str, Any]]:
    outcome = cli("policy", "why", "--policy", "policy.toml", "--json", *arguments)
    return outcome.code, json.loads(outcome.out)


# --- why -------------------------------------------------------------------------------------------------------------


def test_why_shows_the_decision_the_rule_and_the_others(cli: Cli) -> None:
    outcome = cli("policy", "why", "--policy", "policy.toml", "files/delete_it")
    assert outcome.code == 6
    assert outcome.out.splitlines() == [
        "deny: files/delete_it",
        "  by no deletes (policy.toml:8)",
        "  because rule 'no deletes' (policy.toml:8) denies",
        "  message to the caller: Deleting is not done here.",
        "  not listed",
        "",
        "RULE           EFFECT  TIER  OUTCOME  WHY",
        "policy.toml:8  deny    0     decided  it has no conditions",
        "",
        "2 other rules do not apply here; --all shows them",
    ]


def test_why_shows_the_rules_about_something_else_on_demand(cli: Cli) -> None:
    outcome = cli("policy", "why", "--policy", "policy.toml", "files/delete_it", "--all")
    assert "its server is mail" in outcome.out
    assert "--all" not in outcome.out


@pytest.mark.parametrize(
    ("arguments", "code", "rule"),
    [
        (("files/read_it", "--args", '{"path": "HOME/work/a"}'), 0, "work files"),
        (("files/read_it", "--args", '{"path": "/etc/passwd"}'), 0, "default: untrusted server"),
        (("files/x", "--trusted", "--annotations", '{"readOnlyHint": true, "title": "T"}'), 0, "default: reading tool"),
        (("files/x", *READER, "--trusted", "--tainted"), 0, "default: open tool, tainted session"),
        (("mail/x",), 6, "policy.toml:14"),
        (("files/memo:x", "--kind", "resource"), 0, "default: resources and prompts"),
        (("files", "--kind", "sampling", "--caller", "server"), 0, "default: questions of servers"),
        (("safe/x", "-c", "servers.json", "--annotations", '{"readOnlyHint": true}'), 0, "default: reading tool"),
        (("files/x", "-c", "servers.json", "--principal", "al", "--profile", "p"), 0, "default: untrusted server"),
    ],
)
def test_why_ends_with_6_if_it_is_denied_and_with_0_if_not(
    cli: Cli, folder: Path, arguments: tuple[str, ...], code: int, rule: str
) -> None:
    ended, document = _why(cli, *(each.replace("HOME", str(folder)) for each in arguments))
    assert (ended, document["decision"]["rule"]) == (code, rule)


def test_why_as_json_has_the_whole_trace(cli: Cli) -> None:
    _, document = _why(cli, "files/read_it", "--annotations", '{"readOnlyHint": true}')
    assert document["listed"] is True
    assert document["notes"] == ["the server is not trusted: its hints are ignored"]
    assert [step["outcome"] for step in document["steps"]] == ["no", "no", "no"]


def test_a_relative_path_is_read_from_the_folder_of_its_server(cli: Cli, folder: Path) -> None:
    (folder / "policy.toml").write_text(POLICY.replace("~/work", "/srv"), encoding="utf-8")
    given = ("--args", '{"path": "a.txt"}')
    assert _why(cli, "files/read_it", "-c", "servers.json", *given)[1]["decision"]["rule"] == "work files"
    assert _why(cli, "files/read_it", *given)[1]["decision"]["effect"] == "ask"


def test_the_users_own_policy_is_asked_where_none_is_named(cli: Cli, folder: Path) -> None:
    assert cli("policy", "why", "mail/x").code == 0
    (folder / "home").mkdir()
    (folder / "home" / "policy.toml").write_text(POLICY, encoding="utf-8")
    assert cli("policy", "why", "mail/x").code == 6


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("files",), 1, "'files' is not SERVER/NAME."),
        (("/x",), 1, "'/x' is not SERVER/NAME."),
        (("files/x", "--args", "[]"), 1, "--args is not a JSON object."),
        (("files/x", "--annotations", "[]"), 1, "--annotations is not a JSON object"),
        (("files/x", "--annotations", '{"x": true}'), 1, "x is not a known annotation with a boolean value"),
        (
            ("files/x", "--annotations", '{"readOnlyHint": 1}'),
            1,
            "read_only is not a known annotation with a boolean value",
        ),
        (("fils/x", "-c", "servers.json"), 2, "there is no server 'fils': did you mean 'files'?"),
        (("zzz/x", "-c", "servers.json"), 2, "there is no server 'zzz': there are files, mail, safe"),
        (("files/x", "-c", "none.json"), 2, "none.json"),
        (("files/x", "--policy", "none.toml"), 2, "none.toml cannot be read"),
    ],
)
def test_what_is_asked_wrongly_is_told(cli: Cli, arguments: tuple[str, ...], code: int, said: str) -> None:
    outcome = cli("policy", "why", *arguments)
    assert outcome.code == code
    assert said in outcome.err


def test_what_others_wrote_cannot_control_the_terminal(cli: Cli, folder: Path) -> None:
    (folder / "policy.toml").write_text(POLICY.replace("no deletes", "\\u001b[31mred"), encoding="utf-8")
    assert "\x1b" not in cli("policy", "why", "--policy", "policy.toml", "files/delete_\x1b[2J").out


# --- test ------------------------------------------------------------------------------------------------------------

CASES = """
[[test]]
name = "deleting"
server = "files"
tool = "delete_it"
expect = "deny"
rule = "no deletes"

[[test]]
server = "mail"
tool = "x"
expect = "allow"
"""


def test_the_tests_in_a_policy_are_run(cli: Cli, folder: Path) -> None:
    (folder / "policy.toml").write_text(POLICY + CASES, encoding="utf-8")
    outcome = cli("policy", "test", "policy.toml")
    assert outcome.code == 5
    assert outcome.out.splitlines() == [
        "policy.toml:25: expected allow, got deny by policy.toml:14",
        "1 passed, 1 failed",
    ]


def test_the_tests_of_another_file_are_run(cli: Cli, folder: Path) -> None:
    (folder / "cases.toml").write_text(CASES.replace('"allow"', '"deny"'), encoding="utf-8")
    outcome = cli("policy", "test", "policy.toml", "cases.toml")
    assert (outcome.code, outcome.out) == (0, "2 passed, 0 failed\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("policy.toml",), "policy.toml has no [[test]]"),
        (("none.toml",), "none.toml cannot be read"),
        ((), "policy.toml"),
    ],
)
def test_where_there_is_nothing_to_test_that_is_an_error(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    outcome = cli("policy", "test", *arguments)
    assert outcome.code == 2
    assert said in outcome.err


# --- check -----------------------------------------------------------------------------------------------------------


def test_a_policy_without_mistakes_is_counted(cli: Cli) -> None:
    outcome = cli("policy", "check", "policy.toml", "-c", "servers.json")
    assert (outcome.code, outcome.out) == (0, "3 rules, no problems\n")


def test_a_rule_about_no_server_is_an_error(cli: Cli, folder: Path) -> None:
    (folder / "policy.toml").write_text(POLICY.replace('"mail"', '"mial"'), encoding="utf-8")
    outcome = cli("policy", "check", "policy.toml", "-c", "servers.json")
    assert outcome.code == 2
    assert outcome.out.splitlines() == [
        "error: policy.toml:14: there is no server 'mial': did you mean 'mail'?",
        "3 rules, 1 problem",
    ]


def test_a_rule_that_denies_a_tool_which_does_not_exist_is_an_error_once_the_server_has_run(
    cli: Cli, folder: Path
) -> None:
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"demo": demo_entry()}}), encoding="utf-8")
    (folder / "policy.toml").write_text('[[rule]]\neffect = "deny"\nserver = "demo"\ntool = "ehco"\n', encoding="utf-8")
    unknown = cli("policy", "check", "policy.toml", "-c", "servers.json")
    assert (unknown.code, unknown.out) == (0, "1 rule, no problems\n")
    assert "the tools of demo are not known yet" in unknown.err
    assert cli("list", "tools", "demo", "-c", "servers.json").code == 0
    known = cli("policy", "check", "policy.toml", "-c", "servers.json")
    assert (known.code, known.out.splitlines()[0]) == (
        2,
        "error: policy.toml:1: no tool of demo matches 'ehco': did you mean 'echo'?",
    )


def test_a_rule_about_an_argument_which_does_not_exist_is_an_error_once_the_server_has_run(
    cli: Cli, folder: Path
) -> None:
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"demo": demo_entry()}}), encoding="utf-8")
    rule = '[[rule]]\neffect = "deny"\nserver = "demo"\ntool = "echo"\nwhen = [{ arg = "/txt", glob = "*x*" }]\n'
    (folder / "policy.toml").write_text(rule, encoding="utf-8")
    assert cli("list", "tools", "demo", "-c", "servers.json").code == 0
    outcome = cli("policy", "check", "policy.toml", "-c", "servers.json")
    assert (outcome.code, outcome.out.splitlines()[0]) == (
        2,
        "error: policy.toml:1: demo/echo has no argument 'txt': did you mean 'text'?",
    )


def test_a_warning_is_no_failure(cli: Cli, folder: Path) -> None:
    (folder / "policy.toml").write_text('[[rule]]\neffect = "deny"\nserver = "x*"\n', encoding="utf-8")
    outcome = cli("policy", "check", "policy.toml", "-c", "servers.json", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out) == {
        "rules": 1,
        "findings": [{"severity": "warning", "where": "policy.toml:1", "message": "no server matches 'x*'"}],
    }


def test_mistakes_are_told_with_their_lines(cli: Cli, folder: Path) -> None:
    (folder / "policy.toml").write_text('[[rule]]\neffect = "allow"\nserver = "*"\n', encoding="utf-8")
    outcome = cli("policy", "check", "policy.toml")
    assert outcome.code == 2
    assert "policy.toml:3: server: a rule that allows may not use the pattern '*'" in outcome.err


def test_tests_as_json(cli: Cli, folder: Path) -> None:
    (folder / "cases.toml").write_text(CASES, encoding="utf-8")
    outcome = cli("policy", "test", "policy.toml", "cases.toml", "--json")
    document = json.loads(outcome.out)
    assert (document["passed"], document["failed"]) == (1, 1)
    assert [each["failure"] for each in document["tests"]] == [None, "expected allow, got deny by policy.toml:14"]
    assert document["tests"][0]["name"] == "deleting"
    assert "1 of 2 tests failed" in outcome.err
