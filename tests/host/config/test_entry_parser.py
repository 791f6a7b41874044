"""What an entry may say, in the words of all programs that have such entries, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.host.config.support import entry, given, problem, warnings, write

URL = "https://x.example/mcp"


@pytest.mark.parametrize(
    ("members", "type"),
    [
        pytest.param({"url": URL}, None, id="url"),
        pytest.param({"url": URL, "type": "http"}, "http", id="http"),
        pytest.param({"url": URL, "type": "streamable-http"}, "http", id="streamable-http"),
        pytest.param({"url": URL, "type": "streamableHttp"}, "http", id="streamableHttp"),
        pytest.param({"url": URL, "transport": "sse"}, "sse", id="transport"),
        pytest.param({"httpUrl": URL}, "http", id="httpUrl"),
        pytest.param({"serverUrl": URL}, None, id="serverUrl"),
        pytest.param({"serverUrl": URL, "type": "sse"}, "sse", id="serverUrl with a type"),
        pytest.param({"url": URL, "command": None}, None, id="null is nothing"),
    ],
)
def test_a_url_is_known_by_the_names_of_all_programs(tmp_path: Path, members: dict[str, Any], type: str | None) -> None:
    found = entry(tmp_path, members)
    assert (found.url, found.type, found.command, found.problem) == (URL, type, None, None)


@pytest.mark.parametrize(
    ("members", "auth"),
    [
        pytest.param({"auth": "oauth"}, "oauth", id="auth"),
        pytest.param({"oauth": True}, "oauth", id="true"),
        pytest.param({"oauth": False}, None, id="false"),
        pytest.param(
            {"oauth": {"clientId": "c", "callbackPort": 8765}}, {"clientId": "c", "callbackPort": 8765}, id="object"
        ),
        pytest.param({"auth": {"scopes": ["a"]}}, {"scopes": ["a"]}, id="auth object"),
    ],
)
def test_a_login_is_said_in_several_ways(tmp_path: Path, members: dict[str, Any], auth: object) -> None:
    assert entry(tmp_path, {"url": URL, **members}).auth == auth


@pytest.mark.parametrize(
    ("members", "disabled"),
    [({"disabled": True}, True), ({"disabled": False}, False), ({"enabled": False}, True), ({"enabled": True}, False)],
)
def test_an_entry_can_be_switched_off(tmp_path: Path, members: dict[str, Any], disabled: bool) -> None:
    assert entry(tmp_path, {"command": "x", **members}).disabled is disabled


@pytest.mark.parametrize(
    ("members", "said"),
    [
        pytest.param([], "one: expected an object with a command or a url, found a list", id="no object"),
        pytest.param({}, 'it has neither a "command" to start nor a "url"', id="nothing"),
        pytest.param({"comand": "x"}, 'did you mean "command"?', id="nearly a command"),
        pytest.param({"command": "x", "url": URL}, "both command (line 4) and url (line 5); keep one", id="both"),
        pytest.param({"url": URL, "httpUrl": URL}, "httpUrl: url says the same thing (line 4)", id="two urls"),
        pytest.param(
            {"command": ["npx"]},
            'expected the name of a program, found a list; the rest goes into "args"',
            id="command list",
        ),
        pytest.param({"command": ""}, "command: it is empty", id="empty command"),
        pytest.param(
            {"command": "x", "args": "-y"}, "args: expected a list of strings, found a string", id="args text"
        ),
        pytest.param(
            {"command": "x", "args": [8080]},
            "args[0]: expected a string, found a number; write it in double quotes",
            id="args number",
        ),
        pytest.param(
            {"command": "x", "env": {"P": 1}}, "env.P: expected a string, found a number; write it in", id="env number"
        ),
        pytest.param({"command": "x", "env": {"P ": "1"}}, "it is not a valid variable name; write 'P'", id="env name"),
        pytest.param({"command": "x\u0000y"}, "the character U+0000", id="NUL"),
        pytest.param(
            {"command": "x", "type": "http"},
            'an entry with "command" has type stdio, not http',
            id="command and http",
        ),
        pytest.param({"url": URL, "type": "stdio"}, 'an entry with "url" has type http or sse', id="url and stdio"),
        pytest.param({"url": URL, "type": "ws"}, "type: 'ws' is not a known transport; write stdio", id="ws"),
        pytest.param({"url": "x.example"}, "it is not the URL of a server; it begins with http://", id="no scheme"),
        pytest.param({"url": "https://[x"}, "it is not the URL of a server", id="broken URL"),
        pytest.param({"url": "https://me:pw@x.example"}, "it has a user or a password in it", id="password in a URL"),
        pytest.param(
            {"url": URL, "headers": {"A b": "x"}}, "headers.'A b': it is not a valid header name", id="header name"
        ),
        pytest.param(
            {"url": URL, "headers": {"A": "x\ny"}}, "has characters that a header cannot carry", id="header value"
        ),
        pytest.param({"url": URL, "headers": {"A": "x", "a": "y"}}, "the header is given twice", id="header twice"),
        pytest.param({"url": URL, "auth": "sk-1"}, 'expected "oauth" or an object', id="token as auth"),
        pytest.param({"url": URL, "auth": "oauth", "oauth": {}}, "auth says the same thing", id="auth twice"),
        pytest.param({"command": "x", "disabled": 1}, "disabled: expected true or false, found a number", id="flag"),
        pytest.param(
            {"command": "x", "disabled": True, "enabled": True}, "disabled says the same thing", id="both flags"
        ),
        pytest.param(
            {"command": "x", "env_file": "a", "envFile": "b"}, "env_file says the same thing", id="two spellings"
        ),
        pytest.param({"command": "x", "trunkline": 1}, "trunkline: expected an object", id="own settings"),
    ],
)
def test_a_mistake_is_a_problem_of_the_entry_alone(tmp_path: Path, members: object, said: str) -> None:
    assert said in problem(tmp_path, members)


def test_several_mistakes_are_all_told(tmp_path: Path) -> None:
    said = problem(tmp_path, {"command": "${A}", "args": [1], "timeout": "x"})
    assert ("variable A" in said, "args[0]" in said, "one.timeout" in said) == (True, True, True)


def test_a_member_that_stands_twice_is_a_problem_with_both_lines(tmp_path: Path) -> None:
    text = '{"mcpServers": {"one": {\n"command": "x",\n"command": "y"}, "two": {"command": "z"}}}'
    entries = given(tmp_path, text).entries
    assert "mcp.json:3: one.command: it is written twice, on lines 2 and 3" in str(entries["one"].problem)
    assert entries["two"].problem is None


@pytest.mark.parametrize(
    ("members", "said"),
    [
        pytest.param({"command ": "x"}, 'the name has hidden space after it; write "command"', id="name"),
        pytest.param(
            {"\u200bcommand": "x"}, "the name has the invisible character U+200B in it", id="invisible in a name"
        ),
        pytest.param({"command": " npx"}, "command: the value has hidden space before it; take it out", id="command"),
        pytest.param({"command": "npx\u00a0"}, "the invisible character U+00A0", id="command, no-break space"),
        pytest.param({"url": f"{URL} "}, "url: the value has hidden space after it", id="url"),
        pytest.param({"url": URL, "headers": {"A": "x "}}, "look for a line end or a space", id="header value"),
    ],
)
def test_hidden_space_is_named(tmp_path: Path, members: dict[str, Any], said: str) -> None:
    assert said in problem(tmp_path, members)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        pytest.param(
            {"command": "x", "timout": 3},
            "one.'timout': unknown member, ignored; did you mean \"timeout\"?",
            id="nearly known",
        ),
        pytest.param(
            {"command": "x", "trunkline": {"idlestop": 3}}, 'did you mean "idleStop"?', id="own, nearly known"
        ),
        pytest.param({"command": "x", "alwaysAllow": ["a"]}, "is set in the policy", id="alwaysAllow"),
        pytest.param({"url": URL, "headersHelper": "x"}, "no command is run to make headers", id="headersHelper"),
        pytest.param(
            {"command": "x", "headers": {"A": "b"}}, "it is for servers with a url", id="headers of a process"
        ),
        pytest.param({"url": URL, "env": {"A": "b"}}, "it is for servers that are started", id="env of a URL"),
        pytest.param({"command": "npx -y x"}, 'put the arguments into "args"', id="arguments in the command"),
        pytest.param({"command": "x", "args": ["a\u200bb"]}, "the invisible character U+200B", id="invisible in args"),
    ],
)
def test_what_is_odd_is_told_and_stops_nothing(tmp_path: Path, members: dict[str, Any], said: str) -> None:
    assert [said in each for each in warnings(tmp_path, members)] == [True]


@pytest.mark.parametrize("name", ["description", "gallery", "version", "dev", "_note", "// why"])
def test_remarks_of_other_programs_are_left_alone(tmp_path: Path, name: str) -> None:
    assert warnings(tmp_path, {"command": "x", name: "y"}) == []


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 64, "constructor", "__proto__", "servers"])
def test_a_usual_name_is_taken(tmp_path: Path, name: str) -> None:
    assert given(tmp_path, {"mcpServers": {name: {"command": "x"}}}).entries[name].problem is None


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        pytest.param("my server", "my-server", id="space"),
        pytest.param("a/b", "a-b", id="slash"),
        pytest.param("a..b", "a.b", id="dots"),
        pytest.param("", "server", id="empty"),
        pytest.param("x" * 65, "x" * 50, id="long"),
        pytest.param("caf\u00e9", "caf", id="letters beyond ASCII"),
        pytest.param("\x1b[31mred", "31mred", id="control characters"),
        pytest.param("trunkline", "trunkline-1", id="reserved"),
    ],
)
def test_a_bad_name_is_a_problem_with_a_better_one(tmp_path: Path, name: str, suggested: str) -> None:
    found = given(tmp_path, {"mcpServers": {name: {"command": "x"}, "good": {"command": "y"}}}).entries
    assert f'rename it, for example to "{suggested}"' in str(found[name].problem)
    assert "\x1b" not in str(found[name].problem)
    assert found["good"].problem is None


def test_two_names_that_differ_only_in_case_are_a_problem_of_the_second(tmp_path: Path) -> None:
    found = given(tmp_path, {"mcpServers": {"Git": {"command": "x"}, "git": {"command": "y"}}}).entries
    assert found["Git"].problem is None
    assert "the name differs only in case from 'Git' on line 3" in str(found["git"].problem)


# --- env files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "env"),
    [
        pytest.param("\ufeffA=one\r\nB=two", {"A": "one", "B": "two"}, id="from Windows"),
        pytest.param("# head\n\n  export A = one # tail\n", {"A": "one"}, id="comments and export"),
        pytest.param('A="one # two"\nB=\'x"y\'', {"A": "one # two", "B": 'x"y'}, id="quotes"),
        pytest.param('A="a\\nb\\"c\\\\d\\x"', {"A": 'a\nb"c\\d\\x'}, id="escapes"),
        pytest.param('A="one\ntwo"\nB=x', {"A": "one\ntwo", "B": "x"}, id="several lines"),
        pytest.param("A=\nB=x#y", {"A": "", "B": "x#y"}, id="empty, and a sign within"),
        pytest.param("A=${HOME}\nB=x=y", {"A": "${HOME}", "B": "x=y"}, id="nothing is filled in"),
        pytest.param("A=1\nA=2", {"A": "2"}, id="the last holds"),
    ],
)
def test_an_env_file_gives_variables(tmp_path: Path, text: str, env: dict[str, str]) -> None:
    write(tmp_path / "sub" / ".env", text)
    assert dict(entry(tmp_path, {"command": "x", "envFile": "sub/.env"}).env) == env


def test_the_entry_itself_beats_its_env_file_and_values_of_the_file_are_secret(tmp_path: Path) -> None:
    write(tmp_path / ".env", "A=from-file\nB=other-value\nC=abc")
    found = entry(tmp_path, {"command": "x", "envFile": "${workspaceFolder}/.env", "env": {"A": "own"}})
    assert dict(found.env) == {"A": "own", "B": "other-value", "C": "abc"}
    assert found.secrets == {"from-file", "other-value"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("A=1\nnonsense\n", "envFile: line 2 of the file is no NAME=value", id="nonsense"),
        pytest.param('A="open\nB=1', "line 1 of the file is no NAME=value", id="open quote"),
        pytest.param(b"A=\xff", "the file cannot be used: the file is not encoded as UTF-8", id="Latin-1"),
    ],
)
def test_a_bad_line_of_an_env_file_is_a_problem_that_does_not_show_it(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    write(tmp_path / ".env", text)
    found = problem(tmp_path, {"command": "x", "envFile": ".env"})
    assert said in found
    assert "nonsense" not in found


def test_an_env_file_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    said = problem(tmp_path, {"command": "x", "envFile": ".env"})
    assert "one.envFile: the file cannot be used: there is no such file" in said
