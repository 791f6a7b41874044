"""Servers in processes of their own, and a client that chooses which of them gets each request."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import aiohttp

from tests.transports.http.serving_support import BOTH, POLLING, initialize, notification
from trunkline.protocol.sse import EventReader, ServerSentEvent

__all__ = ["KEY", "Machine", "Stream", "WebClient", "machine", "web_client"]

KEY = "5a" * 32
PROGRAM = Path(__file__).parent / "programs" / "server.py"


class Machine:
    """A server program."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url


@contextmanager
def machine(
    *,
    key: str | None = KEY,
    expect: bool = True,
    program: Path = PROGRAM,
    stderr: IO[str] | None = None,
    **options: Any,
) -> Iterator[Machine]:
    """Run a server program, and end it; with ``expect`` wait until it is there."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TRUNKLINE_STATE_KEY", None)
    if key is not None:
        environment["TRUNKLINE_STATE_KEY"] = key
    process = subprocess.Popen(
        [sys.executable, str(program), json.dumps(options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if not expect else stderr,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip() if expect else ""
        assert url or not expect, "the server did not start"
        yield Machine(process, url)
    finally:
        process.kill()
        process.wait(120)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


class Stream:
    """A response that is a stream of events."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self._reader = EventReader(max_event=1 << 20)
        self._events: list[ServerSentEvent] = []
        self.last = ""

    async def event(self) -> ServerSentEvent | None:
        """Return the next event; None at the end, however it came."""
        while not self._events:
            try:
                chunk = await self.response.content.readany()
            except aiohttp.ClientError:
                return None
            if not chunk:
                return None
            self._events += self._reader.feed(chunk)
        event = self._events.pop(0)
        self.last = event.id or self.last
        return event

    async def message(self) -> Any:
        """Return the next message."""
        async with asyncio.timeout(120):
            while (event := await self.event()) is not None:
                if event.data:
                    return json.loads(event.data)
        return None

    def close(self) -> None:
        """Disconnect."""
        self.response.close()


class WebClient:
    """A handshake client with one session, whose requests go to any of several machines."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http
        self.session = ""
        self.revision = POLLING
        self._streams: list[Stream] = []

    def headers(self, more: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
        """Return the headers of a request."""
        head = {"accept": BOTH, "content-type": "application/json", "mcp-protocol-version": self.revision, **more}
        return {**head, "mcp-session-id": self.session} if self.session else head

    async def open(self, machine: Machine, capabilities: Mapping[str, Any] | None = None) -> None:
        """Open the session."""
        async with self.http.post(
            machine.url, json=initialize(self.revision, capabilities), headers=self.headers()
        ) as response:
            assert response.status == 200, await response.text()
            self.session = response.headers["mcp-session-id"]
        assert (await self.post(machine, notification("notifications/initialized")))[0] == 202

    async def post(self, machine: Machine, message: Any) -> tuple[int, Any]:
        """Post a message; return status and body."""
        async with self.http.post(machine.url, json=message, headers=self.headers()) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith("{") else text

    async def stream(self, machine: Machine, message: Any) -> Stream:
        """Post a request that is answered with a stream."""
        return self._opened(await self.http.post(machine.url, json=message, headers=self.headers()))

    async def get(self, machine: Machine, last: str | None = None) -> Stream:
        """Open the GET stream, or resume a stream."""
        more = {} if last is None else {"last-event-id": last}
        return self._opened(await self.http.get(machine.url, headers=self.headers(more)))

    def _opened(self, response: aiohttp.ClientResponse) -> Stream:
        self._streams.append(Stream(response))
        return self._streams[-1]

    def close(self) -> None:
        """Disconnect all streams."""
        for stream in self._streams:
            stream.close()

    async def delete(self, machine: Machine) -> int:
        """End the session."""
        async with self.http.delete(machine.url, headers=self.headers()) as response:
            return response.status


@asynccontextmanager
async def web_client() -> AsyncIterator[WebClient]:
    """Return a client without a session."""
    # A connection for each request, and every wait bounded.
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(sock_read=30)) as http:
        client = WebClient(http)
        try:
            yield client
        finally:
            client.close()
