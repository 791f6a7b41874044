"""Streams of messages as the official SDK has them, joined to our links.

There a server runs on two streams of ``SessionMessage``; ``ProcessStream`` stands for the process's own input and
output, which our transport serves directly, and ``StreamLink`` carries messages over any other pair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from trunkline.protocol.caller import MEMORY
from trunkline.protocol.jsonrpc import Outbound, decode, encode
from trunkline.protocol.limits import Limits
from trunkline.transports.link import Link, Receiver
from trunkline_compat.types import model_class, to_plain

_CLOSE_SECONDS = 5.0  # A writer that takes longer has gone.

__all__ = ["ProcessStream", "SessionMessage", "StreamLink", "to_message"]


class SessionMessage:
    """A message and what the transport knows about it."""

    def __init__(self, message: Any, metadata: Any = None) -> None:
        """Keep both."""
        self.message = message
        self.metadata = metadata


class ProcessStream:
    """Stands for the input and output of this process, or of a child."""

    def __init__(self, target: Any = None) -> None:
        """Keep what a client connects to."""
        self.target = target

    async def aclose(self) -> None:
        """Do nothing: who runs on it closes it."""

    async def __aenter__(self) -> ProcessStream:
        """Return itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing."""


class StreamLink(Link):
    """A link over two streams of ``SessionMessage``."""

    def __init__(self, read_stream: Any, write_stream: Any) -> None:
        """Initialize with the stream to receive from and the one to send to."""
        self._read, self._write = read_stream, write_stream
        self._limits = Limits()
        self._tasks: list[asyncio.Task[None]] = []
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._receiver: Receiver | None = None

    def attach(self, receiver: Receiver) -> None:
        """Start to deliver."""
        self._receiver = receiver
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._receive(receiver)), loop.create_task(self._send())]

    def send(self, batch: Sequence[Outbound]) -> None:
        """Queue the messages."""
        for outbound in batch:
            self._outbox.put_nowait(encode(outbound.message))

    async def drain(self) -> None:
        """Wait until everything is sent."""
        await self._outbox.join()

    async def aclose(self) -> None:
        """Send what is queued, for a few seconds, and close both streams."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._outbox.join(), _CLOSE_SECONDS if self._tasks else 0)
        for task in self._tasks:
            task.cancel()
        for stream in (self._read, self._write):
            if hasattr(stream, "aclose"):
                await stream.aclose()

    async def _receive(self, receiver: Receiver) -> None:
        error: Exception | None = None
        try:
            async for item in self._read:
                if isinstance(item, Exception):
                    continue
                message = getattr(item, "message", item)
                data = msgspec.json.encode(to_plain(getattr(message, "root", message)))
                receiver.message_received(decode(data, self._limits), MEMORY)
        except asyncio.CancelledError:
            raise
        except Exception as failure:  # noqa: BLE001 - the stream is the user's; it ended, whatever it raised
            error = failure
        receiver.eof_received(error if error is not None and "Closed" not in type(error).__name__ else None)

    async def _send(self) -> None:
        is_open = True
        while True:
            data = await self._outbox.get()
            try:
                if is_open:
                    await self._write.send(SessionMessage(to_message(msgspec.json.decode(data))))
            except Exception:  # noqa: BLE001 - the other side is gone, as the reader notices; the rest is dropped
                is_open = False
            finally:
                self._outbox.task_done()


def to_message(plain: Any) -> Any:
    """Return a JSON-RPC message as a model."""
    kind = model_class("JSONRPCMessage")
    if hasattr(kind, "model_validate"):
        return kind.model_validate(plain)
    name = "Error" if "error" in plain else "Response" if "result" in plain else "Request" if "id" in plain else None
    return model_class(f"JSONRPC{name or 'Notification'}").model_validate(plain)
