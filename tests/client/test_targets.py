"""The kinds of target that a client accepts."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client.scripted_server import Scripted, stateless
from tests.support import case_id, run_async
from trunkline.auth import ApiKey
from trunkline.client.client import Client
from trunkline.client.options import resolve_settings
from trunkline.client.targets import Target, resolve_target
from trunkline.errors import ConfigError, LinkError, ServerExited
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from trunkline.transports.memory import memory_pair

URL = "https://example.com/mcp"
SERVER = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "server/discover":
        result = {"supportedVersions": [message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"]],
                  "capabilities": {"tools": {}}, "instructions": os.environ.get("GREETING", os.getcwd())}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    else:
        sys.exit("out of words")
"""

#: A server that does not start itself.
NATIVE = "from trunkline import Server\nserver = Server('x', instructions='hello')\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER, encoding="utf-8")
    return path


def found(target: object, **options: Any) -> Target:
    return resolve_target(target, resolve_settings(options))


def instructions(target: object, **options: Any) -> str | None:
    async def main() -> str | None:
        async with Client(target, **options) as client:
            return client.instructions

    return run_async(main())


def test_a_python_file_is_run(script: Path) -> None:
    assert instructions(str(script), env={"GREETING": "hello"}) == "hello"
    assert instructions(script, env={"GREETING": "hi"}) == "hi"


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(NATIVE, id="without run, as in README"),
        pytest.param(f'{NATIVE}\nif __name__ == "__main__":\n    server.run("http", port=1)\n', id="runs over HTTP"),
        pytest.param(f"{NATIVE}\nserver.run()\n", id="runs when imported"),
        pytest.param(
            "from trunkline import Server\n"
            "def main() -> None:\n    Server('x', instructions='hello').run()\n"
            "if __name__ == '__main__':\n    main()\n",
            id="creates its server in main",
        ),
        pytest.param(
            "from mcp.server import MCPServer\nmcp = MCPServer('x', instructions='hello')\n"
            "if __name__ == '__main__':\n    mcp.run()\n",
            id="official SDK",
            marks=pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="needs mcp"),
        ),
    ],
)
def test_a_python_file_is_started_whether_it_runs_its_server_or_not(tmp_path: Path, source: str) -> None:
    path = tmp_path / "anything.py"
    path.write_text(source, encoding="utf-8")
    assert instructions(str(path)) == "hello"


def test_a_file_that_imports_its_server_is_loaded_unless_it_starts_itself(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(NATIVE.replace("server =", "app ="), encoding="utf-8")
    path = tmp_path / "entry.py"
    path.write_text("from shop import app as server\n", encoding="utf-8")
    assert instructions(path) == "hello"
    path.write_text("from shop import app\nif __name__ == '__main__':\n    app.run()\n", encoding="utf-8")
    assert instructions(path) == "hello"


def test_an_object_of_a_file_is_named_after_a_colon(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text(f"{NATIVE}\nother = Server('other', instructions='other')\n", encoding="utf-8")
    assert instructions(f"{path}:other") == "other"


def test_a_command_is_run_as_a_list_or_as_one_text(script: Path) -> None:
    assert instructions([sys.executable, script], env={"GREETING": "a"}) == "a"
    assert instructions(f"'{sys.executable}' '{script}'", env={"GREETING": "b"}) == "b"


def test_an_entry_of_a_config_is_run(script: Path) -> None:
    entry = {"command": sys.executable, "args": [str(script)], "env": {"GREETING": "entry"}}
    assert instructions(entry) == "entry"
    assert instructions({"mcpServers": {"one": entry}}, env={"GREETING": "ours"}) == "ours"


def test_a_server_process_starts_where_it_is_reported(script: Path) -> None:
    folder = str(script.parent)
    assert instructions("server.py", cwd=folder) == folder
    assert instructions("server.py", cwd=Path(folder)) == folder
    assert instructions({"command": sys.executable, "args": ["server.py"], "cwd": folder}) == folder


async def test_a_server_process_that_dies_during_a_call_reports_its_exit_reason(script: Path) -> None:
    async with Client(script) as client:
        with pytest.raises(ServerExited, match="out of words") as caught:
            await client.call_tool("x")
        assert caught.value.status == 1


async def test_the_era_of_a_launched_server_is_remembered_where_the_user_says(script: Path) -> None:
    memory: dict[str, str] = {}
    async with Client(script, era_memory=memory) as client:
        assert list(memory.values()) == [client.revision]
    async with Client(script, era_memory=memory):
        assert len(memory) == 1


def test_another_launch_has_another_fingerprint() -> None:
    plain = found(["server"])
    assert plain.fingerprint == found("server").fingerprint
    others = [found(["server", "-v"]), found(["server"], env={"A": "1"}), found(["server"], cwd="/")]
    assert len({plain.fingerprint, *(other.fingerprint for other in others)}) == 4


def test_a_fingerprint_shows_no_secret() -> None:
    assert "hunter2" not in (found(["server"], env={"PASSWORD": "hunter2"}).fingerprint or "")


async def test_a_command_that_does_not_exist_is_a_link_error() -> None:
    with pytest.raises(LinkError, match="no-such-command"):
        await Client(["no-such-command-anywhere"]).__aenter__()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (3, "int is not a valid target"),
        ("no_such_file.py", "no file"),
        ("'unclosed", "cannot be parsed"),
        ("", "empty"),
        ([], "empty"),
        ({}, "command"),
        ({"command": "x", "args": "y"}, "args"),
        ({"mcpServers": {"a": {}, "b": {}}}, "one server"),
        ({"mcpServers": 3}, "one server"),
    ],
    ids=str,
)
def test_an_invalid_target_is_a_config_error(target: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Client(target)


async def test_a_link_can_be_opened_once() -> None:
    ours, _ = memory_pair()
    target = found(ours)
    assert target.can_reopen is False
    assert await target.open() is ours
    with pytest.raises(LinkError, match="has been used"):
        await target.open()


async def test_a_server_object_may_accept_in_its_own_time() -> None:
    class Slow(Scripted):
        async def accept(self, link: Any) -> None:  # type: ignore[override]
            Scripted.accept(self, link)

    server = Slow(stateless().table)
    async with Client(server) as client:
        assert client.instructions == "Be kind."


# --- URLs ------------------------------------------------------------------------------------------------------------


def test_a_url_is_a_server_whose_requests_stand_for_themselves() -> None:
    target = found(f"{URL}?key=secret")
    assert (target.name, target.separate, target.can_reopen, target.handshake_only) == (URL, True, True, False)
    assert target.fallback is not None
    assert "secret" not in (target.fingerprint or "")


def test_the_fingerprint_of_a_url_is_its_own() -> None:
    assert found(URL).fingerprint == found({"url": URL, "headers": {"X-A": "b"}}).fingerprint
    assert found(URL).fingerprint != found(f"{URL}/other").fingerprint


@pytest.mark.parametrize(
    ("entry", "separate", "handshake_only"),
    [
        ({"type": "http"}, True, False),
        ({"transport": "streamable-http"}, True, False),
        ({"type": "sse"}, False, True),
    ],
    ids=str,
)
def test_an_entry_may_name_its_transport(entry: dict[str, str], separate: bool, handshake_only: bool) -> None:
    target = found({"url": URL, **entry})
    assert (target.separate, target.fallback, target.handshake_only) == (separate, None, handshake_only)


def test_a_pinned_stateless_revision_has_no_older_transport() -> None:
    assert found(URL, revision=NEWEST.name).fallback is None
    assert found(URL, revision=NEWEST_HANDSHAKE.name).fallback is not None


@pytest.mark.parametrize(
    ("target", "options", "words"),
    [
        ("http://", {}, "not a server URL"),
        ("http://a:99999/", {}, "not a server URL"),
        ("http://[/", {}, "not a server URL"),
        ("http://a b/", {}, "not a server URL"),
        ("http://user:secret@host/", {}, "headers= or auth="),
        ({"url": "file:///x"}, {}, "not a server URL"),
        ({"url": 3}, {}, "url"),
        ({"url": URL, "headers": "x"}, {}, "headers"),
        ({"url": URL, "headers": {"X": 3}}, {}, "headers"),
        ({"url": URL, "type": "stdio"}, {}, "'stdio'"),
        ({"command": "python", "sandbox": True}, {}, r"Host\.open"),
        (URL, {"headers": {"Mcp-Session-Id": "x"}}, "Mcp-Session-Id"),
        (URL, {"headers": {"content-type": "x"}}, "content-type"),
        (URL, {"headers": {"Host": "x"}}, "Host"),
        (URL, {"headers": {"X Y": "x"}}, "cannot carry"),
        (URL, {"headers": {"X": "a\r\nB: c"}}, "cannot carry"),
        ("http://example.com/mcp", {"auth": "t"}, "plain http"),
        ("http://example.com/mcp", {"auth": "oauth"}, "plain http"),
        (URL, {"auth": ApiKey("X-API-Key", "k"), "headers": {"x-api-key": "x"}}, "one of them"),
        (URL, {"auth": "oauth", "headers": {"Authorization": "x"}}, "one of them"),
        (URL, {"auth": 3}, "int"),
        (URL, {"auth": "a b"}, "visible"),
        (URL, {"auth": "t", "headers": {"authorization": "x"}}, "one of them"),
    ],
    ids=case_id,
)
def test_an_inconsistent_entry_is_a_config_error(target: object, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Client(target, **options)


def test_a_secret_in_a_url_is_not_shown() -> None:
    with pytest.raises(ConfigError) as failure:
        Client("http://user:secret@host/")
    assert "secret" not in str(failure.value)


def test_a_missing_extra_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'trunkline\[http\]'"):
        Client(URL)
