"""A relay between an HTTP client and a server that prints the traffic.

Only the headers that matter to MCP are printed; a real request has a dozen more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import httptools

__all__ = ["tapped"]

#: Called with the sender ("client" or "server"), and with the headers as one line or a message as JSON text.
Show = Callable[[str, str], None]

_HEADERS = frozenset({"content-type", "mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name"})
_LONGEST = 36


def _short(value: str) -> str:
    return value if len(value) <= _LONGEST else f"{value[:8]}…"


class _Reader:
    """Reads one direction of a connection, with the parser that the server uses too."""

    def __init__(self, speaker: str, show: Show) -> None:
        self._speaker = speaker
        self._show = show
        self._asks = speaker == "client"
        self._parser = httptools.HttpRequestParser(self) if self._asks else httptools.HttpResponseParser(self)
        self._begin()

    def feed(self, data: bytes) -> None:
        """Parse some bytes."""
        self._parser.feed_data(data)

    def _begin(self) -> None:
        self._path = b""
        self._head: list[str] = []
        self._streams = False
        self._body = b""

    # --- what the parser calls ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Called at the start of a message."""
        self._begin()

    def on_url(self, url: bytes) -> None:
        """Called with a part of the path."""
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called with a header; those of MCP are collected."""
        if name.decode().lower() in _HEADERS:
            self._head.append(f"{name.decode()}: {_short(value.decode())}")
        self._streams = self._streams or value.startswith(b"text/event-stream")

    def on_headers_complete(self) -> None:
        """Called after the last header; prints them."""
        if isinstance(self._parser, httptools.HttpRequestParser):
            first = f"{self._parser.get_method().decode()} {self._path.decode()}"
        else:
            status = HTTPStatus(self._parser.get_status_code())
            first = f"{status.value} {status.phrase}"
        self._show(self._speaker, "   ".join([first, *self._head]))

    def on_body(self, body: bytes) -> None:
        """Called with a part of the body; prints the events of a stream."""
        self._body += body
        while self._streams and b"\n\n" in self._body:
            event, _, self._body = self._body.partition(b"\n\n")
            self._show(self._speaker, event.decode().replace("\n", "   "))

    def on_message_complete(self) -> None:
        """Called at the end of a message; prints a body that is not a stream."""
        if self._body and not self._streams:
            self._show(self._speaker, self._body.decode())


@asynccontextmanager
async def tapped(host: str, port: int, show: Show) -> AsyncIterator[int]:
    """Relay connections to an address; yield the port on which they are accepted."""
    relays: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        relays.add(task)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            there, back = await asyncio.open_connection(host, port)
            try:
                await asyncio.gather(
                    _pump(reader, back, _Reader("client", show)), _pump(there, writer, _Reader("server", show))
                )
            finally:
                back.close()
                writer.close()

    listening = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        for task in relays:
            task.cancel()
        await asyncio.gather(*relays, return_exceptions=True)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, reader: _Reader) -> None:
    while data := await source.read(65536):
        reader.feed(data)
        target.write(data)
        await target.drain()
    target.close()
