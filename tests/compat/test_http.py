"""Servers of other frameworks over HTTP, with a real client: run by themselves, and as applications."""

import asyncio
import contextlib
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from trunkline import Client
from trunkline.compat.features.host_guard import HostOriginGuardMiddleware

PROGRAMS = Path(__file__).parent / "programs"
HEADERS = {"x-team": "sky"}


@contextlib.asynccontextmanager
async def served(name: str, *arguments: str) -> AsyncIterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["-m", "trunkline", "run", "--compat", str(PROGRAMS / name), *arguments, str(port)]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=asyncio.subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            await asyncio.sleep(0.1)
        yield port
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.parametrize("how", ["streamable-http", "streamable_http_app"])
async def test_a_server_for_the_official_sdk(how: str) -> None:
    async with (
        served("http_official.py", how) as port,
        Client(f"http://127.0.0.1:{port}/mcp", headers=HEADERS) as connected,
    ):
        client: Any = connected
        assert (await client.call_tool("shout", {"text": "hi"})).data == "HI sky"
        answer = await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/health").read())
        assert answer == b"fine"


@pytest.mark.parametrize("how", ["sse", "sse_app"])
async def test_the_oldest_transport(how: str) -> None:
    async with (
        served("http_official.py", how) as port,
        Client({"type": "sse", "url": f"http://127.0.0.1:{port}/sse"}) as connected,
    ):
        client: Any = connected
        assert (await client.call_tool("shout", {"text": "hi"})).data == "HI nobody"


async def test_a_server_for_fastmcp() -> None:
    async with (
        served("http_fast.py") as port,
        Client(f"http://127.0.0.1:{port}/mcp", headers=HEADERS) as connected,
    ):
        client: Any = connected
        assert (await client.call_tool("team")).data == "sky"
        assert (await client.read_resource("users://ada/name"))[0].text == "name of ada"


@pytest.mark.parametrize(
    ("origin", "status"),
    [(b"http://localhost:3000", 200), (b"https://evil.example", 403), (b"http://[", 403), (b"http://[::1", 403)],
)
async def test_the_origin_check_of_fastmcp_rejects_a_malformed_origin(origin: bytes, status: int) -> None:
    found: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])

    headers = [(b"host", b"127.0.0.1:8000"), (b"origin", origin)]
    scope = {"type": "http", "scheme": "http", "headers": headers, "server": ("127.0.0.1", 8000)}
    await HostOriginGuardMiddleware(app)(scope, None, send)
    assert found == [status]
