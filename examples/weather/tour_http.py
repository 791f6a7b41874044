"""The part of the tour over HTTP: one server process, one address, both eras; every request and response is shown."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

from examples.weather.screen import Screen
from trunkline import Client

__all__ = ["walk_http"]

SERVER = Path(__file__).with_name("server.py")
SECONDS = 10


@asynccontextmanager
async def _server() -> AsyncIterator[tuple[str, int]]:
    """Start the weather server over HTTP on a free port; yield its address."""
    program = [sys.executable, "-m", "trunkline", "run", str(SERVER), "--http", "0"]
    process = await asyncio.create_subprocess_exec(*program, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    found = None
    async with asyncio.timeout(SECONDS):
        while found is None and (line := await process.stderr.readline()):
            found = re.search(r"http://([\d.]+):(\d+)/mcp", line.decode())
    assert found is not None, "the server did not start"
    try:
        yield found.group(1), int(found.group(2))
    finally:
        process.terminate()
        await process.communicate()


async def walk_http(screen: Screen, *, first: int, handshake: str, stateless: str) -> None:
    """Run the steps over HTTP."""
    screen.heading(f"{first}. The same server over HTTP")
    if find_spec("uvicorn") is None or find_spec("aiohttp") is None or find_spec("httptools") is None:
        screen.say("This part needs the HTTP extra. Install it and run the tour again: pip install 'trunkline[http]'")
        return
    from examples.weather.tap import tapped

    screen.say(
        """A server for several clients listens on an address. One endpoint serves both eras, and the server's file does
        not change. Here → and ← mark requests and responses: the HTTP headers that matter to MCP, and the messages."""
    )
    screen.code("trunkline run examples/weather/server.py --http 8000")
    async with _server() as (host, port), tapped(host, port, screen.exchange) as shown:
        url = f"http://{host}:{shown}/mcp"
        await _stateless(screen, url, stateless)
        screen.pause()
        screen.heading(f"{first + 1}. With a session ({handshake})")
        await _handshake(screen, url, handshake)


async def _stateless(screen: Screen, url: str, revision: str) -> None:
    screen.say(
        f"""In {revision} each request is complete, so any process could answer it. The headers name the revision, the
        method and the tool, for proxies in between. The answer is plain JSON."""
    )
    screen.code(
        """
        async with Client("http://127.0.0.1:8000/mcp") as client:
            await client.call_tool("com.example.weather/current", {"location": "Oslo"})
        """
    )
    async with Client(url) as client:
        answer = await client.call_tool("com.example.weather/current", {"location": "Oslo"})
    screen.result(answer.text)


async def _handshake(screen: Screen, url: str, revision: str) -> None:
    screen.say(
        """Older clients open a session at the same address. Its id is in a header of the response and of
        every later request, until DELETE. A call that reports progress is answered with a stream of events."""
    )
    screen.code(
        f"""
        async with Client("http://127.0.0.1:8000/mcp", revision="{revision}") as client:
            await client.call_tool("forecast", {{"location": "Oslo", "days": 2}}, on_progress=show)
        """
    )
    progress: list[float] = []
    async with Client(url, revision=revision) as client:
        await client.call_tool(
            "forecast", {"location": "Oslo", "days": 2}, on_progress=lambda done, total, text: progress.append(done)
        )
    screen.result(f"{len(progress)} progress notifications, then the result; then the session was closed")
