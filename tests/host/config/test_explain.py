"""What is said about a configuration: provenance of every value, and never a secret."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from tests.host.config.support import given, write
from tests.host.config.test_documents import REMOTE, STDIO
from trunkline.errors import ConfigError
from trunkline.host.config.documents import ConfigDocument, parse_env_file
from trunkline.host.config.entry_reader import EntryContext
from trunkline.host.config.jsonc import JsonProperty, JsonScalar
from trunkline.host.config.loading import explain, load_configuration
from trunkline.host.config.model import Configuration
from trunkline.host.config.variables import VariableSources, expand

SECRET = "s3cr3t-v4lue"


def _values(configuration: Configuration, name: str) -> dict[str, tuple[str, int | None]]:
    return {each.key: (each.shown, each.line) for each in configuration.provenance(name).values}


def test_every_value_of_a_started_server_has_its_line(tmp_path: Path) -> None:
    assert _values(given(tmp_path, STDIO), "filesystem") == {
        "command": ("node", 4),
        "args[0]": ("path/to/filesystem-server.js", 5),
        "env.ROOT_PATH": ("/workspace", 7),
    }


@pytest.mark.parametrize(("environ", "state"), [({}, "unset"), ({"GITHUB_TOKEN": SECRET}, "set")])
def test_a_variable_is_shown_as_it_is_written_with_whether_it_is_set(
    tmp_path: Path, environ: dict[str, str], state: str
) -> None:
    document = explain(given(tmp_path, REMOTE, environ))
    assert document["servers"][0]["values"][1] == {
        "key": "headers.Authorization",
        "shown": "Bearer ${GITHUB_TOKEN}",
        "file": str(tmp_path / "mcp.json"),
        "line": 6,
        "variables": [{"name": "GITHUB_TOKEN", "kind": "variable", "state": state}],
    }


@pytest.mark.parametrize(
    ("members", "key", "shown"),
    [
        pytest.param(
            {"url": "https://x.example", "headers": {"Authorization": "Bearer abcdef"}},
            "headers.Authorization",
            "Bearer ***",
            id="token",
        ),
        pytest.param(
            {"url": "https://x.example", "headers": {"X-Any": "a-${A:-b}"}},
            "headers.X-Any",
            "***${A:-b}",
            id="header with a variable",
        ),
        pytest.param(
            {"url": "https://x.example/?key=abcdef&v=${A:-1}"},
            "url",
            "https://x.example/?key=***&v=${A:-1}",
            id="query",
        ),
        pytest.param({"url": "https://me:abcdef@x.example/"}, "url", "https://***@x.example/", id="password in a URL"),
        pytest.param({"command": "x", "args": ["--token", "abcdef"]}, "args[1]", "***", id="argument"),
        pytest.param({"command": "x", "args": ["--token=abcdef"]}, "args[0]", "--token=***", id="argument with ="),
        pytest.param(
            {"url": "https://x.example", "oauth": {"clientSecret": "abcdef"}}, "oauth.clientSecret", "***", id="oauth"
        ),
        pytest.param({"command": "x", "timeout": 30}, "timeout", "30 s", id="setting"),
        pytest.param({"command": "x", "tools": ["a", "b*"]}, "tools", "a, b*", id="filter"),
    ],
)
def test_a_value_is_shown_without_what_may_be_secret_in_it(
    tmp_path: Path, members: dict[str, Any], key: str, shown: str
) -> None:
    assert _values(given(tmp_path, {"mcpServers": {"one": members}}), "one")[key][0] == shown


def test_variables_of_an_env_file_have_its_name_and_their_lines(tmp_path: Path) -> None:
    write(tmp_path / ".env", f"A={SECRET}\nB=own")
    members = {"command": "x", "envFile": ".env", "env": {"B": "mine"}}
    values = given(tmp_path, {"mcpServers": {"one": members}}).provenance("one").values
    assert [(each.key, each.shown, each.file, each.line) for each in values if each.key.startswith("env.")] == [
        ("env.B", "mine", str(tmp_path / "mcp.json"), 7),
        ("env.A", "***", str(tmp_path / ".env"), 1),
    ]


def test_one_entry_is_explained_alone(tmp_path: Path) -> None:
    servers = {"a": {"command": "x", "zzzzz": 1}, "b": {"command": "y", "qqqqq": 1}}
    document = explain(given(tmp_path, {"mcpServers": servers}), "A")
    assert [each["name"] for each in document["servers"]] == ["a"]
    assert [each["server"] for each in document["problems"]] == ["a"]


def test_unset_settings_have_their_defaults(tmp_path: Path) -> None:
    document = explain(given(tmp_path, {"mcpServers": {"a": {"command": "x", "idleStop": 5, "roots": ["/r"]}}}))
    held = document["servers"][0]["settings"]
    assert (held["idleStop"], held["roots"], held["era"], held["perUser"]) == (5.0, ["/r"], "auto", False)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("gihub", "there is no entry 'gihub'; did you mean \"github\"?", id="near"),
        pytest.param("zzz", "there is no entry 'zzz'; there are: github", id="far"),
    ],
)
def test_an_entry_that_is_not_there_is_an_error(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        explain(given(tmp_path, REMOTE), name)


def test_an_inactive_entry_is_explained_by_the_entry_that_hides_it(tmp_path: Path) -> None:
    managed = write(tmp_path / "managed.json", {"deniedServers": [{"name": "github"}]})
    configuration = load_configuration(
        given=[write(tmp_path / "mcp.json", REMOTE)], managed=managed, environ={"GITHUB_TOKEN": SECRET}
    )
    assert explain(configuration)["hidden"][0]["by"] == {"scope": "managed", "file": str(managed), "line": 3}
    with pytest.raises(ConfigError, match="is not active: deniedServers of the managed file denies it"):
        explain(configuration, "github")


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(VariableSources(environ={"A": SECRET}), id="surroundings"),
        pytest.param(expand("${A}", VariableSources(environ={"A": SECRET})), id="a text that was filled"),
        pytest.param(parse_env_file(f"A={SECRET}"), id="an env file"),
        pytest.param(ConfigDocument(file="x", servers=(JsonProperty("a", JsonScalar(SECRET)),)), id="a document"),
        pytest.param(
            EntryContext(file="x", folder="/", home="/", sources=VariableSources(environ={"A": SECRET})),
            id="the ground",
        ),
    ],
)
def test_a_record_that_holds_a_secret_does_not_print_it(record: object) -> None:
    assert SECRET not in repr(record)


# --- no secret, ever -------------------------------------------------------------------------------------------------

_TEXT = st.sampled_from(
    ["${A}", "x${A}y", "${A}${B:-z}", "${env:A}", "${A", "${input:i}", "https://${A}/", "https://x.example/${A}?k=${A}",
     "--token=${A}", "--api-key", "${A} ", "${NOPE}${A}", "\u200b${A}", "plain", "\x00${A}", "${A}\n"]
)  # fmt: skip
_WRONG = st.sampled_from([1, None, True, [], {}, ["${A}", 1], {"k": "${A}"}])
_NAMES = st.sampled_from(
    ["command", "args", "env", "cwd", "url", "httpUrl", "headers", "oauth", "auth", "envFile", "type", "roots",
     "sandbox", "era", "timeout", "tools", "disabled", "nonsense", "command ", "trunkline"]
)  # fmt: skip
_MEMBER = _TEXT | _WRONG | st.lists(_TEXT) | st.dictionaries(st.sampled_from(["A", "Authorization", "x y", "k"]), _TEXT)
_ENTRY = st.dictionaries(_NAMES, _MEMBER, max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@drawn(_ENTRY)
def test_no_secret_is_ever_shown(tmp_path: Path, members: dict[str, Any]) -> None:
    content = {"inputs": [{"id": "i"}], "servers": {"one": members}}
    configuration = given(tmp_path, content, {"A": SECRET}, inputs=lambda _: SECRET)
    entry = configuration.entries["one"]
    shown = [repr(configuration), repr(entry), entry.shown, str(entry.problem), json.dumps(explain(configuration))]
    assert SECRET not in "\n".join([*shown, *map(str, configuration.problems)])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@drawn(_ENTRY)
def test_no_variable_ever_reaches_an_entry_as_it_is_written(tmp_path: Path, members: dict[str, Any]) -> None:
    entry = given(tmp_path, {"servers": {"one": members}}, {"A": SECRET}).entries["one"]
    reached = (entry.command, dict(entry.env), entry.cwd, entry.url, dict(entry.headers), entry.auth)
    assert "${" not in repr(reached)
