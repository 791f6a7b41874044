"""The server as a program: over stdio, over HTTP with the official arguments and ours, and invalid command lines."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from servers.tests.everything.support import HANDSHAKE, STATELESS, call
from tests.support import run_async
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


@pytest.mark.parametrize("words", [[], ["stdio"]], ids=["no-word", "stdio"])
@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
def test_a_process_serves_over_stdio(revision: str, words: list[str]) -> None:
    async def main() -> str:
        async with Client([*PROGRAM, *words], revision=revision) as client:
            return str((await call(client, "echo", message="up")).text)

    assert run_async(main()) == "Echo: up"


@pytest.mark.parametrize(("word", "path"), [("streamableHttp", "/mcp"), ("sse", "/sse")])
def test_a_process_serves_over_http_with_the_official_arguments(word: str, path: str) -> None:
    async def main() -> str:
        process = await asyncio.create_subprocess_exec(*PROGRAM, word, "--port", "0", stderr=asyncio.subprocess.PIPE)
        assert process.stderr is not None
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+", (await process.stderr.readline()).decode())
            assert found is not None
            async with Client(found.group() + path) as client:
                return str((await call(client, "echo", message="up")).text)
        finally:
            process.terminate()
            await process.communicate()

    assert run_async(main()) == "Echo: up"


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


def test_an_unauthenticated_public_address_is_rejected() -> None:
    outcome = CliRunner().invoke(command, ["--http", "0.0.0.0:0"])
    assert isinstance(outcome.exception, ConfigError)


# --- what only HTTP has ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [{}, {"Mcp-Param-Region": "south"}], ids=["missing", "another"])
def test_an_argument_that_its_header_contradicts_is_refused(header: dict[str, str]) -> None:
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

    async def main() -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        async with (
            over_http(make_server(numbered=0)) as url,
            aiohttp.ClientSession() as web,
            web.post(f"{url}/mcp", json=body, headers={**usual, **header}) as response,
        ):
            return response.status, (await response.json())["error"]["code"]

    assert run_async(main()) == (400, -32020)


def test_the_trunkline_client_sends_the_parameter_header() -> None:
    async def main() -> str:
        async with over_http(make_server(numbered=0)) as url, Client(f"{url}/mcp", revision=STATELESS) as client:
            await client.list_tools()
            return str((await call(client, "get-region", region="north")).text)

    assert run_async(main()) == "Region: north"


def test_timers_and_files_of_an_http_session_are_its_own_and_end_with_it() -> None:
    clock = FakeClock()
    server = make_server(numbered=0, choose=lambda levels: "error", clock=clock)

    async def main() -> tuple[str, int, int]:
        logs: asyncio.Queue[str] = asyncio.Queue()
        async with over_http(server) as url:
            told: dict[str, Any] = {"logging": lambda message: logs.put_nowait(message.level)}
            async with Client(f"{url}/mcp", revision=HANDSHAKE, **told) as client:
                (link,) = (await call(client, "gzip-file-as-resource", name="a.gz", data="data:,x")).content
                await call(client, "toggle-simulated-logging")
                await logs.get()
                clock.advance(5)
                await logs.get()
                running = len(server.lifespan_value.logging)
            clock.advance(5)
            return link.uri, running, len(server.lifespan_value.logging)

    assert run_async(main()) == ("demo://resource/session/a.gz", 1, 0)


def test_a_handle_of_another_user_is_rejected() -> None:
    tokens = {"alice-0123456789": "alice", "bob-0123456789ab": "bob"}

    async def main() -> str | None:
        async with over_http(make_server(numbered=0), auth=StaticTokens(tokens)) as url:
            target = f"{url}/mcp"
            async with Client(target, auth="alice-0123456789") as alice, Client(target, auth="bob-0123456789ab") as bob:
                (link,) = (await call(alice, "gzip-file-as-resource", name="a.gz", data="data:,x")).content
                with pytest.raises(RequestFailed, match="gone"):
                    await bob.read_resource(link.uri)
                return (await alice.read_resource(link.uri))[0].mime_type

    assert run_async(main()) == "application/gzip"


def test_a_timer_without_a_session_is_not_stopped_by_another_user() -> None:
    tokens = {"alice-0123456789": "alice", "bob-0123456789ab": "bob"}
    server = make_server(numbered=0, clock=FakeClock())

    async def main() -> list[str]:
        async with over_http(server, auth=StaticTokens(tokens)) as url:
            target = f"{url}/mcp"
            async with (
                Client(target, auth="alice-0123456789", revision=STATELESS) as alice,
                Client(target, auth="bob-0123456789ab", revision=STATELESS) as bob,
                alice.listen(uris=["demo://resource/dynamic/text/1"]),
            ):
                callers = (alice, bob, alice)
                told = [str((await call(each, "toggle-subscriber-updates")).text) for each in callers]
        return [each.split()[0] for each in told]

    assert run_async(main()) == ["Started", "Started", "Stopped"]
