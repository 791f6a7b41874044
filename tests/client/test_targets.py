"""The kinds of target that a client accepts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client.scripted_server import Scripted, stateless
from tests.support import run_async
from trunkline.client.client import Client
from trunkline.client.options import resolve_settings
from trunkline.client.targets import Target, resolve_target
from trunkline.errors import ConfigError, LinkError, ServerExited
from trunkline.transports.memory import memory_pair

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
