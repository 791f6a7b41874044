"""Two connected links inside one process: for tests, for ``Client(server)``, for servers mounted in a host.

Messages cross as bytes, so both ends see exactly what a pipe would carry and nothing is shared by reference. A message
is delivered at once, in the receiving end's context and without a turn of the event loop; only messages sent back
during a delivery wait for the next turn. Both ends use the same loop.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence

from trunkline.protocol.caller import MEMORY
from trunkline.protocol.jsonrpc import Outbound, decode, encode
from trunkline.protocol.limits import Limits
from trunkline.protocol.line_framing import OversizedLine
from trunkline.transports.codec_errors import encode_each, too_long_error
from trunkline.transports.link import Link, Receiver

__all__ = ["MemoryLink", "memory_pair"]

_LIMITS = Limits()
# A longer burst is delivered in the next turn of the loop, so that one busy sender does not starve the others.
_BURST = 64


class MemoryLink(Link):
    """One end of a pair; ``memory_pair`` creates both."""

    __slots__ = (
        "_busy",
        "_closed",
        "_context",
        "_ended",
        "_inbox",
        "_limits",
        "_loop",
        "_other",
        "_receiver",
        "_room",
        "_size",
        "_woken",
    )

    def __init__(self, limits: Limits) -> None:
        """Create an end that is not connected yet."""
        self._limits = limits
        self._other: MemoryLink = self
        self._receiver: Receiver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: contextvars.Context | None = None
        self._inbox: list[bytes] = []
        #: Bytes in the inbox: sent by the other end and not delivered yet.
        self._size = 0
        self._room = asyncio.Event()
        self._closed = False
        self._ended = False
        self._busy = False
        self._woken = False

    def attach(self, receiver: Receiver) -> None:
        """Start to deliver, beginning with the messages that have already arrived."""
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        # The other end schedules the delivery; its context variables must not reach our receiver.
        self._context = contextvars.copy_context()
        if self._inbox or self._other._closed:
            self._loop.call_soon(self._deliver, context=self._context)

    def send(self, batch: Sequence[Outbound]) -> None:
        """Put the messages into the other end's inbox."""
        other = self._other
        if self._closed or other._closed:
            return
        try:
            encoded = [encode(outbound.message) for outbound in batch]
        except Exception:  # noqa: BLE001 - send never raises
            encoded = encode_each(batch)
        context = other._context
        if context is None or other._busy or other._inbox or len(encoded) > _BURST:
            other._inbox += encoded
            other._size += sum(map(len, encoded))
            other._wake()
        else:
            context.run(other._deliver_messages, encoded)

    async def drain(self) -> None:
        """Wait until the inbox of the other end is below the limit."""
        other = self._other
        while other._size > self._limits.write_bytes and not (self._closed or other._closed):
            other._room.clear()
            await other._room.wait()

    async def aclose(self) -> None:
        """Close both directions: messages sent before are still delivered, then the other end gets the end."""
        if self._closed:
            return
        self._closed = True
        self._inbox = []
        self._size = 0
        self._room.set()
        self._end()
        if not self._other._closed:
            self._other._room.set()
            self._other._wake()

    def _wake(self) -> None:
        """Deliver the inbox in the next turn of the loop."""
        if self._loop is not None and not self._woken:
            self._woken = True
            self._loop.call_soon(self._deliver, context=self._context)

    def _deliver(self) -> None:
        """Deliver the inbox; messages that arrive meanwhile wait for the next turn."""
        self._woken = False
        inbox, self._inbox = self._inbox, []
        self._size = 0
        self._room.set()
        self._deliver_messages(inbox)
        if self._other._closed and not self._inbox:
            self._end()

    def _deliver_messages(self, messages: list[bytes]) -> None:
        """Deliver messages to the receiver, in the context it was attached in."""
        receiver, limits = self._receiver, self._limits
        assert receiver is not None
        self._busy = True
        try:
            for data in messages:
                if self._closed:
                    return
                if len(data) > limits.message_bytes:
                    receiver.message_received(too_long_error(OversizedLine.of(data, limits.message_bytes)), MEMORY)
                else:
                    receiver.message_received(decode(data, limits), MEMORY)
        finally:
            self._busy = False
        if self._inbox:
            self._wake()

    def _end(self) -> None:
        if not self._ended and self._receiver is not None:
            self._ended = True
            self._receiver.eof_received()


def memory_pair(limits: Limits = _LIMITS) -> tuple[MemoryLink, MemoryLink]:
    """Create two connected ends; what one sends the other receives."""
    left, right = MemoryLink(limits), MemoryLink(limits)
    left._other, right._other = right, left
    return left, right
