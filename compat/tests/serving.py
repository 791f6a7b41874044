"""How the tests run a program of another framework: as a command, over HTTP, and told which generation it has."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import aiohttp
import msgspec

__all__ = [
    "GENERATIONS",
    "PROGRAMS",
    "RUN",
    "Reply",
    "browser",
    "command",
    "fetch",
    "free_port",
    "run_python",
    "serving",
]

PROGRAMS = Path(__file__).parent / "programs"
RUN = [sys.executable, "-m", "trunkline", "run", "--compat"]
#: The versions that a program of each generation is told.
GENERATIONS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "sdk1": {"mcp": "1.30.0"},
        "sdk2": {"mcp": "2.3.0"},
        "fastmcp2": {"mcp": "1.30.0", "fastmcp": "2.14.7"},
        "fastmcp3": {"mcp": "1.30.0", "fastmcp": "3.4.10"},
        "fastmcp4": {"mcp": "2.3.0", "fastmcp": "4.1.2"},
    }
)


def command(generation: str, program: str | Path, *arguments: str) -> list[str]:
    """Return the command that runs a program, or a file, as one of a generation."""
    path = str(PROGRAMS / program)
    versions = dict(GENERATIONS[generation])
    source = (
        f"import runpy, sys; from trunkline_compat.imports import install; install(**{versions!r}); "
        f"sys.argv = [{path!r}, *sys.argv[1:]]; runpy.run_path({path!r}, run_name='__main__')"
    )
    return [sys.executable, "-c", source, *arguments]


def run_python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments and more environment variables, and return what it printed."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **variables},
    )


def free_port() -> int:
    """Return a port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def serving(port: int, arguments: list[str], **variables: str) -> AsyncIterator[str]:
    """Run a command, in a folder of its own, until the context ends; it listens when this yields its URL."""
    folder = tempfile.TemporaryDirectory()
    process = await asyncio.create_subprocess_exec(
        *arguments, env={**os.environ, **variables}, stderr=asyncio.subprocess.PIPE, cwd=folder.name
    )
    try:
        async with asyncio.timeout(120):
            while not await _accepts(port):
                if process.returncode is not None:
                    assert process.stderr is not None
                    raise AssertionError((await process.stderr.read()).decode())
                await asyncio.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        await _stop(process)
        folder.cleanup()


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Interrupt a server, which ends as a program does and so writes its coverage; one that does not is killed."""
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
    try:
        await asyncio.wait_for(process.communicate(), 120)
    except TimeoutError:
        process.kill()
        await process.communicate()


class Reply(NamedTuple):
    """A response over HTTP."""

    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:
        """Return the body as JSON."""
        return msgspec.json.decode(self.text)


def browser() -> aiohttp.ClientSession:
    """Return a client that keeps cookies, those of this machine too."""
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


async def fetch(http: aiohttp.ClientSession, url: str, method: str = "GET", **options: Any) -> Reply:
    """Send a request, and return its response; redirects are not followed."""
    async with http.request(method, url, allow_redirects=False, **options) as response:
        return Reply(response.status, response.headers, await response.text())


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
