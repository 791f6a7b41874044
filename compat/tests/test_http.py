"""Servers of other frameworks over HTTP: run by themselves, as applications, joined by hand, and their clients."""

import asyncio
import io
import json
from typing import Any

import aiohttp
import pytest

from compat.tests.serving import browser, command, fetch, free_port, run_python, serving
from trunkline import Client

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
ACCEPT = {"accept": "application/json, text/event-stream"}


@pytest.mark.parametrize(("generation", "how"), [("sdk1", "streamable-http"), ("sdk2", "streamable_http_app")])
async def test_a_server_for_the_official_sdk(generation: str, how: str) -> None:
    port = free_port()
    async with serving(port, command(generation, "http_official.py", how, str(port))) as url:
        for revision in ("handshake", "auto"):
            async with Client(f"{url}/mcp", headers={"x-team": "sky"}, revision=revision) as client:
                assert (await client.call_tool("shout", {"text": "hi"})).data == "HI sky"
        async with browser() as http:
            assert (await fetch(http, f"{url}/health")).text == "fine"
            statuses = []
            for header in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
                reply = await fetch(http, f"{url}/mcp", "POST", json=HELLO, headers={**ACCEPT, **header})
                statuses.append(reply.status)
            assert statuses == [403, 403]


async def test_clients_of_both_frameworks_speak_every_transport() -> None:
    port = free_port()
    async with serving(port, command("sdk1", "http_official.py", "sse", str(port))) as url:
        for generation in ("fastmcp2", "fastmcp4"):
            client = command(generation, "clients.py", url, *command("sdk1", "official_low.py"))
            run = await asyncio.to_thread(run_python, *client[1:])
            assert run.stdout.splitlines() == [
                "over-http HI sky",
                "over-http HI sky",
                "HI nobody",
                "HI sky",
                "HI nobody",
                "read",
            ], run.stderr


async def test_a_server_inside_another_application_without_sessions() -> None:
    port = free_port()
    async with serving(port, command("sdk1", "http_official.py", "mounted", str(port))) as url:
        async with Client(f"{url}/mcp", revision="handshake") as client:
            assert (await client.call_tool("shout", {"text": "hi"})).data == "HI nobody"
        async with browser() as http:
            hello = await fetch(http, f"{url}/mcp", "POST", json=HELLO, headers=ACCEPT)
        assert (hello.headers["content-type"], "mcp-session-id" in hello.headers) == ("application/json", False)


@pytest.mark.parametrize(("generation", "how"), [("fastmcp2", []), ("fastmcp3", ["mounted"]), ("fastmcp4", [])])
async def test_a_server_for_fastmcp(generation: str, how: list[str]) -> None:
    port = free_port()
    async with serving(port, command(generation, "http_fast.py", str(port), *how)) as url:
        headers = {"x-team": "sky", "authorization": "Bearer secret"}
        async with Client(f"{url}/api/mcp", headers=headers, revision="handshake") as client:
            assert (await client.call_tool("team")).data == "sky /api/mcp False"
            assert (await client.read_resource("users://ada/name"))[0].text == "name of ada"
            counted = [(await client.call_tool("count")).data for _ in range(2)]
            assert counted == ([1, 1] if generation == "fastmcp2" else [1, 2])
        async with Client(f"{url}/api/mcp", revision="handshake") as other:
            assert (await other.call_tool("count")).data == 1
        async with browser() as http:
            health = await fetch(http, f"{url}/health")
            assert (health.text, health.headers["x-stamp"]) == ("fine", "1")


async def test_transports_joined_by_hand() -> None:
    port = free_port()
    async with serving(port, command("sdk1", "http_by_hand.py", str(port))) as url:
        for target in ({"type": "sse", "url": f"{url}/sse"}, f"{url}/mcp"):
            async with Client(target) as connected:
                client: Any = connected
                assert [tool.name for tool in await client.list_tools()] == ["length"]
                assert (await client.call_tool("length", {"text": "x" * 1000})).text == "1000"
        async with browser() as http:
            await check_messages_by_hand(http, url)


async def next_data(events: aiohttp.ClientResponse) -> str:
    """Return the data of the next event of a stream."""
    async with asyncio.timeout(120):
        while not (line := await events.content.readline()).startswith(b"data:"):
            assert line, "the stream ended"
    return line.decode()[5:].strip()


async def check_messages_by_hand(http: aiohttp.ClientSession, url: str) -> None:
    """Post what no client sends to the path for messages: sizes, sessions, and bodies that are not messages."""

    async def post(path: str, body: Any) -> int:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return (await fetch(http, f"{url}{path}", "POST", data=io.BytesIO(data))).status

    async with http.get(f"{url}/sse") as events:
        path = await next_data(events)
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": {"pad": "x" * (4 * 1024 * 1024)}}}
        assert await post(path, message) == 413
        assert await post("/messages/?session_id=guessed", HELLO) in (400, 404)
        assert await post("/messages/", HELLO) in (400, 404)
        assert await post(path, b"{not json") == 400
        assert await post(path, {"neither": "request", "nor": "response"}) == 400
        # The session still works.
        assert await post(path, HELLO) == 202
        assert json.loads(await next_data(events))["result"]["serverInfo"]["name"] == "by-hand"
