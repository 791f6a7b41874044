"""The oldest HTTP transport (HTTP+SSE): a GET stream with all messages to the client, and POSTs with those from it.

The first event names the URL to post to. Each GET is one link that lasts as long as its stream; its name in that URL is
random, and only the principal that opened the stream may post to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote

from trunkline.errors import ConnectionLost
from trunkline.protocol.caller import Origin, Principal, same_principal
from trunkline.protocol.jsonrpc import InvalidMessage, Notification, Outbound, decode, requests_of
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.asgi import HTTPException, invalid_body, stopping, too_many
from trunkline.transports.http.server.event_stream import EventStream
from trunkline.transports.http.server.origin_policy import accepts
from trunkline.transports.http.server.request import HeldMemory, HttpRequest
from trunkline.transports.http.server.response import SSEResponse
from trunkline.transports.http.server.single_request import encoded
from trunkline.transports.link import AcceptedConnection, Acceptor, Link, Receiver
from trunkline.types import RequestId

if TYPE_CHECKING:
    from trunkline.transports.http.server.endpoint import Endpoint, EndpointOptions

__all__ = ["LegacySseEndpoint", "LegacySseServerLink"]

# The query of our message URL is one parameter of 43 characters.
_QUERY_BYTES = 1024


class LegacySseServerLink(Link):
    """The link of one GET stream and the POSTs that belong to it."""

    __slots__ = ("_held", "_limit", "connection", "origin", "receiver", "stream")

    def __init__(self, origin: Origin, limit: int) -> None:
        """Create the link of a stream; ``drain`` waits while more than ``limit`` bytes are pending."""
        self._limit = limit
        self.origin: Origin = origin
        self.stream: EventStream = EventStream()
        self.receiver: Receiver | None = None
        self.connection: AcceptedConnection | None = None
        #: What the requests hold that are being served, by their ids.
        self._held: list[tuple[frozenset[RequestId], HeldMemory]] = []

    def hold(self, ids: frozenset[RequestId], held: HeldMemory) -> None:
        """Release what requests hold once they are answered."""
        self._held.append((ids, held))

    def _release_answered(self) -> None:
        served = () if self.connection is None else self.connection.exchanges.keys()
        still_held = []
        for ids, held in self._held:
            if ids.isdisjoint(served):
                held.release()
            else:
                still_held.append((ids, held))
        self._held = still_held

    def release_all(self) -> None:
        """Release what the requests hold: the stream has ended."""
        for _, held in self._held:
            held.release()
        self._held = []

    def attach(self, receiver: Receiver) -> None:
        """Store the receiver; posted messages are delivered to it."""
        self.receiver = receiver

    def send(self, batch: Sequence[Outbound]) -> None:
        """Add messages to the stream."""
        for outbound in batch:
            if (
                type(outbound.message) is Notification
                and outbound.about is None
                and self.stream.is_congested(self._limit)
            ):
                # Notifications that belong to no request are not kept for a client that reads too slowly.
                continue
            if data := encoded(outbound):
                self.stream.push(data)
        if self._held:
            # A request is no longer among those that are served when its answer has been sent.
            asyncio.get_running_loop().call_soon(self._release_answered)

    async def drain(self) -> None:
        """Wait until the client has read enough."""
        await self.stream.drain(self._limit)

    async def aclose(self) -> None:
        """End the stream."""
        self.stream.end()


class LegacySseEndpoint:
    """The two paths of the oldest transport."""

    def __init__(
        self,
        endpoint: Endpoint,
        options: EndpointOptions,
        *,
        acceptor: Acceptor,
        limits: Limits,
        forward: Callable[[str, bytes, Principal | None], Awaitable[None]],
        new_name: Callable[[], Awaitable[str]],
    ) -> None:
        """Serve the two paths next to those of an endpoint.

        ``forward`` sends what was posted for a stream of another worker there, by the name of the stream; names are
        made by ``new_name``, and must not be guessable.
        """
        self._forward = forward
        self._new_name = new_name
        base = options.path.rstrip("/")
        self._endpoint = endpoint
        self._acceptor = acceptor
        self._limits = limits
        self.sse_path: str = options.sse_path or f"{base}/sse"
        self.message_path: str = options.message_path or f"{base}/messages"
        self._links: dict[str, LegacySseServerLink] = {}

    def serves(self, path: str) -> bool:
        """Return whether a path is one of the two."""
        return path in (self.sse_path, self.message_path, f"{self.message_path}/")

    async def respond(self, path: str, request: HttpRequest) -> None:
        """Answer a request to one of the two."""
        wanted = "GET" if path == self.sse_path else "POST"
        if request.scope["method"] == "OPTIONS":
            await self._endpoint.answer_options(request)
            return
        if request.scope["method"] != wanted:
            raise HTTPException(405, f"{path} takes {wanted}", headers=((b"allow", wanted.encode()),))
        await (self.open(request) if wanted == "GET" else self._post(request))

    async def open(self, request: HttpRequest) -> None:
        """Open a stream, send the URL to post to, and serve until the client disconnects."""
        endpoint = self._endpoint
        if endpoint.draining:
            raise stopping()
        if not accepts(request.headers.get(b"accept"))[1]:
            raise HTTPException(406, "This is an MCP endpoint: a GET must accept text/event-stream")
        endpoint.open_responses.check_streams()
        if len(self._links) >= self._limits.sessions:
            raise too_many("sessions")
        link = LegacySseServerLink(
            Origin("sse", request.principal, None, request.client_address), self._limits.write_bytes
        )
        name = await self._new_name()
        self._links[name] = link
        root = request.scope.get("root_path", "")
        url = f"{quote(root)}{self.message_path}?session_id={name}"
        link.stream.push(url.encode(), event="endpoint")
        link.connection = self._acceptor.accept(link)
        response = SSEResponse(link.stream, request.send)
        try:
            await response.run([], owner=endpoint.open_responses, connection=request.connection)
        finally:
            self._links.pop(name, None)
            link.release_all()
            if link.receiver is not None:
                link.receiver.eof_received(ConnectionLost("the client closed its stream"))

    async def _post(self, request: HttpRequest) -> None:
        principal = request.principal
        query = parse_qs(request.scope.get("query_string", b"")[:_QUERY_BYTES].decode("latin-1"))
        names = query.get("session_id", []) + query.get("sessionId", [])
        link = self._links.get(names[0]) if len(names) == 1 else None
        if link is None and len(names) == 1:
            await self._post_elsewhere(names[0], request)
            return
        if link is None or link.receiver is None or not same_principal(link.origin.principal, principal):
            raise HTTPException(404, "No such session; open the event stream first")
        incoming = decode(await request.body(), self._limits)
        if type(incoming) is InvalidMessage and not incoming.response:
            raise invalid_body(incoming, incoming.message)
        ids = frozenset(requests_of(incoming))
        if ids and (held := request.take_held()) is not None:
            link.hold(ids, held)
        await request.answer(202)
        # The same principal may present another token: its scopes count for this request.
        link.receiver.message_received(incoming, Origin("sse", principal, None, link.origin.address))

    async def _post_elsewhere(self, name: str, request: HttpRequest) -> None:
        body = await request.body()
        incoming = decode(body, self._limits)
        if type(incoming) is InvalidMessage and not incoming.response:
            raise invalid_body(incoming, incoming.message)
        await self._forward(name, body, request.principal)
        await request.answer(202)

    def deliver(self, name: str, body: bytes, principal: Principal | None) -> None:
        """Deliver what was posted at another worker for a stream of this one."""
        link = self._links.get(name)
        if link is not None and link.receiver is not None and same_principal(link.origin.principal, principal):
            link.receiver.message_received(
                decode(body, self._limits), Origin("sse", principal, None, link.origin.address)
            )

    @property
    def busy(self) -> bool:
        """Whether a request is being served."""
        return any(link.connection is not None and link.connection.exchanges for link in self._links.values())

    def end_idle(self) -> None:
        """End the streams without a request in flight: what is answered on a stream is lost with it."""
        for link in self._links.values():
            if link.connection is None or not link.connection.exchanges:
                link.stream.end()

    async def aclose(self) -> None:
        """End every stream."""
        for link in list(self._links.values()):
            link.stream.end()
            if link.connection is not None:
                await link.connection.aclose()
