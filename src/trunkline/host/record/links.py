"""A link that records what crosses it, for a client; and a server behind a line stream.

``RecordingLink`` changes nothing: it can be used in place of the inner link. ``LineStreamServer`` is the reverse: a
server that is reached over a line stream, in the form in which a recording is replayed against one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trunkline.host.record.recording import Side
from trunkline.host.record.writing import RecordingFile
from trunkline.protocol.caller import Origin
from trunkline.protocol.jsonrpc import Batch, Incoming, Malformed, Outbound, decode, encode
from trunkline.transports.link import Link, LinkWrapper, Receiver
from trunkline.types import RequestId

if TYPE_CHECKING:
    from trunkline.host.record.wires import Wire

__all__ = ["RecordedLink", "WireServer"]


class RecordedLink(LinkWrapper):
    """A Link around a Link; what crosses it is written to a file."""

    def __init__(self, link: Link, file: RecordingFile, *, side: Side = "client") -> None:
        """Record a link whose owner plays ``side``."""
        super().__init__(link)
        self._file = file
        self._side = side

    def attach(self, receiver: Receiver) -> None:
        """Start delivering to this receiver."""
        other: Side = "server" if self._side == "client" else "client"
        self._link.attach(_RecordedReceiver(receiver, self._file, other))

    def send(self, batch: Sequence[Outbound]) -> None:
        """Record these messages and send them."""
        for outbound in batch:
            try:
                self._file.message(self._side, encode(outbound.message))
            except Exception as error:  # noqa: BLE001 - sending never raises; an encoder runs code of the user's types
                self._file.note(self._side, f"a message that cannot be encoded: {error}")
        self._link.send(batch)


class _RecordedReceiver:
    """Records incoming messages and forwards them."""

    def __init__(self, receiver: Receiver, file: RecordingFile, sender: Side) -> None:
        self._receiver = receiver
        self._file = file
        self._sender: Side = sender

    def __getattr__(self, name: str) -> Any:
        return getattr(self._receiver, name)

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        if isinstance(incoming, Malformed):
            self._file.note(self._sender, f"malformed message: {incoming.message}")
        else:
            self._file.message(self._sender, _encoded(incoming))
        self._receiver.message_received(incoming, origin)

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        if error is not None:
            self._file.note("recorder", f"{'the connection' if about is None else f'request {about!r}'} ended: {error}")
        self._receiver.eof_received(error, about=about)


class WireServer:
    """Serves a link from the server at the other end of a line stream."""

    def __init__(self, wire: Wire) -> None:
        """Use a line stream that has not started."""
        self._wire = wire
        self._link: Link | None = None
        self._over = asyncio.Event()
        self._leaving = False
        #: Why the server ended before its client, once it has.
        self.error: Exception | None = None

    async def serve(self, link: Link, /) -> None:
        """Forward messages in both directions until both sides have ended."""
        self._link = link
        try:
            self._wire.begin(_Lines(self))
            link.attach(self)
            await self._over.wait()
        finally:
            await self._wire.aclose()

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Forward a message of the client to the server."""
        if not isinstance(incoming, Malformed):
            self._wire.write(_encoded(incoming))

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Called when the client has ended."""
        self._leaving = True
        self._wire.finish()

    def line_received(self, line: bytes) -> None:
        """Forward a line of the server to the client; malformed messages are left out."""
        incoming = decode(line)
        if self._link is not None:
            items = incoming.items if isinstance(incoming, Batch) else (incoming,)
            self._link.send([Outbound(item) for item in items if not isinstance(item, Malformed)])

    def ended(self, error: Exception | None) -> None:
        """Called when the server has ended."""
        self.error = None if self._leaving else error
        self._over.set()


class _Lines:
    """Receives the lines for a ``LineStreamServer``."""

    def __init__(self, server: WireServer) -> None:
        self._server = server

    def line_received(self, line: bytes) -> None:
        self._server.line_received(line)

    def line_skipped(self) -> None:
        """Do nothing: its message is missing from the responses."""

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Do nothing: lines are delivered by ``line_received``."""

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        self._server.ended(error)


def _encoded(incoming: Incoming) -> bytes:
    if isinstance(incoming, Batch):
        return encode(tuple(item for item in incoming.items if not isinstance(item, Malformed)))
    assert not isinstance(incoming, Malformed)
    return encode(incoming)
