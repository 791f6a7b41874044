"""Behind a real nginx, configured with the block of the documentation; skipped where there is no nginx."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import tests
from trunkline import Client, Context, Server

NGINX = shutil.which("nginx", path="/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin:/opt/homebrew/bin")
PAGE = Path(tests.__file__).parents[1] / "docs" / "how-to" / "serve-over-http.md"
REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (on Debian: apt install nginx-light)")


def block() -> str:
    """Return the ``location`` that the documentation shows."""
    found = re.search(r"```text\n(location /mcp \{.*?\n\})\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def configuration(folder: Path, *, front: int, behind: int) -> Path:
    """Write all that nginx needs into a folder: it runs as the user of the tests."""
    places = "\n".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    location = block().replace("127.0.0.1:8000", f"127.0.0.1:{behind}")
    written = folder / "nginx.conf"
    written.write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\nevents {{}}\n"
        f"http {{ access_log off; {places}\n"
        f"server {{ listen 127.0.0.1:{front}; server_name localhost;\n{location}\n}} }}\n",
        encoding="utf-8",
    )
    return written


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


async def listening(port: int) -> None:
    """Wait until connections are accepted."""
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def behind_nginx(server: Server, folder: Path, **options: Any) -> AsyncIterator[str]:
    """Serve behind nginx; give the address in front of it."""
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(server.run_async("http", port=0, started=started.set_result, **options))
    front, behind = free_port(), int((await started).rpartition(":")[2].partition("/")[0])
    assert NGINX is not None
    # It says on stderr that it may not write its usual log, before it reads where to log instead.
    command = [NGINX, "-c", str(configuration(folder, front=front, behind=behind)), "-p", str(folder)]
    proxy = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        await listening(front)
        yield f"http://localhost:{front}/mcp"
    finally:
        proxy.terminate()
        await proxy.wait()
        serving.cancel()
        await asyncio.wait([serving])


def make_server() -> Server:
    server = Server("behind", version="1")

    @server.tool
    async def steps(ctx: Context) -> str:
        """Report and wait, so that what is buffered on the way would come too late."""
        for number in range(3):
            await ctx.report_progress(number + 1, 3)
            await ctx.info(f"step {number}")
        return "done"

    @server.tool
    async def change() -> bool:
        server.changed("tools")
        return True

    return server


async def test_a_call_with_progress_works_in_every_revision(tmp_path: Path) -> None:
    async with behind_nginx(make_server(), tmp_path) as url:
        for revision in REVISIONS:
            seen: list[float] = []
            address = f"{url}/sse" if revision == "2024-11-05" else url
            async with Client(address, revision=revision) as client:
                result = await client.call_tool("steps", on_progress=lambda at, *_: seen.append(at))  # noqa: B023
            assert (revision, result.text, seen) == (revision, "done", [1, 2, 3])


async def test_a_change_reaches_a_listener_at_once(tmp_path: Path) -> None:
    async with behind_nginx(make_server(), tmp_path) as url:
        for revision in ("2025-11-25", "2026-07-28"):
            async with Client(url, revision=revision) as client, client.listen(tools=True) as changes:
                await client.call_tool("change")
                assert (revision, (await anext(changes)).kind) == (revision, "tools")


async def test_a_public_name_is_served_if_it_was_allowed(tmp_path: Path) -> None:
    async with behind_nginx(make_server(), tmp_path, allowed_hosts=["mcp.example.com"]) as url:
        front = int(url.rpartition(":")[2].partition("/")[0])
        assert await status_line(front, "mcp.example.com") == "HTTP/1.1 200 OK"
        assert await status_line(front, "other.example.com") == "HTTP/1.1 403 Forbidden"


async def status_line(port: int, host: str) -> str:
    """Post an ``initialize`` with a Host of our own and give the first line of the answer."""
    body = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
        b'"clientInfo":{"name":"c","version":"1"}}}'
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    line = await reader.readline()
    writer.close()
    return line.decode().strip()
