"""The configurations of client applications, as they stand, with reference servers in them: the gateway serves them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mcp
import pytest

from tests.interop.gateway_stage import FRONTS, Served, allow_tools, gateway_client, python_server, served
from tests.interop.peers import NEWEST_HANDSHAKE, npm_server, program
from tests.interop.test_official_client import only_text
from tests.interop.web import listening
from tests.support import run_async

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

SECRET = "the-secret-of-the-server"


class Place(NamedTuple):
    """What an application's configuration is about."""

    files: Path
    graph: Path
    url: str


def claude_desktop(place: Place) -> dict[str, Any]:
    """Write what Claude Desktop has: commands, arguments, variables, beside settings of its own."""
    files, memory = npm_server("filesystem", str(place.files)), npm_server("memory")
    return {
        "globalShortcut": "",
        "mcpServers": {
            "filesystem": {"command": files[0], "args": files[1:]},
            "memory": {"command": memory[0], "args": memory[1:], "env": {"MEMORY_FILE_PATH": str(place.graph)}},
        },
    }


def claude_code(place: Place) -> dict[str, Any]:
    """Write what Claude Code has in ``.mcp.json``: types, variables with defaults, headers."""
    files, memory = npm_server("filesystem"), npm_server("memory")
    return {
        "mcpServers": {
            "filesystem": {"type": "stdio", "command": files[0], "args": [*files[1:], "${FILES}"], "env": {}},
            "memory": {
                "command": "${NODE:-no-such-program}",
                "args": memory[1:],
                "env": {"MEMORY_FILE_PATH": "${GRAPH:-" + str(place.graph) + "}"},
            },
            "remote": {"type": "http", "url": "${REMOTE}", "headers": {"X-Key": "${KEY}"}},
        }
    }


def cursor(place: Place) -> dict[str, Any]:
    """Write what Cursor has: a URL without a type, and its own names for variables."""
    files = npm_server("filesystem")
    return {
        "mcpServers": {
            "filesystem": {"command": files[0], "args": [*files[1:], "${env:FILES}"]},
            "remote": {"url": place.url, "headers": {"X-Key": "${env:KEY}"}},
        }
    }


def vs_code(place: Place) -> dict[str, Any]:
    """Write what VS Code has in ``.vscode/mcp.json``: servers, inputs, a file of variables."""
    files, memory = npm_server("filesystem"), npm_server("memory")
    return {
        "inputs": [{"type": "promptString", "id": "key", "description": "A key", "password": True, "default": SECRET}],
        "servers": {
            "filesystem": {"type": "stdio", "command": files[0], "args": [*files[1:], "${env:FILES}"]},
            "memory": {"type": "stdio", "command": memory[0], "args": memory[1:], "envFile": str(place.graph) + ".env"},
            "remote": {"type": "http", "url": place.url, "headers": {"X-Key": "${input:key}"}},
        },
    }


WITH_FILES = pytest.mark.parametrize("write", [claude_desktop, claude_code, cursor, vs_code], ids=lambda f: f.__name__)
WITH_A_GRAPH = pytest.mark.parametrize("write", [claude_desktop, claude_code, vs_code], ids=lambda f: f.__name__)
WITH_A_URL = pytest.mark.parametrize("write", [claude_code, cursor, vs_code], ids=lambda f: f.__name__)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server at a URL."""
    with listening(program("official_http.py")) as urls:
        yield json.loads(urls)["http"]


@pytest.fixture
def place(tmp_path: Path, url: str) -> Place:
    files = tmp_path / "files"
    files.mkdir()
    subprocess.run(["git", "init", "-q", str(files)], check=True)
    (files / "note.txt").write_text("as it was")
    graph = tmp_path / "graph.jsonl"
    Path(f"{graph}.env").write_text(f"# where it is kept\nMEMORY_FILE_PATH={graph}\n")
    return Place(files, graph, url)


def use(place: Place, write: Callable[[Place], dict[str, Any]], work: Callable[[mcp.Client], Any], front: str) -> Any:
    """Serve a configuration, and do something with the official client."""
    document = write(place)
    file = place.files.parent / "app.json"
    file.write_text(json.dumps(document))
    servers = document.get("mcpServers") or document["servers"]
    allow_tools(servers, file.parent)
    node = npm_server("memory")[0]

    async def main(gateway: Served) -> Any:
        async with gateway_client(gateway, front) as client:
            return await work(client)

    with served(file, servers, FILES=str(place.files), REMOTE=place.url, KEY=SECRET, NODE=node) as gateway:
        return run_async(main(gateway))


@WITH_FILES
@FRONTS
def test_files_are_read(place: Place, write: Callable[[Place], dict[str, Any]], front: str) -> None:
    async def work(client: mcp.Client) -> str:
        path = str(place.files / "note.txt")
        return only_text(await client.call_tool("filesystem__read_text_file", {"path": path}))

    assert use(place, write, work, front) == "as it was"


@WITH_A_GRAPH
def test_a_server_gets_its_variables(place: Place, write: Callable[[Place], dict[str, Any]]) -> None:
    ann = {"name": "Ann", "entityType": "person", "observations": ["likes rivers"]}
    use(place, write, lambda client: client.call_tool("memory__create_entities", {"entities": [ann]}), NEWEST_HANDSHAKE)
    assert "likes rivers" in place.graph.read_text()


@WITH_A_URL
@FRONTS
def test_a_server_at_a_url_is_served(place: Place, write: Callable[[Place], dict[str, Any]], front: str) -> None:
    async def work(client: mcp.Client) -> str:
        return only_text(await client.call_tool("remote__add", {"a": 19, "b": 23}))

    assert use(place, write, work, front) == "42"


def reference(place: Place) -> dict[str, Any]:
    """Write one entry for each reference server, as their own pages show them."""
    commands = {
        "everything": npm_server("everything"),
        "filesystem": npm_server("filesystem", str(place.files)),
        "memory": npm_server("memory"),
        "time": python_server("time", "--local-timezone=Europe/Oslo"),
        "fetch": python_server("fetch"),
        "git": python_server("git", "--repository", str(place.files)),
    }
    return {"mcpServers": {name: {"command": each[0], "args": each[1:]} for name, each in commands.items()}}


@FRONTS
def test_all_reference_servers_are_served_side_by_side(place: Place, front: str) -> None:
    async def work(client: mcp.Client) -> set[str]:
        return {tool.name.partition("__")[0] for tool in (await client.list_tools()).tools}

    assert use(place, reference, work, front) == {"everything", "filesystem", "memory", "time", "fetch", "git"}


def flawed(place: Place) -> dict[str, Any]:
    """Write entries that are wrong beside one that is right."""
    files = npm_server("filesystem", str(place.files))
    return {
        "mcpServers": {
            "filesystem": {"command": files[0], "args": files[1:]},
            "unset": {"command": "${NOWHERE_SET}", "args": []},
            "absent": {"command": "no-such-program-at-all", "args": []},
            "crashes": {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]},
            "silent": {"command": sys.executable, "args": ["-c", "import time; time.sleep(600)"], "startTimeout": 2},
            "unreachable": {"url": "http://127.0.0.1:9/mcp"},
        }
    }


@FRONTS
def test_servers_that_do_not_start_disturb_no_other(place: Place, front: str) -> None:
    async def work(client: mcp.Client) -> list[str]:
        calls = (
            client.call_tool("filesystem__read_text_file", {"path": str(place.files / "note.txt")}) for _ in range(5)
        )
        return [only_text(result) for result in await asyncio.gather(*calls)]

    assert use(place, flawed, work, front) == ["as it was"] * 5
