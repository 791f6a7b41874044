"""Clients of plain sockets that keep their connections, while the workers of a server are replaced again and again.

Each client sends its next call on the connection of the last one, as the pools of all HTTP clients do, and opens
another only when the server has said ``Connection: close`` or has closed it before the call was sent. A call is lost
if it has no result: the connection broke, the status was not 200, or nothing came for a long time. A stream that ends
early is resumed, as clients of handshake revisions do.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from tests.transports.http.serving_support import BOTH, META, POLLING, STATELESS, initialize, notification, request
from tests.transports.http.shared.machines import Machine
from trunkline.protocol.sse import EventReader

__all__ = ["KeepAliveClient", "Load", "Lost", "run_load"]

#: A call that has no response after so many seconds would wait for ever.
CALL_SECONDS = 25.0
#: All workers are replaced within this time.
REPLACE_SECONDS = 60.0


class Lost(Exception):
    """A call without a result."""


class Load:
    """What a run has counted."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.calls = 0
        self.lost: list[str] = []
        self.restarts = 0
        self.connections = 0
        #: Responses that began as streams; and those of them that ended early, whose rest was found by resuming them.
        self.streams = 0
        self.resumed = 0


class _Answer:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class KeepAliveClient:
    """One client with one connection at a time."""

    def __init__(self, url: str, load: Load) -> None:
        """Call a server; nothing is connected yet."""
        parts = urlsplit(url)
        self._host, self._port, self._path = parts.hostname or "", parts.port or 0, parts.path
        self._load = load
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.session: str | None = None

    # --- HTTP --------------------------------------------------------------------------------------------------------

    async def send(self, message: Any, headers: Mapping[str, str], *, method: str = "POST") -> _Answer:
        """Send a request on the connection, and read its whole response."""
        body = b"" if message is None else json.dumps(message).encode()
        head = {"host": f"{self._host}:{self._port}", "accept": BOTH, **headers}
        if message is not None:
            head |= {"content-type": "application/json", "content-length": str(len(body))}
        lines = [f"{method} {self._path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        reader, writer = await self._connected()
        try:
            writer.write("\r\n".join(lines).encode() + body)
            answer = await self._read(reader)
        except (OSError, EOFError) as error:
            self.close()
            raise Lost(f"the connection broke: {error!r}") from error
        if "close" in answer.headers.get("connection", ""):
            self.close()
        return answer

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is not None and self._reader.at_eof():
            self.close()
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
            self._load.connections += 1
        return self._reader, self._writer

    async def _read(self, reader: asyncio.StreamReader) -> _Answer:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(": ") for line in head[1:] if line)
        headers = {name.lower(): value for name, _, value in pairs}
        if headers.get("transfer-encoding") == "chunked":
            self._load.streams += 1
            body = b""
            while size := int(await reader.readuntil(b"\r\n"), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        else:
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        return _Answer(int(head[0].split(" ")[1]), headers, body)

    async def closed_by_server(self) -> bool:
        """Wait until the server closes the connection, with nothing more sent; return whether it was so."""
        assert self._reader is not None
        return not await self._reader.read()

    def close(self) -> None:
        """Disconnect."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    # --- MCP ---------------------------------------------------------------------------------------------------------

    async def open_session(self) -> None:
        """Open a session of a handshake revision."""
        answer = await self.send(initialize(POLLING), {"mcp-protocol-version": POLLING})
        self.session = answer.headers["mcp-session-id"]
        await self.send(notification("notifications/initialized"), self._session_headers())

    def _session_headers(self) -> dict[str, str]:
        assert self.session is not None
        return {"mcp-protocol-version": POLLING, "mcp-session-id": self.session}

    async def call(self, id: int, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool; return the text of its result.

        Raises:
            Lost: there is no result.
        """
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        if self.session is None:
            headers = {"mcp-protocol-version": STATELESS, "mcp-method": "tools/call", "mcp-name": name}
            params["_meta"] = {**META, "io.modelcontextprotocol/logLevel": "info"}
        else:
            headers = self._session_headers()
        answer = await self.send(request("tools/call", params, id=id), headers)
        if answer.status != 200:
            raise Lost(f"status {answer.status}: {answer.body[:200]!r}")
        if "text/event-stream" not in answer.headers["content-type"]:
            return _text_of(json.loads(answer.body), id)
        last = ""
        while not (message := _response_of(answer.body)):
            last = _last_id(answer.body) or last
            if not last or self.session is None:
                raise Lost("a stream ended without a response, and cannot be resumed")
            # Clients wait before they resume, for a second if the server says so, and see by then that this is closed.
            self.close()
            answer = await self.send(None, {**self._session_headers(), "last-event-id": last}, method="GET")
            if answer.status != 200:
                raise Lost(f"a stream was not resumed: status {answer.status}")
            self._load.resumed += 1
        return _text_of(message, id)


def _events(body: bytes) -> list[Any]:
    return list(EventReader(max_event=1 << 20).feed(body))


def _last_id(body: bytes) -> str:
    return next((event.id for event in reversed(_events(body)) if event.id), "")


def _response_of(body: bytes) -> Any:
    messages = [json.loads(event.data) for event in _events(body) if event.data]
    return next((message for message in messages if "method" not in message), None)


def _text_of(message: Any, id: int) -> str:
    if message.get("id") != id or "result" not in message:
        raise Lost(f"not the result of this call: {json.dumps(message)[:200]}")
    return str(message["result"]["content"][0]["text"])


async def run_load(
    machine: Machine,
    workers: Callable[[], set[int]],
    *,
    clients: int = 16,
    calls: int,
    restarts: int,
    steps: int = 0,
) -> Load:
    """Replace all workers so many times under load, until there were so many calls; return what was counted.

    Half of the clients are of each era. One call in eight is answered with a stream of ``steps`` steps, if there are.
    """
    load, done = Load(), asyncio.Event()

    async def call_on(number: int) -> None:
        client = KeepAliveClient(machine.url, load)
        if number % 2:
            await client.open_session()
        turn = number
        try:
            while not done.is_set():
                turn += 1
                name, arguments = ("walk", {"n": steps}) if steps and turn % 8 == 0 else ("pid", {})
                load.calls += 1
                try:
                    async with asyncio.timeout(CALL_SECONDS):
                        await client.call(turn, name, arguments)
                except TimeoutError:
                    load.lost.append(f"{name}: no response in {CALL_SECONDS:g} s")
                    client.close()
                except Lost as error:
                    load.lost.append(f"{name}: {error}")
        finally:
            client.close()

    running = [asyncio.create_task(call_on(number)) for number in range(clients)]
    try:
        while load.restarts < restarts or load.calls < calls:
            before = workers()
            machine.process.send_signal(signal.SIGHUP)
            async with asyncio.timeout(REPLACE_SECONDS):
                while before & workers():  # noqa: ASYNC110  what is observed has no event
                    await asyncio.sleep(0.05)
            load.restarts += 1
    finally:
        done.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * CALL_SECONDS):
                await asyncio.gather(*running)
    return load
