"""The interface of every transport: whole messages in, whole messages out, and an end.

A Link knows bytes, sockets and processes; it knows no method and no role. It is attached to one receiver, delivers each
message to it on arrival, and accepts messages to send without ever blocking: what cannot be written yet is kept, and
``drain`` lets a sender wait until less than the limit is kept.

A transport implements four methods: ``attach``, ``send``, ``drain`` and ``aclose``. The other members describe what
differs between transports (over HTTP a request is an exchange of its own, a response may end before its request does);
their defaults hold for any transport that is one duplex stream of messages. A transport that listens creates links by
itself, and passes each to an ``Acceptor``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from trunkline.protocol.caller import Origin, Session
from trunkline.protocol.jsonrpc import Incoming, Outbound
from trunkline.protocol.revisions import Revision
from trunkline.types import RequestId

__all__ = ["AcceptedConnection", "Acceptor", "Link", "LinkWrapper", "Receiver"]


class Receiver(Protocol):
    """The owner of a Link; all calls come from the event loop's thread, in order of arrival."""

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Called with one decoded message, a batch, or the error of an undecodable message."""

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Called when nothing sent can arrive any more: for one request of ours, or for all.

        ``error`` is the reason, unless it was a clean end (a broken pipe, a process that died).
        """


class Link(ABC):
    """Carries whole messages between two peers."""

    __slots__ = ()

    @abstractmethod
    def attach(self, receiver: Receiver) -> None:
        """Start to deliver to this receiver; called once, inside a running event loop."""

    @abstractmethod
    def send(self, batch: Sequence[Outbound]) -> None:
        """Send these messages in order, together if that is cheaper; never blocks and never raises."""

    @abstractmethod
    async def drain(self) -> None:
        """Wait until the unsent bytes are below the limit, or the link is broken."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the link and free what it holds; any task may call it, any number of times."""

    # --- what differs between transports; the defaults hold for one duplex stream of messages ------------------------

    @property
    def can_stream(self) -> bool:
        """Whether messages about a request may be sent before its response.

        False where the response is all that the other side accepts; other messages about the request are dropped.
        """
        return True

    @property
    def independent_requests(self) -> bool:
        """Whether each request of ours is an exchange of its own.

        Then the failure of one does not affect the others, and no response can arrive late.
        """
        return False

    @property
    def can_receive_requests(self) -> bool:
        """Whether the other side can send requests of its own and get our answers, in a revision that has them.

        False over HTTP without a session: there is nothing that an answer could be matched to.
        """
        return True

    @property
    def delivers_requests(self) -> bool:
        """Whether a request of ours that belongs to no request of the peer can be delivered now.

        False over HTTP while a client does not read the stream of its session.
        """
        return True

    @property
    def ends_with_response(self) -> bool:
        """Whether the link ends when its request is answered; pending requests of ours then get no response."""
        return False

    @property
    def pid(self) -> int | None:
        """The id of the process at the other end, if the link started one."""
        return None

    @property
    def fresh(self) -> bool:
        """Whether the other side was started for this link; False if another link has used it before."""
        return True

    def deliver_in_bursts(self, burst_ended: Callable[[], None]) -> bool:
        """Call ``burst_ended`` after each read, once all messages that it brought have been delivered.

        The receiver may then run handlers at once, so it must be called outside of any task, in a callback of the event
        loop. Return False, and never call it, where messages are delivered one by one. Called before ``attach``. A
        wrapper declares it by itself, if it delivers nothing later than the inner link does.
        """
        return False

    def set_revision(self, revision: Revision) -> None:
        """Use a protocol revision from now on; called with the first assumption, and again once one is agreed."""
        return

    def release_stream(self) -> bool:
        """End the open response early; the other side can request the rest of the stream later.

        Return False, and change nothing, where there is no such response or its rest could not be requested.
        """
        return False

    def send_event(self, data: bytes) -> bool:
        """Write an encoded notification to the open response at once.

        Return False, and send nothing, where that is not possible; ``send`` is always. A wrapper declares it by itself.
        """
        return False

    async def wait_ready(self) -> None:
        """Wait until the other side can send requests of its own, once the handshake is done."""
        return

    async def wait_idle(self) -> None:
        """Wait until no request of ours is in flight, as far as the link itself tracks them."""
        return


class LinkWrapper(Link):
    """A Link around another: forwards all but ``send_event`` and ``deliver_in_bursts``; a subclass adds to it."""

    def __init__(self, link: Link) -> None:
        """Wrap a link."""
        self._link = link

    def attach(self, receiver: Receiver) -> None:
        """Attach the receiver to the inner link."""
        self._link.attach(receiver)

    def send(self, batch: Sequence[Outbound]) -> None:
        """Send through the inner link."""
        self._link.send(batch)

    async def drain(self) -> None:
        """Wait until the inner link has room."""
        await self._link.drain()

    async def aclose(self) -> None:
        """Close the inner link."""
        await self._link.aclose()

    @property
    def can_stream(self) -> bool:
        """Whether the inner link can stream."""
        return self._link.can_stream

    @property
    def independent_requests(self) -> bool:
        """Whether each request on the inner link is an exchange of its own."""
        return self._link.independent_requests

    @property
    def can_receive_requests(self) -> bool:
        """Whether the other side of the inner link can send requests of its own."""
        return self._link.can_receive_requests

    @property
    def delivers_requests(self) -> bool:
        """Whether the inner link can deliver a request of ours now."""
        return self._link.delivers_requests

    @property
    def ends_with_response(self) -> bool:
        """Whether the inner link ends when its request is answered."""
        return self._link.ends_with_response

    @property
    def pid(self) -> int | None:
        """The id of the process at the other end of the inner link."""
        return self._link.pid

    @property
    def fresh(self) -> bool:
        """Whether the other side was started for the inner link."""
        return self._link.fresh

    def set_revision(self, revision: Revision) -> None:
        """Set the revision of the inner link."""
        self._link.set_revision(revision)

    def release_stream(self) -> bool:
        """Release the stream of the inner link."""
        return self._link.release_stream()

    async def wait_ready(self) -> None:
        """Wait until the inner link is ready."""
        await self._link.wait_ready()

    async def wait_idle(self) -> None:
        """Wait until the inner link is idle."""
        await self._link.wait_idle()


class AcceptedConnection(Receiver, Protocol):
    """A connection that an ``Acceptor`` made, as the transport sees it."""

    @property
    def session(self) -> Session | None:
        """The session, once ``initialize`` has made it."""

    @property
    def exchanges(self) -> Mapping[RequestId, object]:
        """The requests being served."""

    def flush(self) -> None:
        """Send what waits to be sent now."""

    async def aclose(self) -> None:
        """Close the connection."""


class Acceptor(Protocol):
    """Serves the links that a listening transport creates."""

    def accept(self, link: Link) -> AcceptedConnection:
        """Serve a link until it ends."""

    def accept_one(
        self, link: Link, session: Session | None, prefix: str, create_task: Callable[..., Any] | None
    ) -> Receiver:
        """Serve a link that brings one message, within a session or alone; nothing needs to be closed.

        ``create_task`` is called with the coroutine that serves the message; by default it becomes a task.
        """

    def end_subscriptions(self) -> None:
        """End the subscription streams, which have no end of their own: the transport is about to stop."""

    async def drain(self, seconds: float) -> None:
        """Wait, with a timeout, for work that no request waits for; called when the transport is about to stop."""

    async def release(self) -> None:
        """Called when no more links follow."""
