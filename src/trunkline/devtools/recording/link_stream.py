"""A line stream to a server behind any link, such as HTTP: each line is parsed and sent as the link needs it.

No id is changed and nothing is negotiated. It observes which revision is spoken and which arguments are mirrored in
headers, since HTTP needs both beside the message, and answers with an error of its own what could not be delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw

import trunkline.types as t
from trunkline.client.targets import Target
from trunkline.client.tool_cache import ToolCache
from trunkline.devtools.recording.exchanges import member
from trunkline.devtools.recording.relay import LineReceiver
from trunkline.errors import HttpError, LocalProtocolError, RequestFailed, TrunklineError
from trunkline.protocol.caller import Origin
from trunkline.protocol.error_codes import INTERNAL_ERROR
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
from trunkline.protocol.revisions import NEWEST_HANDSHAKE, find_revision
from trunkline.transports.link import Link
from trunkline.types import META_PROTOCOL_VERSION, RequestId

__all__ = ["LinkLineStream"]

_OPEN_ENDED = "subscriptions/listen"
# Statuses of a server that may support only the HTTP+SSE transport.
_OLDER = frozenset({400, 404, 405})


class LinkLineStream:
    """A line stream to a server behind a link, such as HTTP."""

    def __init__(self, target: Target, limits: Limits, *, note: Callable[[str], None]) -> None:
        """Use a target that is not open yet; ``note`` is called for what is answered here and not by the server."""
        self._target = target
        self._limits = limits
        self._note = note
        self._link: Link | None = None
        self._line_receiver: LineReceiver | None = None
        self._facts = ToolCache()
        #: Messages held back until the link of the older transport is open.
        self._held: list[Incoming] | None = None
        self._opening: Request | None = None
        #: The methods of pending requests, by id.
        self._waiting: dict[RequestId, str] = {}
        self._idle = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Open the link.

        Raises:
            LinkError: it cannot be opened.
        """
        self._link = await self._target.open()

    @property
    def backlog(self) -> int:
        """Always 0: each message is sent at once."""
        return 0

    def begin(self, receiver: LineReceiver) -> None:
        """Start delivering lines."""
        self._line_receiver = receiver
        if self._link is not None:
            self._link.attach(self)

    def write(self, line: bytes) -> None:
        """Send the message of a line."""
        incoming = decode(line, self._limits)
        for item in incoming.items if isinstance(incoming, Batch) else (incoming,):
            if self._held is not None:
                self._held.append(item)
            elif isinstance(item, InvalidMessage):
                self._refuse(item.id, item.code, item.message)
            else:
                self._send(item)

    def pause(self) -> None:
        """Do nothing: HTTP has no way to pause a server."""

    def resume(self) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Wait for pending requests, then end."""
        self._start(self._finish())

    async def drain(self) -> None:
        """Yield to the event loop."""
        await asyncio.sleep(0)

    async def aclose(self) -> None:
        """Close the link."""
        for task in self._tasks:
            task.cancel()
        if self._link is not None:
            await self._link.aclose()

    # --- to the server -----------------------------------------------------------------------------------------------

    def _send(self, message: Message) -> None:
        assert self._link is not None
        headers: Mapping[str, str] | None = None
        cancels: RequestId | None = None
        if isinstance(message, Request):
            self._waiting[message.id] = message.method
            try:
                headers = self._headers(message)
            except LocalProtocolError as error:
                self._refuse(message.id, INTERNAL_ERROR, str(error))
                return
        elif isinstance(message, Notification) and message.method == "notifications/cancelled":
            cancels = member(_plain(message), "params").get("requestId")
            self._done(cancels)
        self._link.send([Outbound(message, headers=headers, cancels=cancels)])

    def _headers(self, request: Request) -> Mapping[str, str] | None:
        """Read along: which revision the request speaks, and what its headers must repeat."""
        params = member(_plain(request), "params")
        said = member(params, "_meta").get(META_PROTOCOL_VERSION)
        if request.method == "initialize":
            self._opening = request
            self._speak(params.get("protocolVersion"), otherwise=NEWEST_HANDSHAKE.name)
        elif isinstance(said, str):
            self._speak(said)
        if request.method != "tools/call":
            return None
        arguments = params.get("arguments")
        raw = None if arguments is None else Raw(msgspec.json.encode(arguments))
        return self._facts.mirrored_headers(str(params.get("name")), raw)

    def _speak(self, name: Any, *, otherwise: str = "") -> None:
        revision = find_revision(name if isinstance(name, str) else otherwise) or find_revision(otherwise)
        if revision is not None and self._link is not None:
            self._link.set_revision(revision)

    # --- from the server ---------------------------------------------------------------------------------------------

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Forward a message as a line."""
        if isinstance(incoming, Batch):
            for item in incoming.items:
                self.message_received(item, origin)
        elif isinstance(incoming, InvalidMessage):
            self._note(f"the server sent a malformed message: {incoming.message}")
            if incoming.response and incoming.id is not None:
                self._refuse(incoming.id, INTERNAL_ERROR, f"the server's response is malformed: {incoming.message}")
        else:
            if isinstance(incoming, Response):
                self._learn(incoming)
            self._give(incoming)

    def _done(self, id: object) -> None:
        """Remove a pending request; a request that stays open as long as the client does not delay the end."""
        if isinstance(id, int | str):
            self._waiting.pop(id, None)
        if not any(method != _OPEN_ENDED for method in self._waiting.values()):
            self._idle.set()

    def _learn(self, answer: Response) -> None:
        if self._opening is not None and answer.id == self._opening.id:
            self._opening = None
            self._speak(member(_plain(answer), "result").get("protocolVersion"))
        if self._waiting.get(answer.id) == "tools/list":
            try:
                self._facts.add(msgspec.json.decode(answer.result, type=t.ListToolsResult).tools)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Answer a request that failed in transit, or handle the end of the link."""
        if about is None:
            if self._line_receiver is not None:
                self._line_receiver.eof_received(error)
            return
        opening, fallback = self._opening, self._target.fallback
        if opening is not None and opening.id == about and fallback is not None and _may_be_older(error):
            self._held = [opening]
            self._start(self._fall_back(error))
            return
        self._failed(about, error)

    def _failed(self, id: RequestId, error: Exception | None) -> None:
        if isinstance(error, RequestFailed):
            # The server's own error, which came with an HTTP error status.
            data = UNSET if error.data is None else error.data
            self._give(ErrorResponse(id, t.ErrorObject(code=error.code, message=error.message, data=data)))
        else:
            self._refuse(id, INTERNAL_ERROR, str(error or "the connection ended before the response arrived"))

    async def _fall_back(self, error: Exception | None) -> None:
        """Try the HTTP+SSE transport, as the specification requires of a client that cannot open a session."""
        assert self._target.fallback is not None
        old, held = self._link, self._held or []
        try:
            self._link = await self._target.fallback()
        except TrunklineError:
            self._held = None
            if self._opening is not None:
                self._failed(self._opening.id, error)
            return
        self._note("the server supports only the HTTP+SSE transport, which is used from here on")
        if old is not None:
            await old.aclose()
        self._link.attach(self)
        self._held = None
        for item in held:
            if not isinstance(item, InvalidMessage | Batch):
                self._send(item)

    async def _finish(self) -> None:
        self._idle.clear()
        self._done(None)
        try:
            async with asyncio.timeout(self._limits.eof_seconds):
                await self._idle.wait()
        except TimeoutError:
            self._note("the client disconnected before all requests were answered")
        if self._line_receiver is not None:
            self._line_receiver.eof_received()

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _give(self, message: Message) -> None:
        if isinstance(message, Response | ErrorResponse):
            self._done(message.id)
        if self._line_receiver is not None:
            self._line_receiver.line_received(encode(message))

    def _refuse(self, id: RequestId | None, code: int, text: str) -> None:
        self._note(f"answered by the recorder: {text}")
        self._give(ErrorResponse(id, t.ErrorObject(code=code, message=text)))


def _may_be_older(error: Exception | None) -> bool:
    return isinstance(error, HttpError | RequestFailed) and error.status in _OLDER


def _plain(message: Message) -> dict[str, Any]:
    return msgspec.json.decode(encode(message), type=dict[str, Any])
