"""Records a conversation in memory and replays it against a server.

A ``Recorder`` wraps a Link and changes nothing; it sees messages alone, so a recording made over one transport
replays over any other. It holds everything that was said: look for secrets before you share it. ``replay`` plays the
client of a recording: it sends what the client sent, waits where the client had waited, and puts each answer beside
the recorded one. What the server generates and the client returns (a sealed state, a cursor, the keys of input
requests) is returned as it is now, not as it was recorded. The format is that of ``trunkline record``, without times.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from trunkline.devtools.recording.format import Recording, RecordingEntry, RecordingHeader, Sender, Side
from trunkline.protocol.caller import MEMORY, Origin
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
    encode,
)
from trunkline.transports.link import Link, LinkWrapper, Receiver
from trunkline.types import RequestId

__all__ = [
    "Recorder",
    "Recording",
    "RecordingEntry",
    "RecordingHeader",
    "Replay",
    "ReplayedAnswer",
    "Sender",
    "Servable",
    "Side",
    "replay",
]


class Recorder(LinkWrapper):
    """A Link around a Link that records what crosses it, both ways; pass it to the owner in place of the inner link."""

    def __init__(self, link: Link, *, side: Side, title: str = "") -> None:
        """Record a link whose owner plays ``side``."""
        super().__init__(link)
        self._side = side
        self._other: Side = "server" if side == "client" else "client"
        self._title = title
        self._entries: list[RecordingEntry] = []
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
        self._entries.extend(RecordingEntry(self._side, Raw(encode(outbound.message))) for outbound in batch)
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


def _entry(sender: Side, incoming: Incoming) -> RecordingEntry:
    if isinstance(incoming, InvalidMessage):
        return RecordingEntry(sender, note=incoming.message)
    if isinstance(incoming, Batch):
        messages = tuple(item for item in incoming.items if not isinstance(item, InvalidMessage))
        return RecordingEntry(sender, Raw(encode(messages)))
    return RecordingEntry(sender, Raw(encode(incoming)))


# How long to wait for a notification: no answer depends on it, but the client may have acted on it.
_NOTICE_SECONDS = 1.0


class Servable(Protocol):
    """The other end of a replay: a ``Server``, or anything that serves a Link until it ends."""

    async def serve(self, link: Link, /) -> None:
        """Serve one link until it ends."""


class ReplayedAnswer(Struct, frozen=True):
    """A recorded request with its recorded and its new answer, as plain JSON.

    Either answer may be absent: a recording need not contain one, and a cancelled request gets none.
    """

    request: dict[str, Any]
    recorded: dict[str, Any] | None
    actual: dict[str, Any] | None

    @property
    def same(self) -> bool:
        """Whether the server answered as it did in the recording."""
        return self.recorded == self.actual

    @property
    def result(self) -> Any:
        """The new result, or None for an error."""
        return None if self.actual is None else self.actual.get("result")

    @property
    def error(self) -> Any:
        """The new error, or None for a result."""
        return None if self.actual is None else self.actual.get("error")


class Replay(Struct, frozen=True):
    """The outcome of a replay: an answer per request, and all messages of the server in order, as plain JSON."""

    answers: tuple[ReplayedAnswer, ...]
    sent: tuple[dict[str, Any], ...]
    #: The recorded requests of the server that it did not send now; there can be some only with ``max_wait``.
    unasked: tuple[dict[str, Any], ...] = ()

    def answer(self, method: str) -> ReplayedAnswer:
        """Return the first answer to a method.

        Raises:
            KeyError: the recording has no request of that method.
        """
        for answer in self.answers:
            if answer.request["method"] == method:
                return answer
        raise KeyError(method)

    @property
    def notices(self) -> tuple[dict[str, Any], ...]:
        """The notifications among the messages of the server."""
        return tuple(message for message in self.sent if "method" in message and "id" not in message)


async def replay(
    recording: Recording,
    server: Servable,
    *,
    seconds: float | None = 10.0,
    max_wait: float | None = None,
    speed: float = 0.0,
) -> Replay:
    """Send a recording's client messages to a server and collect its answers.

    Where the recording shows an answer or a request of the server, nothing more is sent until it has arrived; the ids
    of the server's own requests may differ from the recorded ones. With ``max_wait`` the replay continues without what
    did not arrive within that many seconds, or after the server has ended; then it waits for notifications as well.
    With ``speed`` 1 the client takes as long as in the recording, where that has times.

    Raises:
        TimeoutError: the server did not send what the recording waits for.
    """
    player = _Player(recording, max_wait, speed)
    async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(player))
        serving.add_done_callback(player.server_ended)
        await player.play()
        await serving
    return player.outcome()


class _Player(Link):
    """A Link whose far end is the client of a recording."""

    def __init__(self, recording: Recording, max_wait: float | None, speed: float) -> None:
        self._script = tuple((entry.sender, entry.decoded, entry.at) for entry in recording.entries)
        self._max_wait = max_wait
        self._speed = speed
        self._server_ended = False
        self._unasked: list[Request] = []
        self._notices: list[str] = []
        #: Values that the server generated in the recording, with those it generated in their place now.
        self._generated: dict[str, str] = {}
        self._receiver: Receiver | None = None
        self._moved = asyncio.Event()
        self._sent: list[Message] = []
        self._waiting: dict[RequestId, list[int]] = {}
        self._requests: list[Request] = []
        self._recorded: dict[int, Message] = {}
        self._actual: dict[int, Message] = {}
        self._asked: list[Request] = []
        self._their_ids: dict[RequestId, RequestId] = {}

    # The Link, for the server.

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._moved.set()

    def send(self, batch: Sequence[Outbound]) -> None:
        for outbound in batch:
            message = outbound.message
            for part in message if isinstance(message, tuple) else (message,):
                self._note(part)
        self._moved.set()

    def _note(self, message: Message) -> None:
        self._sent.append(message)
        if isinstance(message, Request):
            self._asked.append(message)
        elif isinstance(message, Notification):
            self._notices.append(message.method)
        elif isinstance(message, Response | ErrorResponse) and message.id is not None:
            owed = self._waiting.get(message.id)
            if owed:
                self._actual[owed.pop(0)] = message

    async def drain(self) -> None:
        return

    async def aclose(self) -> None:
        return

    # The client.

    async def play(self) -> None:
        """Play the script from beginning to end, then wait for the answers still due and end the link."""
        receiver = await self._attached()
        before: float | None = None
        for sender, incoming, at in self._script:
            if incoming is None or sender == "recorder":
                continue
            if sender == "client":
                await self._pause(before, at)
                prepared = self._prepare(incoming)
                if prepared is not None:
                    receiver.message_received(prepared, MEMORY)
            else:
                for message in incoming.items if isinstance(incoming, Batch) else (incoming,):
                    await self._expect(message)
            before = at
        if self._max_wait is None:
            await self._until(lambda: not any(self._waiting.values()))
        receiver.eof_received()

    def server_ended(self, serving: object) -> None:
        """Called when the server has ended: with ``max_wait``, nothing more is waited for."""
        self._server_ended = True
        self._moved.set()

    async def _pause(self, before: float | None, at: float | None) -> None:
        if self._speed and before is not None and at is not None and at > before:
            await asyncio.sleep((at - before) / self._speed)

    def outcome(self) -> Replay:
        """Return each request with its recorded and its new answer."""
        answers = (
            ReplayedAnswer(_plain(request), _plain_if(self._recorded.get(index)), _plain_if(self._actual.get(index)))
            for index, request in enumerate(self._requests)
        )
        unasked = tuple(_plain(message) for message in self._unasked)
        return Replay(tuple(answers), tuple(_plain(message) for message in self._sent), unasked)

    def _prepare(self, incoming: Incoming) -> Incoming | None:
        """Note the answers that will be due, and address the client's answers to the requests of this server."""
        if isinstance(incoming, Batch):
            items = tuple(item for each in incoming.items if (item := self._address(each)) is not None)
            return Batch(items) if items else None
        return self._address(incoming)

    def _address(self, message: Message | InvalidMessage) -> Message | InvalidMessage | None:
        if isinstance(message, Request):
            self._waiting.setdefault(message.id, []).append(len(self._requests))
            self._requests.append(message)
            return _with_generated(message, self._generated) if self._generated else message
        if isinstance(message, Notification) and message.method == "notifications/cancelled":
            self._waiting.pop(_plain(message).get("params", {}).get("requestId"), None)
        elif isinstance(message, Response | ErrorResponse) and message.id is not None:
            if any(message.id == each.id for each in self._unasked):
                # It answers a request that was not sent.
                return None
            id = self._their_ids.get(message.id, message.id)
            return Response(id, message.result) if isinstance(message, Response) else ErrorResponse(id, message.error)
        return message

    async def _expect(self, message: Message | InvalidMessage) -> None:
        """Wait until the server has sent what the recording shows, as far as that can be determined."""
        if isinstance(message, Response | ErrorResponse):
            index = self._latest(message.id)
            if index is None:
                return
            self._recorded[index] = message
            await self._until(lambda: index in self._actual or message.id not in self._waiting)
            if index in self._actual:
                _map_generated(
                    _plain(message).get("result"), _plain(self._actual[index]).get("result"), self._generated
                )
        elif isinstance(message, Request):
            asked = await self._question(message.method)
            if asked is None:
                self._unasked.append(message)
            else:
                self._their_ids[message.id] = asked.id
        elif isinstance(message, Notification) and self._max_wait is not None:
            await self._until(lambda: message.method in self._notices, at_most=_NOTICE_SECONDS)
            if message.method in self._notices:
                self._notices.remove(message.method)

    def _latest(self, id: RequestId | None) -> int | None:
        """Return the index of the last request with this id: an id is reused only after its answer."""
        for index in reversed(range(len(self._requests))):
            if self._requests[index].id == id:
                return index
        return None

    async def _question(self, method: str) -> Request | None:
        await self._until(lambda: any(request.method == method for request in self._asked))
        for request in self._asked:
            if request.method == method:
                self._asked.remove(request)
                return request
        return None

    async def _attached(self) -> Receiver:
        while self._receiver is None:
            self._moved.clear()
            await self._moved.wait()
        return self._receiver

    async def _until(self, done: Callable[[], bool], *, at_most: float = math.inf) -> None:
        """Wait until a condition holds, at most for ``max_wait``."""
        try:
            async with asyncio.timeout(None if self._max_wait is None else min(self._max_wait, at_most)):
                while not done() and not (self._server_ended and self._max_wait is not None):
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            return


# --- values that a server generates -----------------------------------------------------------------------------------

#: Members of results that clients return unchanged, and the members of params in which they do.
_GENERATED = frozenset({"requestState", "nextCursor", "taskId"})
_RETURNED = frozenset({"requestState", "cursor", "taskId"})


def _map_generated(recorded: Any, actual: Any, generated: dict[str, str]) -> None:
    """Note the values that a server generates anew: under the same name in the same place, another string."""
    if not isinstance(recorded, dict) or not isinstance(actual, dict):
        return
    for name, value in recorded.items():
        other = actual.get(name)
        if name in _GENERATED and isinstance(value, str) and isinstance(other, str):
            generated[value] = other
        elif name == "inputRequests" and isinstance(value, dict) and isinstance(other, dict):
            generated.update(zip(value, other, strict=False))
        elif name == "task":
            _map_generated(value, other, generated)


def _with_generated(request: Request, generated: dict[str, str]) -> Request:
    params = _plain(request).get("params")
    if not isinstance(params, dict):
        return request
    made = dict(params)
    for name in _RETURNED & params.keys():
        if isinstance(params[name], str):
            made[name] = generated.get(params[name], params[name])
    answers = params.get("inputResponses")
    if isinstance(answers, dict):
        made["inputResponses"] = {generated.get(key, key): value for key, value in answers.items()}
    return request if made == params else Request(request.id, request.method, Raw(msgspec.json.encode(made)))


def _plain(message: Message) -> dict[str, Any]:
    return msgspec.json.decode(encode(message), type=dict[str, Any])


def _plain_if(message: Message | None) -> dict[str, Any] | None:
    return None if message is None else _plain(message)
