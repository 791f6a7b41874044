"""Writing down a conversation in memory, to keep it beside the tests and to play it again.

The format is that of ``trunkline record`` (``host/record``), without times: ``{"from": "client", "message": {...},
"note": "..."}`` a line, with comments at the head as the title.

A ``Recorder`` stands between a Link and its owner and changes nothing. It sees messages alone, so a recording made over
one transport plays over any other (``replays.py``). It holds everything that was said: look for secrets before you
share it.
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
    """A Link around a Link that keeps what crosses it, both ways; give it to whoever would own the inner one."""

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
        """What has crossed the link so far."""
        return Recording(tuple(self._entries), self._title)

    # As a Link, for the owner.

    def attach(self, receiver: Receiver) -> None:
        """Start to deliver to this receiver."""
        self._receiver = receiver
        self._link.attach(self)

    def send(self, batch: Sequence[Outbound]) -> None:
        """Keep these messages and send them."""
        self._entries.extend(Entry(self._side, Raw(encode(outbound.message))) for outbound in batch)
        self._link.send(batch)

    # As a Receiver, for the inner link.

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Keep what came and hand it on."""
        self._entries.append(_entry(self._other, incoming))
        if self._receiver is not None:
            self._receiver.message_received(incoming, origin)

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Hand on that nothing more can arrive."""
        if self._receiver is not None:
            self._receiver.eof_received(error, about=about)


def _entry(sender: Side, incoming: Incoming) -> Entry:
    if isinstance(incoming, Malformed):
        return Entry(sender, note=incoming.message)
    if isinstance(incoming, Batch):
        messages = tuple(item for item in incoming.items if not isinstance(item, Malformed))
        return Entry(sender, Raw(encode(messages)))
    return Entry(sender, Raw(encode(incoming)))
