"""Whole files: the seeds' examples, the forms of other programs, and each way in which a file can be wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from tests.host.config.support import given, write
from trunkline.errors import ConfigError
from trunkline.host.config.documents import MAX_FILE_BYTES
from trunkline.host.config.loading import load_configuration
from trunkline.host.config.model import ServerEntry

STDIO = """\
{
  "mcpServers": {
    "filesystem": {
      "command": "node",
      "args": ["path/to/filesystem-server.js"],
      "env": {
        "ROOT_PATH": "/workspace"
      }
    }
  }
}
"""
REMOTE = """\
{
  "mcpServers": {
    "github": {
      "url": "https://mcp.github.com",
      "headers": {
        "Authorization": "Bearer ${GITHUB_TOKEN}"
      }
    }
  }
}
"""


def test_a_server_with_command_args_and_env_loads_as_written(tmp_path: Path) -> None:
    configuration = given(tmp_path, STDIO)
    entry = configuration.entries["filesystem"]
    assert (entry.command, dict(entry.env)) == (
        ("node", "path/to/filesystem-server.js"),
        {"ROOT_PATH": "/workspace"},
    )
    assert (entry.url, entry.problem, configuration.problems) == (None, None, ())
    assert (entry.source.scope, entry.source.line) == ("given", 3)


def test_a_server_with_url_and_headers_and_no_type_loads_as_written(tmp_path: Path) -> None:
    configuration = given(tmp_path, REMOTE, {"GITHUB_TOKEN": "gh-1234567"})
    entry = configuration.entries["github"]
    assert (entry.url, dict(entry.headers)) == ("https://mcp.github.com", {"Authorization": "Bearer gh-1234567"})
    assert (entry.command, entry.type, entry.problem, configuration.problems) == (None, None, None, ())
    assert "gh-1234567" in entry.secrets


def test_the_form_of_vs_code_loads(tmp_path: Path) -> None:
    text = """\
    // comments are usual there
    {
      "inputs": [{"type": "promptString", "id": "key", "description": "Key", "password": true}],
      "servers": {
        "local": {"type": "stdio", "command": "npx", "args": ["-y", "x"], "cwd": "${workspaceFolder}/sub",
                  "env": {"KEY": "${input:key}", "WHO": "${env:WHO}"}},
        "web": {"type": "http", "url": "https://x.example/mcp"},
        "old": {"type": "sse", "url": "https://x.example/sse"},
      },
    }
    """
    entries = given(tmp_path, text, {"WHO": "somebody"}, inputs=lambda _: "answered").entries
    assert dict(entries["local"].env) == {"KEY": "answered", "WHO": "somebody"}
    assert entries["local"].cwd == str(tmp_path / "sub")
    assert [entries[name].type for name in ("web", "old")] == ["http", "sse"]
    assert [each.problem for each in entries.values()] == [None, None, None]


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    assert list(given(tmp_path, b"\xef\xbb\xbf" + STDIO.encode()).entries) == ["filesystem"]


_KEYS = st.sampled_from(
    ["mcpServers", "servers", "inputs", "id", "options", "command", "args", "env", "url", "headers", "oauth", "tools",
     "allow", "timeout", "type", "trunkline", "allowedServers", "deniedServers", "exclusive", "name", "\x00",
     "disabled", "roots"]
)  # fmt: skip
_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@drawn(st.dictionaries(st.text(max_size=4), st.dictionaries(_KEYS, _ANY)), st.dictionaries(_KEYS, _ANY))
def test_any_entries_are_read_and_each_can_be_started_or_has_a_problem(
    tmp_path: Path, servers: dict[str, Any], more: dict[str, Any]
) -> None:
    text = json.dumps({**more, "mcpServers": servers}).replace("Infinity", "0")
    found = _loaded_or_refused(write(tmp_path / "mcp.json", text), write(tmp_path / "managed.json", text))
    assert [each.problem is None for each in found] == [bool(each.command or each.url) for each in found]


def _loaded_or_refused(path: Path, managed: Path) -> list[ServerEntry]:
    try:
        return list(load_configuration(given=[path], managed=managed, environ={}).entries.values())
    except ConfigError:
        return []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("", "the file is empty", id="empty"),
        pytest.param("// nothing", ":1:11: the file is not JSON: nothing is written here", id="only a comment"),
        pytest.param("{\n  mcpServers: {}}", ":2:3: the file is not JSON: expected a name", id="not JSON"),
        pytest.param("[]", ":1: expected an object at the top, found a list", id="a list"),
        pytest.param("{}", 'it has no "mcpServers" and no "servers"; is it the right file?', id="no key"),
        pytest.param('{"mcp_servers": {}}', "write \"mcpServers\" instead of 'mcp_servers'", id="near key"),
        pytest.param('{"mcp": {"servers": {}}}', 'move the content of "mcp" to the top level', id="settings.json"),
        pytest.param('{"a": {"command": "x"}}', 'put the entries under "mcpServers"', id="entries at the top"),
        pytest.param(
            '{"mcpServers": []}', "mcpServers: expected an object with an entry for each", id="list of servers"
        ),
        pytest.param(
            '{"servers": {},\n"mcpServers": {}}', "both mcpServers (line 2) and servers (line 1)", id="both keys"
        ),
        pytest.param('{"mcpServers": {},\n"mcpServers": {}}', "written twice, on lines 1 and 2", id="key twice"),
        pytest.param(
            '{"mcpServers": {"a": {"command": "x"},\n\n"a": {"command": "y"}}}',
            ":3: mcpServers: two entries have the name 'a', on lines 1 and 3",
            id="two entries of one name",
        ),
        pytest.param("\ufeff{}".encode("utf-16"), "encoded as UTF-16; save it as UTF-8", id="UTF-16"),
        pytest.param(b'{\n"mcpServers\xff": {}}', ":2: the file is not encoded as UTF-8", id="Latin-1"),
        pytest.param(b" " * (MAX_FILE_BYTES + 1), "larger than 1024 KiB", id="too large"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_with_its_own_message(
    tmp_path: Path, content: str | bytes, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        given(tmp_path, content)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "mcp.json"))


def _absent(path: Path) -> None:
    """Leave nothing there."""


def _folder(path: Path) -> None:
    path.mkdir()


def _loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(_absent, "there is no such file", id="absent"),
        pytest.param(_folder, "it is a folder; name the file in it", id="a folder"),
        pytest.param(_loop, "it cannot be read: ", id="a loop of links"),
    ],
)
def test_a_path_that_leads_to_no_file_is_an_error_with_its_own_message(tmp_path: Path, make: Any, said: str) -> None:
    path = tmp_path / "x.json"
    make(path)
    with pytest.raises(ConfigError, match=f"x.json: {said}"):
        load_configuration(given=[path], environ={})


def test_the_refusal_of_the_system_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> int:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path / "x.json", STDIO)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ConfigError, match="is not readable by this user; grant yourself read access"):
        load_configuration(given=[path], environ={})


def test_a_pipe_that_was_only_found_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mcp.json")
    configuration = load_configuration(project=tmp_path / "mcp.json", environ={})
    assert [each.message for each in configuration.problems] == ["it is not a regular file"]


def test_a_rule_of_the_managed_file_in_another_is_told_and_ignored(tmp_path: Path) -> None:
    configuration = given(tmp_path, {"mcpServers": {"a": {"command": "x"}}, "exclusive": True})
    assert ["only the managed file can set it" in str(each) for each in configuration.problems] == [True]


def test_a_member_at_the_top_that_is_nearly_known_is_told(tmp_path: Path) -> None:
    configuration = given(tmp_path, {"mcpServers": {}, "input": []})
    assert ['did you mean "inputs"?' in str(each) for each in configuration.problems] == [True]
