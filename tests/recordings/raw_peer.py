"""The other side of a connection, played by a test: it sends and receives plain JSON, in either role."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from trunkline.protocol.caller import MEMORY
from trunkline.protocol.jsonrpc import Outbound, decode, encode
from trunkline.transports.link import Link, Receiver

__all__ = ["RawPeer", "initialize", "initialized"]


class RawPeer(Link):
    """A Link to give to a ``Server`` or a ``Client``; the test is at its far end."""

    def __init__(self) -> None:
        self._receiver: asyncio.Future[Receiver] = asyncio.get_running_loop().create_future()
        self._heard: asyncio.Queue[Any] = asyncio.Queue()
        self.closed = asyncio.Event()

    # The Link.

    def attach(self, receiver: Receiver) -> None:
        self._receiver.set_result(receiver)

    def send(self, batch: Sequence[Outbound]) -> None:
        for outbound in batch:
            self._heard.put_nowait(json.loads(encode(outbound.message)))

    async def drain(self) -> None:
        return

    async def aclose(self) -> None:
        self.closed.set()

    # The test's own side.

    async def say(self, message: object) -> None:
        """Send JSON, or text unchanged."""
        text = message if isinstance(message, str) else json.dumps(message)
        (await self._receiver).message_received(decode(text.encode()), MEMORY)

    async def hear(self) -> Any:
        """Wait for the next message."""
        return await self._heard.get()

    async def ask(self, message: object) -> Any:
        """Send a message and wait for the next one that arrives."""
        await self.say(message)
        return await self.hear()

    async def request(self, method: str, params: object = None, *, id: object = 99) -> Any:
        """Send a request and wait for the next message that arrives."""
        return await self.ask(
            {"jsonrpc": "2.0", "id": id, "method": method} | ({} if params is None else {"params": params})
        )

    async def end(self) -> None:
        """End the connection."""
        (await self._receiver).eof_received()

    @property
    def unheard(self) -> int:
        """The number of received messages that the test has not read."""
        return self._heard.qsize()


def initialize(revision: str, capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the first message of a handshake."""
    info = {"name": "raw", "version": "1"}
    params = {"protocolVersion": revision, "capabilities": capabilities or {}, "clientInfo": info}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def initialized() -> dict[str, Any]:
    """Return the message that ends a handshake."""
    return {"jsonrpc": "2.0", "method": "notifications/initialized"}
