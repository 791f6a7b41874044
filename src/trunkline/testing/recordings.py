"""Records a conversation in memory, to store it beside the tests and to replay it.

The format is that of ``trunkline record``, without times: ``{"from": "client", "message": {...}, "note": "..."}`` per
line, with the title in comments at the beginning.

A ``Recorder`` wraps a Link and changes nothing. It sees messages alone, so a recording made over one transport replays
over any other. It holds everything that was said: look for secrets before you share it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from trunkline.host.record.recording import Entry, Head, Recording, Sender, Side
from trunkline.protocol.caller import Origin
from trunkline.protocol.jsonrpc import Batch, Incoming, Malformed, Outbound, encode
from trunkline.transports.link import Link, LinkWrapper, Receiver
from trunkline.types import RequestId

__all__ = ["Entry", "Head", "Recorder", "Recording", "Sender", "Side"]


class Recorder(LinkWrapper):
    """A Link around a Link that records what crosses it, both ways; pass it to the owner in place of the inner link."""

    def __init__(self, link: Link, *, side: Side, title: str = "") -> None:
        """Record a link whose owner plays ``side``."""
        super().__init__(link)
        self._side = side
        self._other: Side = "server" if side == "client" else "client"
        self._title = title
        self._entries: list[Entry] = []
        self._receiver: Receiver | None = None

    @property
    def recording(self) -> Recording:
        """The messages recorded so far."""
        return Recording(tuple(self._entries), self._title)

    # The Link, for the owner.

    def attach(self, receiver: Receiver) -> None:
        """Start delivering to this receiver."""
        self._receiver = receiver
        self._link.attach(self)

    def send(self, batch: Sequence[Outbound]) -> None:
        """Record these messages and send them."""
        self._entries.extend(Entry(self._side, Raw(encode(outbound.message))) for outbound in batch)
        self._link.send(batch)

    # As a Receiver, for the inner link.

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Record a message and deliver it."""
        self._entries.append(_entry(self._other, incoming))
        if self._receiver is not None:
            self._receiver.message_received(incoming, origin)

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Deliver the end of the link."""
        if self._receiver is not None:
            self._receiver.eof_received(error, about=about)


def _entry(sender: Side, incoming: Incoming) -> Entry:
    if isinstance(incoming, Malformed):
        return Entry(sender, note=incoming.message)
    if isinstance(incoming, Batch):
        messages = tuple(item for item in incoming.items if not isinstance(item, Malformed))
        return Entry(sender, Raw(encode(messages)))
    return Entry(sender, Raw(encode(incoming)))
