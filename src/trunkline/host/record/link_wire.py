"""A wire to a server behind any link, such as HTTP: each line is read as a message that travels as the link wants it.

No id is changed and nothing is negotiated. It reads along which revision is spoken and which arguments headers repeat,
since HTTP wants both said beside the message, and says in an error of its own what could not be delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw

import trunkline.types as t
from trunkline.client.targets import Target
from trunkline.client.tool_facts import ToolFacts
from trunkline.errors import HttpError, LocalProtocolError, RequestFailed, TrunklineError
from trunkline.host.record.pairs import member
from trunkline.host.record.wires import Taker
from trunkline.protocol.caller import Origin
from trunkline.protocol.codes import INTERNAL_ERROR
from trunkline.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Incoming,
    Malformed,
    Message,
    Notification,
    Outbound,
    Request,
    Response,
    decode,
    encode,
)
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST_HANDSHAKE, find
from trunkline.transports.link import Link
from trunkline.types import META_PROTOCOL_VERSION, RequestId

__all__ = ["LinkWire"]

_FOR_EVER = "subscriptions/listen"
# The statuses by which a server shows that it may know only the oldest HTTP transport.
_OLDER = frozenset({400, 404, 405})


class LinkWire:
    """A server behind any other link, such as HTTP: lines are read as messages."""

    def __init__(self, target: Target, limits: Limits, *, note: Callable[[str], None]) -> None:
        """Take a target that is not open yet; ``note`` is told what is answered here and not by the server."""
        self._target = target
        self._limits = limits
        self._note = note
        self._link: Link | None = None
        self._taker: Taker | None = None
        self._facts = ToolFacts()
        #: The messages that wait for the link of an older transport.
        self._held: list[Incoming] | None = None
        self._opening: Request | None = None
        #: The requests that wait for an answer, by id.
        self._waiting: dict[RequestId, str] = {}
        self._idle = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Make the link.

        Raises:
            LinkError: it cannot be made.
        """
        self._link = await self._target.open()

    @property
    def backlog(self) -> int:
        """Nothing waits here: each message is on its way at once."""
        return 0

    def begin(self, taker: Taker) -> None:
        """Start to deliver lines."""
        self._taker = taker
        if self._link is not None:
            self._link.attach(self)

    def write(self, line: bytes) -> None:
        """Send what a line says."""
        incoming = decode(line, self._limits)
        for item in incoming.items if isinstance(incoming, Batch) else (incoming,):
            if self._held is not None:
                self._held.append(item)
            elif isinstance(item, Malformed):
                self._refuse(item.id, item.code, item.message)
            else:
                self._send(item)

    def pause(self) -> None:
        """Go on: HTTP has no way to stop a server that speaks."""

    def resume(self) -> None:
        """Go on."""

    def finish(self) -> None:
        """Wait for what is still to be answered, and end."""
        self._start(self._finish())

    async def drain(self) -> None:
        """Give the loop a turn."""
        await asyncio.sleep(0)

    async def aclose(self) -> None:
        """End the link."""
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
        return self._facts.mirrored(str(params.get("name")), raw)

    def _speak(self, name: Any, *, otherwise: str = "") -> None:
        revision = find(name if isinstance(name, str) else otherwise) or find(otherwise)
        if revision is not None and self._link is not None:
            self._link.set_revision(revision)

    # --- from the server ---------------------------------------------------------------------------------------------

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Hand a message on as a line."""
        if isinstance(incoming, Batch):
            for item in incoming.items:
                self.message_received(item, origin)
        elif isinstance(incoming, Malformed):
            self._note(f"the server sent what is no message: {incoming.message}")
            if incoming.response and incoming.id is not None:
                self._refuse(incoming.id, INTERNAL_ERROR, f"the server's answer is none: {incoming.message}")
        else:
            if isinstance(incoming, Response):
                self._learn(incoming)
            self._give(incoming)

    def _done(self, id: object) -> None:
        """Forget a request; what is open for as long as the client is there keeps nobody waiting."""
        if isinstance(id, int | str):
            self._waiting.pop(id, None)
        if not any(method != _FOR_EVER for method in self._waiting.values()):
            self._idle.set()

    def _learn(self, answer: Response) -> None:
        if self._opening is not None and answer.id == self._opening.id:
            self._opening = None
            self._speak(member(_plain(answer), "result").get("protocolVersion"))
        if self._waiting.get(answer.id) == "tools/list":
            try:
                self._facts.learn(msgspec.json.decode(answer.result, type=t.ListToolsResult).tools)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Answer a request that failed on the way; or learn that the link ended."""
        if about is None:
            if self._taker is not None:
                self._taker.eof_received(error)
            return
        opening, fallback = self._opening, self._target.fallback
        if opening is not None and opening.id == about and fallback is not None and _may_be_older(error):
            self._held = [opening]
            self._start(self._fall_back(error))
            return
        self._failed(about, error)

    def _failed(self, id: RequestId, error: Exception | None) -> None:
        if isinstance(error, RequestFailed):
            # It is the server's own word, which came with a status that says no.
            data = UNSET if error.data is None else error.data
            self._give(ErrorResponse(id, t.ErrorObject(code=error.code, message=error.message, data=data)))
        else:
            self._refuse(id, INTERNAL_ERROR, str(error or "the connection ended before the answer came"))

    async def _fall_back(self, error: Exception | None) -> None:
        """Try the oldest HTTP transport, as the specification wants it of whoever cannot open a session."""
        assert self._target.fallback is not None
        old, held = self._link, self._held or []
        try:
            self._link = await self._target.fallback()
        except TrunklineError:
            self._held = None
            if self._opening is not None:
                self._failed(self._opening.id, error)
            return
        self._note("the server knows only the HTTP+SSE transport, which is used from here on")
        if old is not None:
            await old.aclose()
        self._link.attach(self)
        self._held = None
        for item in held:
            if not isinstance(item, Malformed | Batch):
                self._send(item)

    async def _finish(self) -> None:
        self._idle.clear()
        self._done(None)
        try:
            async with asyncio.timeout(self._limits.eof_seconds):
                await self._idle.wait()
        except TimeoutError:
            self._note("the client left before it had all answers")
        if self._taker is not None:
            self._taker.eof_received()

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _give(self, message: Message) -> None:
        if isinstance(message, Response | ErrorResponse):
            self._done(message.id)
        if self._taker is not None:
            self._taker.line_received(encode(message))

    def _refuse(self, id: RequestId | None, code: int, text: str) -> None:
        self._note(f"answered by the recorder: {text}")
        self._give(ErrorResponse(id, t.ErrorObject(code=code, message=text)))


def _may_be_older(error: Exception | None) -> bool:
    return isinstance(error, HttpError | RequestFailed) and error.status in _OLDER


def _plain(message: Message) -> dict[str, Any]:
    return msgspec.json.decode(encode(message), type=dict[str, Any])
