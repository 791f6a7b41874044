"""A link that records what crosses it, so that tests of a replay start from a real conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trunkline.devtools.recording.format import RecordingWriter, Side
from trunkline.devtools.recording.replay import _encoded as encode_incoming
from trunkline.protocol.caller import Origin
from trunkline.protocol.jsonrpc import Incoming, InvalidMessage, Outbound, encode
from trunkline.transports.link import Link, LinkWrapper, Receiver
from trunkline.types import RequestId

__all__ = ["RecordingLink"]


class RecordingLink(LinkWrapper):
    """A Link around a Link; what crosses it is written to a file."""

    def __init__(self, link: Link, file: RecordingWriter, *, side: Side = "client") -> None:
        """Record a link whose owner plays ``side``."""
        super().__init__(link)
        self._file = file
        self._side = side

    def attach(self, receiver: Receiver) -> None:
        """Start delivering to this receiver."""
        other: Side = "server" if self._side == "client" else "client"
        self._link.attach(_RecordingReceiver(receiver, self._file, other))

    def send(self, batch: Sequence[Outbound]) -> None:
        """Record these messages and send them."""
        for outbound in batch:
            try:
                self._file.message(self._side, encode(outbound.message))
            except Exception as error:  # noqa: BLE001 - sending never raises; an encoder runs code of the user's types
                self._file.note(self._side, f"a message that cannot be encoded: {error}")
        self._link.send(batch)


class _RecordingReceiver:
    """Records incoming messages and forwards them."""

    def __init__(self, receiver: Receiver, file: RecordingWriter, sender: Side) -> None:
        self._receiver = receiver
        self._file = file
        self._sender: Side = sender

    def __getattr__(self, name: str) -> Any:
        return getattr(self._receiver, name)

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        if isinstance(incoming, InvalidMessage):
            self._file.note(self._sender, f"malformed message: {incoming.message}")
        else:
            self._file.message(self._sender, encode_incoming(incoming))
        self._receiver.message_received(incoming, origin)

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        if error is not None:
            self._file.note("recorder", f"{'the connection' if about is None else f'request {about!r}'} ended: {error}")
        self._receiver.eof_received(error, about=about)
