"""Playing a recorded conversation again, to see whether a server still answers as it did.

``replay`` is the client of a recording: it sends what the client sent, waits where the client had waited, and puts each
answer beside the recorded one. Of the methods it knows only the one that withdraws a request: no answer is owed then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from trunkline.protocol.caller import MEMORY
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
    encode,
)
from trunkline.testing.recordings import Recording
from trunkline.transports.link import Link, Receiver
from trunkline.types import RequestId

__all__ = ["Answer", "Replay", "Servable", "replay"]


class Servable(Protocol):
    """What can be at the other end of a replay: a ``Server``, or anything that serves a Link until it ends."""

    async def serve(self, link: Link, /) -> None:
        """Serve one link until it ends."""


class Answer(Struct, frozen=True):
    """A request of the recording, the answer that was recorded and the one it got now, as plain JSON.

    Either may be absent: a recording need not show an answer, and a request that was withdrawn gets none.
    """

    request: dict[str, Any]
    recorded: dict[str, Any] | None
    actual: dict[str, Any] | None

    @property
    def same(self) -> bool:
        """Whether the server answered as it did then."""
        return self.recorded == self.actual

    @property
    def result(self) -> Any:
        """The result it got now, or None for an error."""
        return None if self.actual is None else self.actual.get("result")

    @property
    def error(self) -> Any:
        """The error it got now, or None for a result."""
        return None if self.actual is None else self.actual.get("error")


class Replay(Struct, frozen=True):
    """What came of a replay: an answer for each request, and all that the server sent, in order, as plain JSON."""

    answers: tuple[Answer, ...]
    sent: tuple[dict[str, Any], ...]

    def answer(self, method: str) -> Answer:
        """Find the first answer to a method.

        Raises:
            KeyError: the recording has no request of that method.
        """
        for answer in self.answers:
            if answer.request["method"] == method:
                return answer
        raise KeyError(method)

    @property
    def notices(self) -> tuple[dict[str, Any], ...]:
        """The notifications among what the server sent."""
        return tuple(message for message in self.sent if "method" in message and "id" not in message)


async def replay(recording: Recording, server: Servable, *, seconds: float = 10.0) -> Replay:
    """Send a recording's client messages to a server and collect its answers.

    Where the recording shows an answer or a question of the server, nothing more is sent until it has come; the ids
    of the server's own requests may differ from the recorded ones.

    Raises:
        TimeoutError: the server did not say what the recording waits for.
    """
    player = _Player(recording)
    async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(player))
        await player.play()
        await serving
    return player.outcome()


class _Player:
    """A Link whose far end is the client of a recording."""

    def __init__(self, recording: Recording) -> None:
        self._script = tuple((entry.sender, entry.decoded) for entry in recording.entries)
        self._receiver: Receiver | None = None
        self._moved = asyncio.Event()
        self._sent: list[Message] = []
        self._waiting: dict[RequestId, list[int]] = {}
        self._requests: list[Request] = []
        self._recorded: dict[int, Message] = {}
        self._actual: dict[int, Message] = {}
        self._asked: list[Request] = []
        self._their_ids: dict[RequestId, RequestId] = {}

    # As a Link, for the server.

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
        elif isinstance(message, Response | ErrorResponse) and message.id is not None:
            owed = self._waiting.get(message.id)
            if owed:
                self._actual[owed.pop(0)] = message

    async def drain(self) -> None:
        return

    async def aclose(self) -> None:
        return

    # As the client.

    async def play(self) -> None:
        """Walk the script from its first line to its last, then wait for what is still owed and end the link."""
        receiver = await self._attached()
        for sender, incoming in self._script:
            if incoming is None:
                continue
            if sender == "client":
                receiver.message_received(self._prepare(incoming), MEMORY)
                continue
            for message in incoming.items if isinstance(incoming, Batch) else (incoming,):
                await self._expect(message)
        while any(self._waiting.values()):
            await self._move()
        receiver.eof_received()

    def outcome(self) -> Replay:
        """Put requests, recorded and actual answers side by side."""
        answers = (
            Answer(_plain(request), _plain_if(self._recorded.get(index)), _plain_if(self._actual.get(index)))
            for index, request in enumerate(self._requests)
        )
        return Replay(tuple(answers), tuple(_plain(message) for message in self._sent))

    def _prepare(self, incoming: Incoming) -> Incoming:
        """Note what will be owed, and address the client's answers to the requests this server made."""
        if isinstance(incoming, Batch):
            return Batch(tuple(self._address(item) for item in incoming.items))
        return self._address(incoming)

    def _address(self, message: Message | Malformed) -> Message | Malformed:
        if isinstance(message, Request):
            self._waiting.setdefault(message.id, []).append(len(self._requests))
            self._requests.append(message)
        elif isinstance(message, Notification) and message.method == "notifications/cancelled":
            self._waiting.pop(_plain(message).get("params", {}).get("requestId"), None)
        elif isinstance(message, Response):
            return Response(self._their_ids.get(message.id, message.id), message.result)
        elif isinstance(message, ErrorResponse) and message.id is not None:
            return ErrorResponse(self._their_ids.get(message.id, message.id), message.error)
        return message

    async def _expect(self, message: Message | Malformed) -> None:
        """Wait until the server has sent what the recording shows, as far as that can be told."""
        if isinstance(message, Response | ErrorResponse):
            index = self._latest(message.id)
            if index is not None:
                self._recorded[index] = message
            while index is not None and index not in self._actual and message.id in self._waiting:
                await self._move()
        elif isinstance(message, Request):
            self._their_ids[message.id] = (await self._question(message.method)).id

    def _latest(self, id: RequestId | None) -> int | None:
        """Find the last request sent under an id: one is used again only after its answer."""
        for index in reversed(range(len(self._requests))):
            if self._requests[index].id == id:
                return index
        return None

    async def _question(self, method: str) -> Request:
        while True:
            for request in self._asked:
                if request.method == method:
                    self._asked.remove(request)
                    return request
            await self._move()

    async def _attached(self) -> Receiver:
        while self._receiver is None:
            await self._move()
        return self._receiver

    async def _move(self) -> None:
        """Wait until the server has done something more."""
        self._moved.clear()
        await self._moved.wait()


def _plain(message: Message) -> dict[str, Any]:
    return msgspec.json.decode(encode(message), type=dict[str, Any])


def _plain_if(message: Message | None) -> dict[str, Any] | None:
    return None if message is None else _plain(message)
