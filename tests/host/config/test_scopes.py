"""Files of several scopes: which entries hold, and what the administrator allows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.host.config.support import write
from trunkline.errors import ConfigError
from trunkline.host.config.loading import ConfigFiles, find_config_files, load_configuration, managed_config_path
from trunkline.host.config.model import Configuration


def _server(word: str) -> dict[str, Any]:
    return {"command": word, "env": {f"FROM_{word.upper()}": "1"}}


def _loaded(folder: Path, *scopes: str, managed: dict[str, Any] | None = None, name: str = "one") -> Configuration:
    """Read one file for each scope, each with an entry of the same name."""
    files = {
        scope: write(folder / f"{scope}.json", {"mcpServers": {name: _server(scope)}, **(managed or {})})
        for scope in scopes
    }
    given = [files.pop("given")] if "given" in files else []
    return load_configuration(given=given, environ={}, **files)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scopes", "holds"),
    [
        (("managed", "given", "project", "user"), "managed"),
        (("given", "project", "user"), "given"),
        (("project", "user"), "project"),
        (("user",), "user"),
    ],
)
def test_a_whole_entry_of_the_stronger_scope_holds(tmp_path: Path, scopes: tuple[str, ...], holds: str) -> None:
    configuration = _loaded(tmp_path, *scopes)
    entry = configuration.entries["one"]
    assert (entry.source.scope, entry.command, dict(entry.env)) == (holds, (holds,), {f"FROM_{holds.upper()}": "1"})
    assert [each.entry.source.scope for each in configuration.hidden] == list(scopes[1:])
    assert {each.why for each in configuration.hidden} <= {f"hidden by {tmp_path / f'{holds}.json'}:3 ({holds})"}


def test_entries_of_all_scopes_hold_beside_each_other(tmp_path: Path) -> None:
    user = write(tmp_path / "user.json", {"mcpServers": {"a": {"command": "x"}}})
    project = write(tmp_path / "mcp.json", {"servers": {"b": {"command": "y"}}})
    configuration = load_configuration(project=project, user=user, environ={})
    assert {name: entry.source.scope for name, entry in configuration.entries.items()} == {"b": "project", "a": "user"}
    assert [(each.path, each.servers) for each in configuration.files] == [(str(project), ("b",)), (str(user), ("a",))]


def test_names_of_two_scopes_are_compared_without_regard_to_case(tmp_path: Path) -> None:
    user = write(tmp_path / "user.json", {"mcpServers": {"GitHub": {"command": "x"}}})
    project = write(tmp_path / "mcp.json", {"mcpServers": {"github": {"command": "y"}}})
    configuration = load_configuration(project=project, user=user, environ={})
    assert (list(configuration.entries), [each.entry.name for each in configuration.hidden]) == (["github"], ["GitHub"])


def test_an_entry_that_is_disabled_or_broken_still_hides_the_weaker(tmp_path: Path) -> None:
    user = write(tmp_path / "user.json", {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}})
    project = write(tmp_path / "mcp.json", {"mcpServers": {"a": {"command": "x", "disabled": True}, "b": {}}})
    entries = load_configuration(project=project, user=user, environ={}).entries
    assert (entries["a"].disabled, entries["b"].problem is None) == (True, False)


def test_of_several_files_that_were_named_a_later_one_holds(tmp_path: Path) -> None:
    first = write(tmp_path / "1.json", {"mcpServers": {"a": {"command": "x"}}})
    second = write(tmp_path / "2.json", {"mcpServers": {"a": {"command": "y"}}})
    configuration = load_configuration(given=[first, str(second)], environ={})
    assert configuration.entries["a"].command == ("y",)
    assert [each.entry.command for each in configuration.hidden] == [("x",)]


@pytest.mark.parametrize("scope", ["project", "user"])
def test_a_broken_file_in_a_default_location_does_not_affect_the_others(tmp_path: Path, scope: str) -> None:
    broken = write(tmp_path / "broken.json", "{")
    good = write(tmp_path / "good.json", {"mcpServers": {"a": {"command": "x"}}})
    configuration = load_configuration(**{scope: broken}, given=[good], environ={})  # type: ignore[arg-type]
    assert list(configuration.entries) == ["a"]
    assert [(each.severity, "not JSON" in str(each)) for each in configuration.problems] == [("error", True)]
    assert configuration.files[-1].problem == configuration.problems[0]


@pytest.mark.parametrize("content", [pytest.param("{", id="broken"), pytest.param(None, id="absent")])
def test_a_managed_file_that_cannot_be_read_ends_it(tmp_path: Path, content: str | None) -> None:
    good = write(tmp_path / "good.json", {"mcpServers": {"a": {"command": "x"}}})
    managed = tmp_path / "managed.json" if content is None else write(tmp_path / "managed.json", content)
    with pytest.raises(ConfigError, match=r"managed\.json"):
        load_configuration(given=[good], managed=managed, environ={})


# --- the same server twice -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "warned"),
    [
        pytest.param({"command": "x", "args": ["a"]}, {"command": "x", "args": ["a"]}, True, id="command"),
        pytest.param({"url": "https://x.example"}, {"url": "https://x.example"}, True, id="url"),
        pytest.param({"command": "x"}, {"command": "x", "args": ["a"]}, False, id="other arguments"),
        pytest.param({"command": "x", "env": {"A": "1"}}, {"command": "x", "env": {"A": "2"}}, False, id="other env"),
        pytest.param({"command": "x"}, {"command": "x", "disabled": True}, False, id="disabled"),
    ],
)
def test_the_same_server_under_two_names_is_told(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], warned: bool
) -> None:
    user = write(tmp_path / "user.json", {"mcpServers": {"a": one}})
    project = write(tmp_path / "mcp.json", {"mcpServers": {"b": other}})
    said = [str(each) for each in load_configuration(project=project, user=user, environ={}).problems]
    assert ["it is the same server as 'b'" in each for each in said] == [True] * warned


# --- the administrator's rules ---------------------------------------------------------------------------------------

NPX = {"command": "npx", "args": ["-y", "@good/server"]}
WEB = {"url": "https://mcp.example.com/mcp"}


def _ruled(folder: Path, rules: dict[str, Any], *, servers: dict[str, Any]) -> Configuration:
    managed = write(folder / "managed.json", {"mcpServers": {"own": {"command": "own"}}, **rules})
    return load_configuration(given=[write(folder / "mcp.json", {"mcpServers": servers})], managed=managed, environ={})


def test_an_exclusive_managed_file_leaves_only_its_own(tmp_path: Path) -> None:
    configuration = _ruled(tmp_path, {"exclusive": True}, servers={"a": NPX, "bad": {}})
    assert list(configuration.entries) == ["own"]
    assert [(each.entry.name, each.why) for each in configuration.hidden] == [
        ("a", "the managed file is exclusive"),
        ("bad", "the managed file is exclusive"),
    ]


@pytest.mark.parametrize(
    ("rules", "server", "allowed"),
    [
        pytest.param({"deniedServers": [{"name": "A"}]}, NPX, False, id="denied by name"),
        pytest.param({"deniedServers": [{"command": ["npx", "**"]}]}, NPX, False, id="denied by program"),
        pytest.param({"deniedServers": [{"command": ["npx"]}]}, NPX, True, id="fewer words"),
        pytest.param({"deniedServers": [{"command": ["*"]}]}, WEB, True, id="a command rule and a URL"),
        pytest.param({"deniedServers": [{"url": "https://*.example.com"}]}, WEB, False, id="denied by host"),
        pytest.param({"deniedServers": [{"name": "a", "url": "https://z"}]}, WEB, True, id="all members must fit"),
        pytest.param({"allowedServers": []}, NPX, False, id="nothing allowed"),
        pytest.param({"allowedServers": [{"command": ["npx", "-y", "@good/*"]}]}, NPX, True, id="allowed by command"),
        pytest.param({"allowedServers": [{"command": ["npx", "-y", "@evil/*"]}]}, NPX, False, id="not allowed"),
        pytest.param({"allowedServers": [{"url": "https://mcp.example.com:443/*"}]}, WEB, True, id="allowed by url"),
        pytest.param(
            {"allowedServers": [{"name": "a"}], "deniedServers": [{"name": "a"}]}, NPX, False, id="denial beats"
        ),
    ],
)
def test_rules_say_which_servers_may_be_used(
    tmp_path: Path, rules: dict[str, Any], server: dict[str, Any], allowed: bool
) -> None:
    configuration = _ruled(tmp_path, rules, servers={"a": server})
    assert ("a" in configuration.entries, "own" in configuration.entries) == (allowed, True)
    assert [each.entry.name for each in configuration.hidden] == ["a"] * (not allowed)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/.good.example/",
        "https://evil.example/?x=https://mcp.good.example/",
        "https://mcp.good.example.evil.example/",
        "http://mcp.good.example/",
        "https://mcp.good.example:8443/",
    ],
)
def test_another_host_does_not_fit_a_glob_over_hosts(tmp_path: Path, url: str) -> None:
    rules = {"allowedServers": [{"url": "https://*.good.example/*"}]}
    assert list(_ruled(tmp_path, rules, servers={"a": {"url": url}}).entries) == ["own"]


@pytest.mark.parametrize("path", ["/private/x", "/%70rivate/x", "/open/../private/x", "/private//x"])
def test_another_way_to_write_a_path_does_not_get_around_a_denial(tmp_path: Path, path: str) -> None:
    rules = {"deniedServers": [{"url": "https://x.example/private/*"}]}
    assert list(_ruled(tmp_path, rules, servers={"a": {"url": f"https://X.example:443{path}"}}).entries) == ["own"]


def test_a_path_that_leaves_an_allowed_one_is_not_allowed(tmp_path: Path) -> None:
    rules = {"allowedServers": [{"url": "https://x.example/open/*"}]}
    servers = {"a": {"url": "https://x.example/open/../private"}, "b": {"url": "https://x.example/open/y"}}
    assert list(_ruled(tmp_path, rules, servers=servers).entries) == ["own", "b"]


def test_a_denied_server_keeps_its_name_reserved(tmp_path: Path) -> None:
    managed = write(tmp_path / "managed.json", {"deniedServers": [{"command": ["evil"]}]})
    project = write(tmp_path / "mcp.json", {"mcpServers": {"a": {"command": "evil"}}})
    user = write(tmp_path / "user.json", {"mcpServers": {"a": {"command": "good"}}})
    assert dict(load_configuration(project=project, user=user, managed=managed, environ={}).entries) == {}


def test_an_entry_with_a_problem_is_shown_with_it_whatever_the_rules_say(tmp_path: Path) -> None:
    configuration = _ruled(tmp_path, {"allowedServers": []}, servers={"a": {"command": "${NOPE}"}})
    assert "NOPE" in str(configuration.entries["a"].problem)


@pytest.mark.parametrize(
    ("rules", "kept", "said"),
    [
        pytest.param({"deniedServers": [7, {"name": "a"}]}, {"b"}, "found a number; it is ignored", id="no object"),
        pytest.param({"deniedServers": [{"nam": "b"}, {"name": "a"}]}, {"b"}, "'nam'); it is ignored", id="unknown"),
        pytest.param({"deniedServers": [{"name": "a", "comand": ["x"]}]}, {"b"}, "denies by name alone", id="partly"),
        pytest.param(
            {"deniedServers": {"name": "a"}}, set(), "no server of others is let through", id="denied, no list"
        ),
        pytest.param({"allowedServers": "a"}, set(), "no server of others is let through", id="allowed, no list"),
        pytest.param({"allowedServers": [{"name": "a", "x": 1}]}, set(), "it is ignored", id="allowed, partly"),
        pytest.param(
            {"allowedServers": [{"command": [1]}, {"name": "a"}]}, {"a"}, "it is ignored", id="allowed, one bad"
        ),
        pytest.param({"allowedServers": [{"command": "npx"}]}, set(), "'command'); it is ignored", id="allowed, text"),
        pytest.param({"exclusive": "yes"}, set(), "found a string; true is taken", id="exclusive"),
    ],
)
def test_a_rule_that_cannot_be_read_is_told_and_lets_nothing_more_through(
    tmp_path: Path, rules: dict[str, Any], kept: set[str], said: str
) -> None:
    configuration = _ruled(tmp_path, rules, servers={"a": NPX, "b": {"command": "y"}})
    assert set(configuration.entries) == {"own"} | kept
    assert [(each.severity, said in str(each)) for each in configuration.problems] == [("error", True)]


def test_a_rule_under_a_misspelt_name_ends_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='write "deniedServers"'):
        _ruled(tmp_path, {"deniedServer": [{"name": "a"}]}, servers={"a": NPX})


def test_the_rules_are_kept_for_servers_that_come_later(tmp_path: Path) -> None:
    configuration = _ruled(tmp_path, {"deniedServers": [{"name": "own"}]}, servers={})
    refusal = configuration.rules.denial(configuration.entries["own"])
    assert refusal is not None
    assert "denies it" in refusal.why


# --- where files are -------------------------------------------------------------------------------------------------

_ORDER = ("mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json")


@pytest.mark.parametrize("first", range(4), ids=_ORDER)
def test_the_first_file_of_a_project_is_found(tmp_path: Path, first: int) -> None:
    paths = [write(tmp_path / "here" / name, "{}") for name in _ORDER[first:]]
    found = find_config_files(tmp_path / "here", user_folder=tmp_path / "home", managed=tmp_path / "none")
    assert found == ConfigFiles(project=paths[0])


def test_the_files_of_user_and_administrator_are_found(tmp_path: Path) -> None:
    user, managed = write(tmp_path / "home" / "mcp.json", "{}"), tmp_path / "managed.json"
    managed.symlink_to(tmp_path / "gone")
    found = find_config_files(tmp_path / "here", user_folder=tmp_path / "home", managed=managed)
    assert found == ConfigFiles(user=user, managed=managed)


def test_the_folder_above_is_not_looked_into(tmp_path: Path) -> None:
    write(tmp_path / "mcp.json", "{}")
    assert (
        find_config_files(tmp_path / "sub", user_folder=tmp_path / "home", managed=tmp_path / "none") == ConfigFiles()
    )


def test_the_user_is_no_project_in_the_users_own_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "mcp.json", "{}")
    assert find_config_files(tmp_path, user_folder=tmp_path, managed=tmp_path / "none") == ConfigFiles(user=path)


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_the_managed_file_lies_where_only_an_administrator_writes(
    monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert managed_config_path().name == "mcp.json"
    assert managed_config_path().parent.name.lower() == "trunkline"
