"""The server as a program: over stdio, over HTTP with the official arguments and ours, and invalid command lines."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from servers.tests.commands import started
from servers.tests.everything.support import STATELESS, call
from trunkline import Client, ConfigError, RequestFailed, Server, StaticTokens
from trunkline.testing import FakeClock
from trunkline_servers.everything import make_server
from trunkline_servers.everything.__main__ import command

PROGRAM = [sys.executable, "-m", "trunkline_servers.everything"]


@asynccontextmanager
async def over_http(server: Server, **options: Any) -> AsyncIterator[str]:
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.ensure_future(server.run_async("http", port=0, started=url.set_result, **options))
    try:
        yield await url
    finally:
        running.cancel()
        await asyncio.wait([running])


WRONG = [
    pytest.param(["carrier-pigeon"], "carrier-pigeon", id="unknown-transport"),
    pytest.param(["stdio", "--http", "3001"], "exclude each other", id="stdio-and-http"),
    pytest.param(["sse", "--port", "70000"], "70000 is not in the range 0<=x<=65535", id="port"),
    pytest.param(["sse", "--port", "abc"], "'abc' is not a valid port.", id="no-port"),
    pytest.param(["--max-fetch-size", "0"], "max-fetch-size", id="size"),
    pytest.param(["--certfile", "x"], "--http", id="http-option-over-stdio"),
]


@pytest.mark.parametrize(("words", "named"), WRONG)
def test_a_wrong_command_line_is_refused_with_what_is_wrong(words: list[str], named: str) -> None:
    outcome = CliRunner().invoke(command, words)
    assert outcome.exit_code != 0
    assert named in outcome.output


@pytest.mark.parametrize(
    ("words", "fix"),
    [(["sse", "--port"], "e.g. --port {0} or PORT={0} "), (["--http"], "e.g. --http {0} or port={0} ")],
    ids=["official", "ours"],
)
def test_the_error_for_a_port_in_use_names_the_option_that_set_it(words: list[str], fix: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = CliRunner().invoke(command, [*words, str(port)])
    assert isinstance(outcome.exception, ConfigError)
    assert fix.format(port + 1 if port < 65535 else 0) in str(outcome.exception)


@pytest.mark.parametrize(
    ("variable", "value"), [("GZIP_MAX_FETCH_SIZE", "lots"), ("GZIP_MAX_FETCH_TIME_MILLIS", "-1"), ("PORT", "x")]
)
def test_a_variable_that_makes_no_sense_is_refused(variable: str, value: str) -> None:
    outcome = CliRunner().invoke(command, [], env={variable: value})
    assert outcome.exit_code != 0
    assert value in outcome.output


# --- what only HTTP has ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [{"Mcp-Param-Region": "south"}, {}], ids=["another", "missing"])
async def test_an_argument_that_its_header_contradicts_is_refused(header: dict[str, str]) -> None:
    import aiohttp

    meta = {
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "get-region", "arguments": {"region": "north"}, "_meta": meta}
    usual = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": STATELESS,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "get-region",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with (
        over_http(make_server(numbered=0)) as url,
        aiohttp.ClientSession() as web,
        web.post(f"{url}/mcp", json=body, headers={**usual, **header}) as response,
    ):
        assert (response.status, (await response.json())["error"]["code"]) == (400, -32020)


async def test_a_handle_of_another_user_is_rejected() -> None:
    tokens = {"alice-0123456789": "alice", "bob-0123456789ab": "bob"}
    async with over_http(make_server(numbered=0), auth=StaticTokens(tokens)) as url:
        target = f"{url}/mcp"
        async with Client(target, auth="alice-0123456789") as alice, Client(target, auth="bob-0123456789ab") as bob:
            (link,) = (await call(alice, "gzip-file-as-resource", name="a.gz", data="data:,x")).content
            with pytest.raises(RequestFailed, match="gone"):
                await bob.read_resource(link.uri)
            assert (await alice.read_resource(link.uri))[0].mime_type == "application/gzip"


async def test_a_timer_without_a_session_is_not_stopped_by_another_user() -> None:
    tokens = {"alice-0123456789": "alice", "bob-0123456789ab": "bob"}
    server = make_server(numbered=0, clock=FakeClock())
    async with over_http(server, auth=StaticTokens(tokens)) as url:
        target = f"{url}/mcp"
        async with (
            Client(target, auth="alice-0123456789", revision=STATELESS) as alice,
            Client(target, auth="bob-0123456789ab", revision=STATELESS) as bob,
            alice.listen(uris=["demo://resource/dynamic/text/1"]),
        ):
            callers = (alice, bob, alice)
            told = [str((await call(each, "toggle-subscriber-updates")).text) for each in callers]
    assert [each.split()[0] for each in told] == ["Started", "Started", "Stopped"]


@pytest.mark.parametrize(
    ("words", "address"),
    [([], None), (["stdio"], None), (["sse", "--port", "7"], 7), (["streamableHttp", "--port", "8"], 8)],
    ids=["nothing", "stdio", "sse", "streamable-http"],
)
def test_the_official_arguments_choose_the_transport(words: list[str], address: int | None) -> None:
    options = started("everything", *words).options
    assert (options.address and options.address.port) == address
