"""Tests that hold for every reference server: start, descriptions, invalid requests, and requests from web pages."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from examples.workspace import tour
from servers.tests.commands import command_of
from servers.tests.over_http import hints_of
from tests.support import run_async
from tests.transports.http.serving_support import HANDSHAKE, STATELESS, SessionClient, initialize, modern, request
from tests.transports.http.serving_support import tool as call_of
from trunkline import Client, MissingCapability, RequestFailed, Server, StaticTokens, __version__
from trunkline_servers.cli import run_command
from trunkline_servers.mongodb.store import MongoLimits as MongoCaps
from trunkline_servers.redis.server import RedisLimits as RedisCaps

ROOT = Path(__file__).parents[2]
NOWHERE = "127.0.0.1:1"
API: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Sample", "version": "1"},
    "servers": [{"url": f"http://{NOWHERE}"}],
    "paths": {
        "/things/{id}": {
            "get": {
                "operationId": "get_thing",
                "summary": "Look at a thing",
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": {"200": {"description": "The thing."}},
            }
        }
    },
}


def _made(name: str, *given: Any, **options: Any) -> Server:
    server = importlib.import_module(f"trunkline_servers.{name}.server").make_server(*given, **options)
    assert isinstance(server, Server)
    return server


#: How each is made where none of its services is there.
SERVERS: Mapping[str, Callable[[Path], Server]] = MappingProxyType(
    {
        "docker": lambda folder: _made("docker", f"unix://{folder}/engine.sock"),
        "everything": lambda folder: _made("everything"),
        "fetch": lambda folder: _made("fetch", seconds=1.0),
        "filesystem": lambda folder: _made("filesystem", [folder]),
        "git": lambda folder: _made("git", repositories=[], any_repository=True),
        "github": lambda folder: _made("github", token="t" * 20, api_url=f"http://{NOWHERE}"),
        "memory": lambda folder: _made("memory", folder / "memory.jsonl"),
        "mongodb": lambda folder: _made(
            "mongodb", f"mongodb://{NOWHERE}", write=True, limits=MongoCaps(connect_seconds=0.3)
        ),
        "npm": lambda folder: _made("npm", [str(folder)], registry=f"http://{NOWHERE}"),
        "openapi": lambda folder: _made("openapi", API),
        "postgres": lambda folder: _made("postgres", f"postgresql://nobody@{NOWHERE}/none"),
        "redis": lambda folder: _made("redis", f"redis://{NOWHERE}", limits=RedisCaps(retries=0)),
        "sentry": lambda folder: _made("sentry", "t" * 20, api_url=f"http://{NOWHERE}"),
        "sequentialthinking": lambda folder: _made("sequentialthinking"),
        "slack": lambda folder: _made("slack", "t" * 20, api_url=f"http://{NOWHERE}"),
        "sqlite": lambda folder: _made("sqlite", folder / "a.db"),
        "time": lambda folder: _made("time"),
    }
)
EACH = pytest.mark.parametrize("name", SERVERS)
#: Those that a plain install runs: what they load at their start is the standard library's and the core's.
PLAIN = ("everything", "filesystem", "git", "memory", "sequentialthinking", "sqlite", "time")


def test_the_table_lists_every_server() -> None:
    folders = {path.parent.name for path in (ROOT / "servers" / "src" / "trunkline_servers").glob("*/__main__.py")}

    assert folders == set(SERVERS)


#: The packages of Trunkline that are public; the servers import no module below them.
PUBLIC = {"trunkline"} | {
    f"trunkline.{name}"
    for name in ("auth", "client", "errors", "host", "net", "server", "testing", "transports", "types")
}


def test_servers_import_public_packages_only() -> None:
    imported = {
        (path.name, module)
        for path in (ROOT / "servers" / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for module in _imported(node)
        if module.split(".")[0] == "trunkline" and module not in PUBLIC
    }
    assert imported == set()


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [each.name for each in node.names] if isinstance(node, ast.Import) else []


# --- starting --------------------------------------------------------------------------------------------------------


@EACH
def test_the_help_says_what_it_is_for_and_gives_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(command_of(name), ["--help"])

    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert shown.startswith(f"Usage: trunkline-server-{name}")
    assert f"trunkline-server-{name}" in shown.partition("Examples:")[2]
    assert "--tokens-env" in shown
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    assert not {"INTEGER", "FLOAT", "RANGE"} & set(shown.replace("]", " ").split())
    assert "default: (" not in shown


def test_each_has_a_command() -> None:
    scripts = tomllib.loads((ROOT / "servers" / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]

    assert scripts == {f"trunkline-server-{name}": f"trunkline_servers.{name}.__main__:main" for name in SERVERS}


#: What each is started with, where it needs something.
STARTED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "docker": ("--host", "unix:///nowhere/engine.sock"),
        "filesystem": ("{folder}",),
        "git": ("--any-repository",),
        "memory": ("--file", "{folder}/memory.jsonl"),
        "mongodb": (f"mongodb://{NOWHERE}",),
        "npm": ("{folder}",),
        "openapi": ("{folder}/api.json",),
        "postgres": (f"postgresql://nobody@{NOWHERE}/none",),
        "redis": (f"redis://{NOWHERE}",),
        "sqlite": ("--db-path", "{folder}/a.db"),
    }
)
SECRETS = ("GITHUB_PERSONAL_ACCESS_TOKEN", "SENTRY_AUTH_TOKEN", "SLACK_BOT_TOKEN")
PROGRAM = """
import runpy, sys
try:
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
finally:
    print("\\nLOADED", *sys.modules, file=sys.stderr)
"""
#: A session up to the first list.
MESSAGES = (
    initialize(HANDSHAKE),
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    request("tools/list", id=2),
)


@cache
def _loaded(name: str) -> frozenset[str]:
    """Start a server over stdio, list its tools, and give the modules that it has loaded by then."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "api.json").write_text(json.dumps(API), encoding="utf-8")
        arguments = [each.format(folder=folder) for each in STARTED.get(name, ())]
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, f"trunkline_servers.{name}", *arguments],
            input="".join(json.dumps(message) + "\n" for message in MESSAGES),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, **dict.fromkeys(SECRETS, "xoxb-" + "t" * 20)},
        )
    assert '"tools":' in ran.stdout, ran.stderr
    return frozenset(ran.stderr.rpartition("LOADED ")[2].split())


def _below(modules: frozenset[str], *packages: str) -> list[str]:
    return sorted(each for each in modules if each.startswith(packages))


@pytest.mark.parametrize("name", PLAIN)
def test_serving_loads_nothing_that_a_plain_install_lacks(name: str) -> None:
    lacking = ("aiohttp", "uvicorn", "joserfc", "asyncpg", "redis", "pymongo", "cryptography")

    assert _below(_loaded(name), *lacking, "trunkline.host", "trunkline.client") == []


@EACH
def test_over_stdio_nothing_is_loaded_of_http_and_signing_in(name: str) -> None:
    ours = ("trunkline.transports.http", "trunkline.server.http", "trunkline.client", "trunkline.cli", "trunkline.host")
    # The folder for what a user keeps, and files that two processes write, are known there too.
    keeping = {"trunkline.auth", "trunkline.auth.credential_store"}

    assert (
        _below(
            _loaded(name) - keeping, "aiohttp", "uvicorn", "joserfc", "trunkline.auth", "trunkline.net.fetcher", *ours
        )
        == []
    )


# --- telling ---------------------------------------------------------------------------------------------------------


@EACH
async def test_every_tool_says_what_it_does_and_what_it_may_change(name: str, tmp_path: Path) -> None:
    async with Client(SERVERS[name](tmp_path)) as client:
        assert client.server_info is not None
        assert client.server_info.version == __version__
        tools, hints = await client.list_tools(), await hints_of(client)
    assert tools
    assert [tool.name for tool in tools if not tool.description or not tool.annotations] == []
    assert [name for name, each in hints.items() if each.read_only_hint is None] == []


@EACH
def test_it_has_a_page_with_a_snippet_for_the_common_hosts(name: str) -> None:
    page = (ROOT / "docs" / "servers" / f"{name}.md").read_text(encoding="utf-8")

    assert [word for word in ('"mcpServers"', '"servers"', f"trunkline-server-{name}", "--") if word not in page] == []


def test_each_has_a_place_in_the_workspace() -> None:
    servers = json.loads(tour.CONFIG.read_text(encoding="utf-8"))["mcpServers"]

    assert set(servers) == set(SERVERS)
    assert {id.partition("/")[0] for id, _ in tour.calls("")} == set(SERVERS)


# --- nonsense --------------------------------------------------------------------------------------------------------

NONSENSE: tuple[Any, ...] = (
    None,
    True,
    -1,
    1e300,
    "",
    "\x00",
    "../../etc/passwd",
    "--output=/tmp/x",
    [],
    [None],
    {"$gt": ""},
)


@EACH
def test_nonsense_in_any_argument_is_an_answer_and_never_an_accident(name: str, tmp_path: Path) -> None:
    async def main() -> list[str]:
        accidents: list[str] = []
        async with Client(SERVERS[name](tmp_path), revision="2025-11-25", timeout=20) as client:
            for tool in await client.list_tools():
                properties = tool.input_schema.get("properties", {})
                for nonsense in NONSENSE:
                    # Null for an argument with a default is read as left out: it makes sense.
                    names = [
                        name for name, schema in properties.items() if nonsense is not None or "default" not in schema
                    ]
                    if names:
                        accidents += await _accident(client, tool.name, dict.fromkeys(names, nonsense))
            await client.ping()
        return accidents

    assert run_async(main(), seconds=120) == []


async def _accident(client: Client, tool: str, given: Mapping[str, Any]) -> list[str]:
    """Call a tool; say so if the server itself failed."""
    try:
        result = await client.request("tools/call", {"name": tool, "arguments": given})
    except RequestFailed as error:
        return [f"{tool} {given}: {error}"] if error.code == -32603 else []
    text = msgspec.json.encode(result).decode()
    return [f"{tool} {given}: {text[:200]}"] if "failed unexpectedly" in text else []


_PARAMS: tuple[dict[str, Any], ...] = (
    {},
    {"name": 1},
    {"uri": []},
    {"ref": None},
    {"ref": {"type": "ref/prompt"}},
)


@EACH
async def test_nonsense_in_any_method_is_an_error_and_the_next_request_is_served(name: str, tmp_path: Path) -> None:
    codes: list[int] = []
    async with Client(SERVERS[name](tmp_path), revision="2025-11-25", timeout=20) as client:
        for method in ("tools/call", "prompts/get", "resources/read", "completion/complete", "logging/setLevel"):
            for params in _PARAMS:
                try:
                    await client.request(method, params)
                except MissingCapability:
                    codes.append(-32601)
                except RequestFailed as error:
                    codes.append(error.code)
        await client.ping()
    assert set(codes) <= {-32601, -32602, -32002}


# --- who may write ---------------------------------------------------------------------------------------------------

READER = StaticTokens({"reader": {"subject": "reader", "scopes": "read"}})


async def _as_reader(app: Any, era: str) -> Callable[[dict[str, Any]], Awaitable[Any]]:
    """Return a function that sends requests in an era, with a token that does not allow writing."""
    if era == STATELESS:
        return lambda message: modern(app, message, authorization="Bearer reader").whole()
    client = await SessionClient.open(app, era, token="reader")
    return lambda message: client.post(message).whole()


@pytest.mark.parametrize(
    ("name", "era"), [*((name, STATELESS) for name in SERVERS), ("everything", HANDSHAKE), ("sqlite", HANDSHAKE)]
)
async def test_without_the_write_scope_only_what_reads_is_listed_and_callable(
    name: str, era: str, tmp_path: Path
) -> None:
    server = SERVERS[name](tmp_path)
    server.require_scopes(read="read", write="write")
    app = server.asgi(auth=READER)
    send = await _as_reader(app, era)
    listed = (await send(request("tools/list"))).json["result"]
    assert "nextCursor" not in listed
    reading = {tool["name"] for tool in listed["tools"] if tool["annotations"].get("readOnlyHint") is True}
    served = []
    for tool_name in server.registry.tools.keys() - reading:
        refused = await send(call_of(tool_name))
        # What a server hides from this client is not known to it, whatever its token allows.
        if refused.error[1] != 403 and "Unknown tool" not in refused.json["error"]["message"]:
            served.append(tool_name)
    await app.aclose()
    listed = {tool["name"] for tool in listed["tools"]}
    assert listed == reading
    assert served == []


# --- the browser -----------------------------------------------------------------------------------------------------


@EACH
async def test_a_web_page_cannot_reach_it_over_http(name: str, tmp_path: Path) -> None:
    """Neither by a name that was bound anew, nor from another page."""
    app = SERVERS[name](tmp_path).asgi()
    pages: list[dict[str, Any]] = [
        {"host": "rebound.example:8000"},
        {"host": "127.0.0.1:8000", "origin": "https://evil.example"},
    ]
    answers = [await modern(app, request("tools/list"), **headers).whole() for headers in pages]
    assert [answer.status for answer in answers if answer.status not in (403, 421)] == []
