"""A transport written from scratch: each message is a frame, its length in four bytes and then the JSON.

A transport has to deliver whole messages to the receiver, accept whole messages without blocking, let a sender wait,
and report the end once. ``trunkline.testing.check_link`` checks exactly that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from trunkline import Limits
from trunkline.errors import ConnectionLost
from trunkline.transports import Link, Origin, Outbound, Receiver, decode, encode

__all__ = ["FrameLink"]

FRAMES = Origin("frames")


class FrameLink(Link, asyncio.Protocol):
    """Carries messages as frames over any stream transport of asyncio; pass it to ``create_connection``."""

    def __init__(self, limits: Limits | None = None) -> None:
        """Start unconnected; the event loop connects."""
        self._limits = limits or Limits()
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._unread = bytearray()
        self._room = asyncio.Event()
        self._room.set()
        self._lost = asyncio.Event()
        self._ended = False

    # --- what Trunkline calls ---------------------------------------------------------------------------------------

    def attach(self, receiver: Receiver) -> None:
        """Start delivering, beginning with the messages that arrived before."""
        self._receiver = receiver
        self._deliver()
        if self._lost.is_set():
            self._end(None)

    def send(self, batch: Sequence[Outbound]) -> None:
        """Write the messages; asyncio buffers what cannot be sent yet."""
        if self._transport is None or self._transport.is_closing():
            return
        frames = []
        for outbound in batch:
            data = encode(outbound.message)
            frames += [len(data).to_bytes(4, "big"), data]
        self._transport.write(b"".join(frames))

    async def drain(self) -> None:
        """Wait until the write buffer is small enough."""
        await self._room.wait()

    async def aclose(self) -> None:
        """Send what is buffered, within a time limit, and close."""
        self._end(None)
        if self._transport is None:
            return
        self._transport.close()
        try:
            async with asyncio.timeout(self._limits.exit_seconds):
                await self._lost.wait()
        except TimeoutError:
            self._transport.abort()

    # --- what asyncio calls -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # streams only
        """Called when the stream is connected."""
        self._transport = transport
        transport.set_write_buffer_limits(high=self._limits.write_bytes)

    def data_received(self, data: bytes) -> None:
        """Called with received bytes, in chunks of any size."""
        self._unread += data
        if self._receiver is not None:
            self._deliver()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the stream ends."""
        self._lost.set()
        self._room.set()
        self._end(None if exc is None else ConnectionLost(f"the connection broke: {exc}"))

    def pause_writing(self) -> None:
        """Called when the write buffer is full; senders wait."""
        self._room.clear()

    def resume_writing(self) -> None:
        """Called when the write buffer has room again."""
        self._room.set()

    # --- frames -----------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        receiver, unread, start = self._receiver, self._unread, 0
        while receiver is not None and not self._ended and len(unread) - start >= 4:
            size = int.from_bytes(unread[start : start + 4], "big")
            if size > self._limits.message_bytes:
                self._end(ConnectionLost(f"a frame of {size} bytes; the limit is {self._limits.message_bytes}"))
                return
            if len(unread) - start < 4 + size:
                break
            receiver.message_received(decode(bytes(unread[start + 4 : start + 4 + size]), self._limits), FRAMES)
            start += 4 + size
        del unread[:start]

    def _end(self, error: Exception | None) -> None:
        if not self._ended and self._receiver is not None:
            self._ended = True
            self._receiver.eof_received(error)
