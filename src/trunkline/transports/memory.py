"""Two links joined inside one process: for tests, for ``Client(server)``, for servers mounted in a host.

Messages cross as bytes, so both ends see exactly what a pipe would carry and nothing is shared by reference. What one
end sends the other takes at once, in its own context and without a turn of the event loop; only what it sends back
while it is taking waits for its turn. Both ends live in the same loop.
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
# A longer burst is delivered in the next turn of the loop, so that a sender in a loop does not starve the others.
_BURST = 64


class MemoryLink(Link):
    """One end of a pair; ``memory_pair`` makes both."""

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
        """Make an end that is joined to nothing yet."""
        self._limits = limits
        self._other: MemoryLink = self
        self._receiver: Receiver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: contextvars.Context | None = None
        self._inbox: list[bytes] = []
        #: Bytes in the inbox: what the other end has sent and this one has not yet taken.
        self._size = 0
        self._room = asyncio.Event()
        self._closed = False
        self._ended = False
        self._busy = False
        self._woken = False

    def attach(self, receiver: Receiver) -> None:
        """Start to deliver, beginning with what came before."""
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        # The other end schedules the delivery; its context variables are none of our receiver's business.
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
            context.run(other._take, encoded)

    async def drain(self) -> None:
        """Wait until the other end has taken enough."""
        other = self._other
        while other._size > self._limits.write_bytes and not (self._closed or other._closed):
            other._room.clear()
            await other._room.wait()

    async def aclose(self) -> None:
        """End both directions: what was sent before still arrives, then the other end is told."""
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
        """Deliver what waits in the next turn of the loop."""
        if self._loop is not None and not self._woken:
            self._woken = True
            self._loop.call_soon(self._deliver, context=self._context)

    def _deliver(self) -> None:
        """Hand over all that has come; what comes meanwhile waits for the next turn."""
        self._woken = False
        inbox, self._inbox = self._inbox, []
        self._size = 0
        self._room.set()
        self._take(inbox)
        if self._other._closed and not self._inbox:
            self._end()

    def _take(self, lines: list[bytes]) -> None:
        """Hand messages to the receiver, in the context it was attached in."""
        receiver, limits = self._receiver, self._limits
        assert receiver is not None
        self._busy = True
        try:
            for data in lines:
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
    """Make two joined ends; what one sends the other receives."""
    left, right = MemoryLink(limits), MemoryLink(limits)
    left._other, right._other = right, left
    return left, right
