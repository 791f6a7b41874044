"""The one interface of every transport: whole messages in, whole messages out, and an end.

A Link knows bytes, sockets and processes; it knows no method, revision or role. It is attached to one receiver,
hands it each message as it arrives, and takes messages to send without ever blocking: what cannot be written yet is
kept, and ``drain`` lets a sender wait until less than the limit is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trunkline.protocol.caller import Origin
from trunkline.protocol.jsonrpc import Incoming, Outbound
from trunkline.types import RequestId

__all__ = ["Link", "Receiver"]


class Receiver(Protocol):
    """What a Link tells its owner; all calls come from the event loop's thread, in order of arrival."""

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Take one decoded message, batch, or note that something undecodable came."""

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Learn that nothing sent can arrive any more: for one request of ours, or for all.

        ``error`` is why, when it was not a clean end (a broken pipe, a process that died).
        """


class Link(Protocol):
    """Carries whole messages between two peers."""

    def attach(self, receiver: Receiver) -> None:
        """Start to deliver to this receiver; called once, inside a running event loop."""

    def send(self, batch: Sequence[Outbound]) -> None:
        """Send these messages in order, together if that is cheaper; never blocks and never raises."""

    async def drain(self) -> None:
        """Wait until the unsent bytes are below the limit, or the link is broken."""

    async def aclose(self) -> None:
        """End the link and free what it holds; any task may call it, any number of times."""
