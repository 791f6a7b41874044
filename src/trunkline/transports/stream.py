"""A link over asyncio streams that the caller opened: a TCP or Unix socket, a pipe, a TLS connection.

The streams do the buffering; one task reads. For plain descriptors ``PipeLink`` is cheaper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from trunkline.errors import ConnectionLost
from trunkline.protocol.caller import STREAM, Origin
from trunkline.protocol.jsonrpc import Outbound, decode, encode
from trunkline.protocol.limits import Limits
from trunkline.protocol.line_framing import LineReader
from trunkline.transports.codec_errors import encode_each, is_identified, too_long_error
from trunkline.transports.link import Link, Receiver

__all__ = ["StreamLink"]

_LIMITS = Limits()
_READ_BYTES = 256 * 1024  # Four times the limit of asyncio's own buffer (64 KiB).


class StreamLink(Link):
    """Carries messages, one per line, over a reader and a writer, both owned by the link."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        limits: Limits = _LIMITS,
        origin: Origin = STREAM,
    ) -> None:
        """Wrap the streams; nothing is read before ``attach``."""
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._origin = origin
        self._receiver: Receiver | None = None
        self._task: asyncio.Task[None] | None = None
        self._ended = False
        writer.transport.set_write_buffer_limits(high=limits.write_bytes)

    def attach(self, receiver: Receiver) -> None:
        """Start to read."""
        self._receiver = receiver
        self._task = asyncio.get_running_loop().create_task(self._read(receiver), name="trunkline-stream")

    def send(self, batch: Sequence[Outbound]) -> None:
        """Pass the messages to the writer, as one write."""
        if self._writer.is_closing():
            return
        try:
            lines = [encode(outbound.message) for outbound in batch]
        except Exception:  # noqa: BLE001 - send never raises
            lines = encode_each(batch)
        if lines:
            lines.append(b"")
            self._writer.write(b"\n".join(lines))

    async def drain(self) -> None:
        """Wait until the writer holds less than the limit, or is broken."""
        try:
            await self._writer.drain()
        except OSError as error:
            self._end(_lost(error))

    async def aclose(self) -> None:
        """Stop reading, wait a bounded time for unsent data to be sent, and close the streams."""
        self._end(None)
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        self._writer.close()
        try:
            async with asyncio.timeout(self._limits.exit_seconds):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            pass
        finally:
            self._writer.transport.abort()

    async def _read(self, receiver: Receiver) -> None:
        limits, origin = self._limits, self._origin
        lines = LineReader(limits.message_bytes, enough=is_identified)
        try:
            more = True
            while more:
                data = await self._reader.read(_READ_BYTES)
                more = data != b""
                for line in lines.feed(data) if more else lines.finish():
                    if self._ended:
                        return
                    receiver.message_received(
                        decode(line, limits) if isinstance(line, bytes) else too_long_error(line), origin
                    )
        except OSError as error:
            self._end(_lost(error))
        finally:
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        if not self._ended and self._receiver is not None:
            self._ended = True
            self._receiver.eof_received(error)


def _lost(error: OSError) -> ConnectionLost:
    lost = ConnectionLost(f"the stream broke: {error}")
    lost.__cause__ = error
    return lost
