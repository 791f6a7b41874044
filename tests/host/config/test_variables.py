"""Variables in the values of an entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.host.config.support import entry, given, problem, warnings, write
from trunkline.host.config.loading import load_configuration


@pytest.mark.parametrize(
    ("written", "environ", "filled"),
    [
        pytest.param("x${A}y${B}z", {"A": "one", "B": "two"}, "xoneytwoz", id="within"),
        pytest.param("${env:A}", {"A": "one"}, "one", id="env:"),
        pytest.param("${A:-other}", {}, "other", id="default"),
        pytest.param("${A:-other}", {"A": ""}, "other", id="default for empty"),
        pytest.param("${A:-}", {}, "", id="empty default"),
        pytest.param("${env:A:-other}", {}, "other", id="env: with default"),
        pytest.param("${A}", {"A": ""}, "", id="set and empty"),
        pytest.param("${A}", {"A": "${B}", "B": "two"}, "${B}", id="not filled again"),
        pytest.param("$A {A} $ %A%", {"A": "one"}, "$A {A} $ %A%", id="other signs"),
        pytest.param("${userHome}", {}, "/home/ada", id="home"),
    ],
)
def test_a_variable_is_filled_in_once(tmp_path: Path, written: str, environ: dict[str, str], filled: str) -> None:
    assert entry(tmp_path, {"command": "x", "args": [written]}, environ).command == ("x", filled)


@pytest.mark.parametrize(
    ("members", "attribute", "value"),
    [
        pytest.param({"command": "${A}"}, "command", ("one",), id="command"),
        pytest.param({"command": "x", "args": ["-${A}"]}, "command", ("x", "-one"), id="args"),
        pytest.param({"command": "x", "env": {"N": "${A}"}}, "env", {"N": "one"}, id="env"),
        pytest.param({"command": "x", "cwd": "/${A}"}, "cwd", "/one", id="cwd"),
        pytest.param({"url": "https://${A}.example/"}, "url", "https://one.example/", id="url"),
        pytest.param({"url": "https://x.example", "headers": {"X": "${A}"}}, "headers", {"X": "one"}, id="headers"),
        pytest.param(
            {"url": "https://x.example", "oauth": {"clientId": "${A}"}}, "auth", {"clientId": "one"}, id="oauth"
        ),
    ],
)
def test_a_variable_is_filled_into_each_member_that_reaches_a_server(
    tmp_path: Path, members: dict[str, Any], attribute: str, value: object
) -> None:
    assert getattr(entry(tmp_path, members, {"A": "one"}), attribute) == value


@pytest.mark.parametrize(
    ("members", "key"),
    [
        pytest.param({"command": "${NOPE}"}, "one.command", id="command"),
        pytest.param({"command": "x", "args": ["a", "${NOPE}"]}, "one.args[1]", id="args"),
        pytest.param({"command": "x", "env": {"N": "a${NOPE}"}}, "one.env.N", id="env"),
        pytest.param({"command": "x", "cwd": "${NOPE}"}, "one.cwd", id="cwd"),
        pytest.param({"command": "x", "envFile": "${NOPE}"}, "one.envFile", id="envFile"),
        pytest.param({"url": "https://${NOPE}/"}, "one.url", id="url"),
        pytest.param({"url": "https://x.example", "headers": {"X": "${NOPE}"}}, "one.headers.X", id="headers"),
        pytest.param({"url": "https://x.example", "oauth": {"a": ["${NOPE}"]}}, "one.oauth.a[0]", id="oauth"),
        pytest.param({"command": "x", "roots": ["${NOPE}"]}, "one.roots[0]", id="roots"),
        pytest.param({"command": "x", "sandbox": {"a": "${NOPE}"}}, "one.sandbox.a", id="sandbox"),
    ],
)
def test_an_unset_variable_is_a_problem_that_names_variable_file_line_key_and_fix(
    tmp_path: Path, members: dict[str, Any], key: str
) -> None:
    said = problem(tmp_path, members)
    line = (tmp_path / "mcp.json").read_text().split("${NOPE}")[0].count("\n") + 1
    assert said.startswith(f"{tmp_path / 'mcp.json'}:{line}: {key}: the variable NOPE is not set; set NOPE, or write")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        pytest.param("${A", "${ has no closing }", id="open"),
        pytest.param("${}", "no variable name between", id="no name"),
        pytest.param("${A B}", "no variable name between", id="space"),
        pytest.param("${A:-${B}}", "the default of ${A} holds a variable", id="within a default"),
        pytest.param("${config:x.y}", "${config:...} is an unknown kind of variable", id="of another program"),
        pytest.param("${input:key}", "no input 'key' is declared in this file (declared: none)", id="no such input"),
    ],
)
def test_what_is_no_variable_between_braces_is_a_problem(tmp_path: Path, written: str, said: str) -> None:
    assert said in problem(tmp_path, {"command": "x", "args": [written]}, {"A": "one"})


def test_the_folder_of_the_user_is_no_workspace(tmp_path: Path) -> None:
    content = {"mcpServers": {"one": {"command": "x", "cwd": "${workspaceFolder}"}}}
    configuration = load_configuration(user=write(tmp_path / "mcp.json", content), environ={})
    assert "the variable workspaceFolder is not set" in str(configuration.entries["one"].problem)


@pytest.mark.parametrize("name", ["mcp.json", ".vscode/mcp.json", ".cursor/mcp.json"])
def test_paths_are_relative_to_the_folder_of_the_project(tmp_path: Path, name: str) -> None:
    content = {"mcpServers": {"one": {"command": "x", "args": ["${workspaceFolder}"], "cwd": "sub"}}}
    found = load_configuration(project=write(tmp_path / name, content), environ={}).entries["one"]
    assert (found.command, found.cwd) == (("x", str(tmp_path)), str(tmp_path / "sub"))


@pytest.mark.parametrize(
    ("written", "path"), [("~/x", "/home/ada/x"), ("~", "/home/ada"), ("/x/../y", "/y"), ("~ada", "{}/~ada")]
)
def test_a_tilde_is_the_home_of_the_current_user(tmp_path: Path, written: str, path: str) -> None:
    assert entry(tmp_path, {"command": "x", "cwd": written}).cwd == path.format(tmp_path)


def test_a_program_under_the_home_is_found_there(tmp_path: Path) -> None:
    assert entry(tmp_path, {"command": "~/bin/x"}).command == ("/home/ada/bin/x",)


@pytest.mark.parametrize("written", ["$TOKEN", "%TOKEN%"])
def test_a_variable_as_other_programs_write_it_is_told(tmp_path: Path, written: str) -> None:
    said = warnings(tmp_path, {"command": "x", "env": {"A": written}})
    assert [each.endswith(f"{written} is passed on as it is written; write ${{TOKEN}}") for each in said] == [True]


# --- what is secret --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "environ", "secrets"),
    [
        pytest.param("a${A}b", {"A": "value"}, {"value"}, id="a part"),
        pytest.param("${A:-written}", {}, set(), id="a default"),
        pytest.param("${A:-written}", {"A": "value"}, {"value"}, id="not the default"),
        pytest.param("${A}", {"A": "abc"}, set(), id="too short"),
        pytest.param("${A}", {"A": "true"}, set(), id="a mere word"),
        pytest.param("${HOME}", {"HOME": "/home/ada"}, set(), id="where one is"),
    ],
)
def test_what_comes_out_of_a_variable_is_secret(
    tmp_path: Path, written: str, environ: dict[str, str], secrets: set[str]
) -> None:
    assert entry(tmp_path, {"command": "x", "args": [written]}, environ).secrets == secrets


TOKEN = "NDk4ZmE1ODctMzY5Mi00ZGQ2"


@pytest.mark.parametrize(
    ("members", "value", "shown"),
    [
        pytest.param({"command": "${A}"}, "/opt/x/bin/python3.12", "/opt/x/bin/python3.12", id="a program's path"),
        pytest.param({"command": "${A}"}, "C:\\Tools\\x.exe", "'C:\\Tools\\x.exe'", id="a path of Windows"),
        pytest.param({"command": "x", "args": ["--dir=${A}"]}, "./work", "x --dir=./work", id="in an argument"),
        pytest.param({"url": "${A}"}, "https://x.example/mcp", "https://x.example/mcp", id="a URL"),
        pytest.param({"url": "https://${A}/mcp"}, "x.example:8443", "https://x.example:8443/mcp", id="a host"),
        pytest.param(
            {"url": "${A}"}, f"https://x.example/s/{TOKEN}/mcp", "https://x.example/s/***/mcp", id="a token in a URL"
        ),
    ],
)
def test_a_value_that_decides_what_runs_or_is_reached_is_shown_although_a_variable_holds_it(
    tmp_path: Path, members: dict[str, Any], value: str, shown: str
) -> None:
    assert entry(tmp_path, members, {"A": value}).shown == shown


@pytest.mark.parametrize(
    ("members", "name", "value"),
    [
        pytest.param({"command": "${A}"}, "A", TOKEN, id="a token for a program"),
        pytest.param({"command": "x", "args": ["${A}"]}, "A", "x.example", id="a host that nobody reaches"),
        pytest.param({"command": "x", "args": ["${MY_TOKEN}"]}, "MY_TOKEN", "/looks/like/a/path", id="by its name"),
        pytest.param({"command": "x", "args": ["--token", "${A}"]}, "A", "/looks/like/a/path", id="by its flag"),
        pytest.param({"command": "x", "args": ["--api-key=${A}"]}, "A", "/looks/like/a/path", id="by its flag, with ="),
        pytest.param(
            {"command": "x", "args": ["${A}"]}, "A", "/wJalrXUtnFEMI/K7MDENGbPxRfiCYEXAMPLEKEY", id="as a path"
        ),
        pytest.param({"command": "x", "args": ["${A}"]}, "A", "postgres://ada:pw@db/x", id="a password in an address"),
        pytest.param({"command": "x", "args": ["${A}"]}, "A", "/a\x1b[2J/b", id="what controls a terminal"),
        pytest.param({"url": "https://x.example/${A}"}, "A", "hunter22", id="a word in a URL"),
    ],
)
def test_what_may_be_a_secret_is_not_shown_in_a_command_or_url(
    tmp_path: Path, members: dict[str, Any], name: str, value: str
) -> None:
    found = entry(tmp_path, members, {name: value})
    assert value not in found.shown
    assert "***" in found.shown


@pytest.mark.parametrize(
    "members",
    [
        pytest.param({"command": "x", "env": {"API_KEY": "sk-written"}}, id="env"),
        pytest.param({"command": "x", "args": ["--api-key", "sk-written"]}, id="argument"),
        pytest.param({"command": "x", "args": ["--token=sk-written"]}, id="argument with ="),
        pytest.param({"command": "docker", "args": ["-e", "DB_PASSWORD=sk-written"]}, id="variable in an argument"),
        pytest.param({"url": "https://x.example", "headers": {"Authorization": "Bearer sk-written"}}, id="header"),
        pytest.param({"url": "https://x.example/?api_key=sk-written"}, id="query"),
        pytest.param({"url": "https://x.example", "oauth": {"clientSecret": "sk-written"}}, id="oauth"),
    ],
)
def test_what_is_written_under_a_name_that_sounds_secret_is_secret(tmp_path: Path, members: dict[str, Any]) -> None:
    configuration = given(tmp_path, {"mcpServers": {"one": members}})
    assert "sk-written" in configuration.entries["one"].secrets
    assert "sk-written" not in repr(configuration)
    assert "sk-written" not in configuration.entries["one"].shown
