"""Replaying a recording.

``ReplayServer`` answers the requests of a recording as they were answered then, and sends nothing of its own. A
request is matched by its method and its params, without ``_meta`` and redacted like the recording; equal requests get
their own answers in order, later ones the last. Progress, server requests and notifications are sent again, with the
ids of the current connection; a request that the recording does not have gets an error that says so.
``LineStreamServer`` is a server reached over a line stream.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from trunkline.devtools.recording.exchanges import (
    RecordedExchange,
    RecordedMessage,
    comparable_params,
    digest,
    label,
    member,
    progress_token,
    read_exchanges,
)
from trunkline.devtools.recording.format import MessageRedaction, Recording
from trunkline.protocol.caller import Origin
from trunkline.protocol.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from trunkline.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Incoming,
    InvalidMessage,
    Message,
    Notification,
    Outbound,
    Request,
    Response,
    decode,
    encode,
)
from trunkline.protocol.limits import Limits
from trunkline.transports.link import Link
from trunkline.types import META_SUBSCRIPTION_ID, ErrorObject, RequestId

__all__ = ["LineStreamServer", "ReplayServer"]


class ReplayServer:
    """Serves a recording; each connection starts from its beginning."""

    def __init__(self, recording: Recording, *, speed: float = 0.0, limits: Limits | None = None) -> None:
        """Use a recording; with ``speed`` 1 responses take as long as recorded, with 0 no time at all."""
        self.name: str = (recording.head.target if recording.head is not None else None) or "recording"
        self.speed = speed
        self.limits: Limits = limits or Limits()
        self.redaction: MessageRedaction = MessageRedaction()
        self.by_key: dict[tuple[str, str], list[RecordedExchange]] = defaultdict(list)
        self.by_method: dict[str, list[RecordedExchange]] = defaultdict(list)
        for each in read_exchanges(recording):
            self.by_key[each.key].append(each)
            self.by_method[each.method].append(each)

    def accept(self, link: Link) -> _ReplaySession:
        """Serve a link for as long as it lasts; the caller closes the returned session."""
        performance = _ReplaySession(self, link)
        link.attach(performance)
        return performance

    async def serve(self, link: Link, /) -> None:
        """Serve one link until it ends; responses in progress are completed, within a time limit."""
        performance = self.accept(link)
        try:
            await performance.ended()
        finally:
            await performance.aclose()


class _ReplaySession:
    """One connection to a recording."""

    def __init__(self, played: ReplayServer, link: Link) -> None:
        self._played = played
        self._link = link
        self._used: dict[tuple[str, str], int] = defaultdict(int)
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: dict[RequestId, asyncio.Task[None]] = {}
        self._asked: dict[RequestId, asyncio.Future[None]] = {}
        #: The current ids of requests, by their recorded ids.
        self._ids: dict[RequestId, RequestId] = {}
        self._last = 0
        self._over = asyncio.Event()

    # --- as a receiver -----------------------------------------------------------------------------------------------

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Handle a message of the client."""
        if isinstance(incoming, Batch):
            for item in incoming.items:
                self.message_received(item, origin)
        elif isinstance(incoming, InvalidMessage):
            if not incoming.response:
                self._refuse(incoming.id, incoming.code, incoming.message)
        elif isinstance(incoming, Response | ErrorResponse):
            waiting = self._asked.pop(incoming.id, None) if incoming.id is not None else None
            if waiting is not None and not waiting.done():
                waiting.set_result(None)
        elif isinstance(incoming, Notification) and incoming.method == "notifications/cancelled":
            task = self._serving.get(member(_plain(incoming), "params").get("requestId", ""))
            if task is not None:
                task.cancel()
        else:
            self._perform(incoming)

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Called when the client has disconnected."""
        self._over.set()

    # --- the end -----------------------------------------------------------------------------------------------------

    async def ended(self) -> None:
        """Wait until the client has disconnected, and its requests are answered or the time limit is over."""
        await self._over.wait()
        for waiting in self._asked.values():
            waiting.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._played.limits.eof_seconds)

    async def aclose(self) -> None:
        """Stop all replies and close the link."""
        self._over.set()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._link.aclose()

    # --- replaying ---------------------------------------------------------------------------------------------------

    def _perform(self, message: Request | Notification) -> None:
        request = _plain(message)
        found = self._find(request)
        if found is None:
            if isinstance(message, Request):
                self._unknown(message, request)
            return
        task = asyncio.get_running_loop().create_task(self._play(found, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if isinstance(message, Request):
            id = message.id
            self._serving[id] = task
            task.add_done_callback(lambda _: self._serving.pop(id, None))
            if found.id is not None:
                self._ids[found.id] = id

    def _find(self, request: dict[str, Any]) -> RecordedExchange | None:
        method = request["method"]
        params = self._played.redaction.apply(comparable_params(method, request.get("params")))
        key = method, digest(params)
        alike = self._played.by_key.get(key)
        if not alike:
            return None
        at = self._used[key]
        self._used[key] += 1
        return alike[min(at, len(alike) - 1)]

    def _unknown(self, message: Request, request: dict[str, Any]) -> None:
        if message.method == "ping":
            # A ping is answered even if none was recorded.
            self._say(Response(message.id, {}))
            return
        others = len(self._played.by_method.get(message.method, ()))
        if not others:
            self._refuse(message.id, METHOD_NOT_FOUND, f"the recording has no {message.method}")
            return
        has = f"it has {others} with other params" if others > 1 else "it has one with other params"
        self._refuse(message.id, INVALID_PARAMS, f"the recording has no {label(request)} with these params; {has}")

    async def _play(self, exchange: RecordedExchange, request: dict[str, Any]) -> None:
        before = exchange.at
        for step in exchange.steps:
            await self._wait(before, step.at)
            before = step.at
            message = self._addressed(step, exchange, request)
            if message is None:
                continue
            if isinstance(message, Request):
                await self._ask(message)
            else:
                self._say(message)
                await self._link.drain()

    async def _wait(self, before: float | None, at: float | None) -> None:
        speed = self._played.speed
        if speed and before is not None and at is not None and at > before:
            await asyncio.sleep((at - before) / speed)

    async def _ask(self, question: Request) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked[question.id] = waiting
        self._say(question)
        try:
            await waiting
        finally:
            self._asked.pop(question.id, None)

    def _addressed(self, step: RecordedMessage, exchange: RecordedExchange, request: dict[str, Any]) -> Message | None:
        """Return a recorded message with the current ids; None if it refers to something unknown on this connection."""
        message = dict(step.message)
        if "method" not in message:
            message["id"] = request["id"]
        elif "id" in message:
            self._last += 1
            message["id"] = f"recorded-{self._last}"
        elif message["method"] == "notifications/progress":
            token = progress_token(request)
            if token is None:
                return None
            message["params"] = {**member(message, "params"), "progressToken": token}
        if not self._in_subscription(message):
            return None
        made = decode(msgspec.json.encode(message))
        assert not isinstance(made, InvalidMessage | Batch)
        return made

    def _in_subscription(self, message: dict[str, Any]) -> bool:
        """Replace a recorded subscription id by the current one; return False if there is none."""
        for part in ("params", "result"):
            meta = member(member(message, part), "_meta")
            if META_SUBSCRIPTION_ID in meta:
                then = meta[META_SUBSCRIPTION_ID]
                id = self._ids.get(then) if isinstance(then, int | str) else None
                if id is None:
                    return False
                message[part] = {**message[part], "_meta": {**meta, META_SUBSCRIPTION_ID: id}}
        return True

    def _say(self, message: Message) -> None:
        self._link.send([Outbound(message)])

    def _refuse(self, id: RequestId | None, code: int, text: str) -> None:
        self._say(ErrorResponse(id, ErrorObject(code=code, message=text)))


def _plain(message: Message) -> dict[str, Any]:
    return msgspec.json.decode(Raw(encode(message)), type=dict[str, Any])


if TYPE_CHECKING:
    from trunkline.devtools.recording.relay import LineStream


class LineStreamServer:
    """Serves a link from the server at the other end of a line stream."""

    def __init__(self, wire: LineStream) -> None:
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
            self._wire.begin(_ServerLineReceiver(self))
            link.attach(self)
            await self._over.wait()
        finally:
            await self._wire.aclose()

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Forward a message of the client to the server."""
        if not isinstance(incoming, InvalidMessage):
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
            self._link.send([Outbound(item) for item in items if not isinstance(item, InvalidMessage)])

    def ended(self, error: Exception | None) -> None:
        """Called when the server has ended."""
        self.error = None if self._leaving else error
        self._over.set()


class _ServerLineReceiver:
    """Receives the lines for a ``LineStreamServer``."""

    def __init__(self, server: LineStreamServer) -> None:
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
        return encode(tuple(item for item in incoming.items if not isinstance(item, InvalidMessage)))
    assert not isinstance(incoming, InvalidMessage)
    return encode(incoming)
