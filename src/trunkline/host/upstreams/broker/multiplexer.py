"""One server process used by several clients at once, each as if it were the only one.

Each client sees a link of its own. Request ids, progress tokens and subscription ids are rewritten, cancellations
mapped, and the handshake of every further client is answered with the result of the first. What the server sends by
itself goes to the client that it concerns: progress and subscriptions to the one that asked, questions to the one whose
request began last (on a connection that several requests share, a question does not name its request), a log message
only if one client alone has requests in progress, changes of lists to all, a changed resource to one of its
subscribers, which announces it to the others.

Requests beyond the concurrency limit of the server wait here, since each client knows only its own requests.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from trunkline.errors import ConnectionLost
from trunkline.host.upstreams.routing.active_calls import ConcurrencyLimiter, ConcurrencySlot
from trunkline.protocol.caller import STDIO, Origin
from trunkline.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Incoming,
    Message,
    Notification,
    Outbound,
    Request,
    Response,
)
from trunkline.transports.link import Link, Receiver
from trunkline.types import META_SUBSCRIPTION_ID, ErrorObject, RequestId

__all__ = ["LocalParticipant", "Multiplexer", "Participant"]

log = logging.getLogger("trunkline.host")

#: The methods that count towards the concurrency limit of a server, as in the router.
_LIMITED = frozenset({"completion/complete", "prompts/get", "resources/read", "tools/call"})
#: A request that stays open although the server has nothing to do for it.
_LISTEN = "subscriptions/listen"
#: Progress tokens that are remembered: those of tasks are used after the response to their request.
_MOST_TOKENS = 4096
#: Requests that wait for the server or for a slot of it; a worker serves at most so many calls at once.
_MOST_REQUESTS = 16_384
_GONE = "The client that this request was for has disconnected"
_Members = dict[str, Raw]
_members = msgspec.json.Decoder(_Members)


class Participant(ABC):
    """One client of a shared server process."""

    def __init__(self) -> None:
        """Start without requests."""
        self.multiplexer: Multiplexer | None = None
        #: The requests in progress, by the id that the client gave them.
        self.calls: dict[RequestId, _Call] = {}
        #: The resources that it is subscribed to.
        self.uris: set[str] = set()

    @abstractmethod
    def deliver(self, message: Message) -> None:
        """Deliver a message of the server."""

    @abstractmethod
    def ended(self, error: Exception | None) -> None:
        """Called when the server process is gone; ``error`` says why."""


class _Call:
    """A request of a client at the server."""

    __slots__ = ("client", "id", "message", "method", "number", "questions", "slot", "token", "turn", "uri")

    def __init__(self, client: Participant, message: Request, number: int) -> None:
        self.client = client
        #: The id that the client gave the request, and the one under which the server knows it.
        self.id = message.id
        self.number = number
        self.method = message.method
        self.message: Request | None = message
        self.token: RequestId | None = None
        self.uri: str | None = None
        self.slot: ConcurrencySlot | None = None
        #: The task that waits for a slot.
        self.turn: asyncio.Task[None] | None = None
        #: Questions of the server that wait for an answer of this client.
        self.questions = 0


class Multiplexer:
    """Lets several participants use one link to a server process."""

    def __init__(
        self, link: Link, *, limiter: ConcurrencyLimiter | None = None, on_activity: Callable[[int], None] | None = None
    ) -> None:
        """Use a link that is not attached yet; ``on_activity`` is called with 1 and -1 as requests begin and end.

        Requests of the owner (see ``join``) are not reported.
        """
        self._link = link
        self._limiter = limiter
        self._on_activity = on_activity
        self._numbers = itertools.count(1)
        self.participants: dict[Participant, None] = {}
        #: The participant that answers questions of the server by itself and ends the process when it leaves.
        self.owner: Participant | None = None
        self._calls: dict[int, _Call] = {}
        self._tokens: OrderedDict[int, tuple[Participant, RequestId]] = OrderedDict()
        #: The requests of the server that wait for an answer: who was asked, and about which call.
        self._questions: dict[RequestId, tuple[Participant, _Call | None]] = {}
        self._initialized: Raw | None = None
        self._initializing: int | None = None
        self._awaiting_handshake: list[tuple[Participant, Request]] = []
        self._confirmed = False
        self.started = False
        #: The participant whose request began last.
        self._latest: Participant | None = None
        self.closed = False
        self.error: Exception | None = None

    def start(self) -> None:
        """Start to read from the server, unless that was done before."""
        if not self.started:
            self.started = True
            self._link.attach(self)

    @property
    def pid(self) -> int | None:
        """The id of the server process."""
        return self._link.pid

    @property
    def busy(self) -> bool:
        """Whether a request is in progress."""
        return bool(self._calls)

    def join(self, participant: Participant, *, own: bool = False) -> None:
        """Add a participant; with ``own`` it is the owner."""
        participant.multiplexer = self
        self.participants[participant] = None
        if own:
            self.owner = participant
        if self._latest is None:
            self._latest = participant

    def leave(self, participant: Participant) -> None:
        """Remove a participant: its requests are cancelled, its subscriptions ended, its questions failed."""
        if self.participants.pop(participant, 0) == 0:
            return
        if self._latest is participant:
            self._latest = next(reversed(self.participants), None)
        for call in tuple(participant.calls.values()):
            self._cancel(call, Raw(msgspec.json.encode({"requestId": call.number, "reason": "disconnected"})))
        for id, (asked, _) in tuple(self._questions.items()):
            if asked is participant:
                self._answer(ErrorResponse(id, ErrorObject(code=-32603, message=_GONE)))
        self._awaiting_handshake = [each for each in self._awaiting_handshake if each[0] is not participant]
        for uri in participant.uris - {uri for each in self.participants for uri in each.uris}:
            params = Raw(msgspec.json.encode({"uri": uri}))
            self._send(Request(next(self._numbers), "resources/unsubscribe", params))

    async def aclose(self) -> None:
        """End the server process; the remaining participants are notified."""
        self._end(None)
        await self._link.aclose()

    # --- from a participant ------------------------------------------------------------------------------------------

    def receive(self, participant: Participant, message: Incoming) -> None:
        """Pass a message of a participant on to the server."""
        if self.closed or participant not in self.participants:
            return
        if isinstance(message, Request):
            self._request(participant, message)
        elif isinstance(message, Notification):
            self._notification(participant, message)
        elif isinstance(message, Response | ErrorResponse) and message.id is not None:
            asked, _ = self._questions.get(message.id, (None, None))
            if asked is participant:
                self._answer(message)
        elif isinstance(message, Batch):
            for each in message.items:
                self.receive(participant, each)

    def _request(self, participant: Participant, message: Request) -> None:
        if message.method == "initialize" and self._handshake(participant, message):
            return
        if len(self._calls) >= _MOST_REQUESTS:
            text = f"Too many requests wait for this server: the limit is {_MOST_REQUESTS}; try again later"
            participant.deliver(ErrorResponse(message.id, ErrorObject(code=-32000, message=text)))
            return
        if message.method == "resources/unsubscribe" and self._still_watched(participant, message):
            return
        number = next(self._numbers)
        call = self._calls[number] = participant.calls[message.id] = _Call(participant, message, number)
        if message.method == "initialize":
            self._initializing = number
        if message.method == "resources/subscribe":
            call.uri = _text(message.params, "uri")
        if message.method != _LISTEN:
            self._latest = participant
        if self._on_activity is not None and participant is not self.owner:
            self._on_activity(1)
        if self._limiter is None or message.method not in _LIMITED:
            self._start_call(call)
        elif (slot := self._limiter.acquire_free()) is not None:
            call.slot = slot
            self._start_call(call)
        else:
            call.turn = asyncio.get_running_loop().create_task(self._await_slot(call, self._limiter))

    async def _await_slot(self, call: _Call, limiter: ConcurrencyLimiter) -> None:
        slot = await limiter.acquire()
        call.turn = None
        if self._calls.get(call.number) is call and not self.closed:
            call.slot = slot
            self._start_call(call)
        else:
            slot.release()

    def _start_call(self, call: _Call) -> None:
        message, call.message = call.message, None
        assert message is not None
        params = message.params
        if params is not None and b'"progressToken"' in bytes(params):
            params, call.token = _replace_meta(params, "progressToken", call.number)
            if call.token is not None:
                self._tokens[call.number] = (call.client, call.token)
                if len(self._tokens) > _MOST_TOKENS:
                    self._tokens.popitem(last=False)
        self._send(Request(call.number, message.method, params))

    def _handshake(self, participant: Participant, message: Request) -> bool:
        """Answer the handshake of a further participant; return False for the first one, which is sent on."""
        if self._initialized is not None:
            participant.deliver(Response(message.id, self._initialized))
        elif self._initializing is not None:
            self._awaiting_handshake.append((participant, message))
        else:
            return False
        return True

    def _notification(self, participant: Participant, message: Notification) -> None:
        if message.method == "notifications/cancelled":
            members = _read_members(message.params)
            id = _read_id(members.get("requestId"))
            call = None if id is None else participant.calls.get(id)
            if call is not None:
                members["requestId"] = Raw(msgspec.json.encode(call.number))
                self._cancel(call, Raw(msgspec.json.encode(members)))
            return
        if message.method == "notifications/initialized":
            if self._confirmed:
                return
            self._confirmed = True
        self._send(message)

    def _still_watched(self, participant: Participant, message: Request) -> bool:
        """Answer the end of a subscription that another participant still has."""
        uri = _text(message.params, "uri")
        participant.uris.discard(uri)
        if not any(uri in each.uris for each in self.participants):
            return False
        participant.deliver(Response(message.id, Raw(b"{}")))
        return True

    def _cancel(self, call: _Call, params: Raw) -> None:
        """Cancel a request at the server, or drop it if it was not sent yet."""
        if call.number == self._initializing:
            # A handshake must not be cancelled, and its result is for the participants that follow, too.
            return
        sent = call.message is None
        self._finish(call)
        if sent:
            self._send(Notification("notifications/cancelled", params))

    def _finish(self, call: _Call) -> None:
        if self._calls.pop(call.number, None) is None:
            return
        call.client.calls.pop(call.id, None)
        if call.turn is not None:
            call.turn.cancel()
        if call.slot is not None:
            call.slot.release()
        if self._on_activity is not None and call.client is not self.owner:
            self._on_activity(-1)

    def _send(self, message: Message) -> None:
        if not self.closed:
            self._link.send([Outbound(message)])

    # --- from the server ---------------------------------------------------------------------------------------------

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Called with each message of the server."""
        if isinstance(incoming, Response | ErrorResponse):
            self._response(incoming)
        elif isinstance(incoming, Notification):
            self._notified(incoming)
        elif isinstance(incoming, Request):
            self._question(incoming)
        elif isinstance(incoming, Batch):
            for each in incoming.items:
                self.message_received(each, origin)
        elif incoming.response:
            self._response(ErrorResponse(incoming.id, ErrorObject(code=incoming.code, message=incoming.message)))
        else:
            self._send(ErrorResponse(incoming.id, ErrorObject(code=incoming.code, message=incoming.message)))

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Called when the server process is gone."""
        self._end(error or ConnectionLost("the server closed the connection"))

    def _end(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        self.error = error
        for call in tuple(self._calls.values()):
            self._finish(call)
        participants, self.participants = tuple(self.participants), {}
        for participant in participants:
            participant.ended(error)

    def _response(self, message: Response | ErrorResponse) -> None:
        number = message.id if isinstance(message.id, int) else None
        call = None if number is None else self._calls.get(number)
        if call is None:
            return
        self._finish(call)
        if call.uri is not None and isinstance(message, Response):
            call.client.uris.add(call.uri)
        if number == self._initializing:
            self._handshake_answered(message)
        if call.client in self.participants:
            call.client.deliver(_with_id(message, call.id))

    def _handshake_answered(self, message: Response | ErrorResponse) -> None:
        self._initializing = None
        waiting, self._awaiting_handshake = self._awaiting_handshake, []
        if isinstance(message, Response):
            self._initialized = message.result
        for participant, request in waiting:
            if participant in self.participants:
                participant.deliver(_with_id(message, request.id))

    def _notified(self, message: Notification) -> None:
        method, params = message.method, message.params
        if method == "notifications/progress":
            self._progress(message)
        elif method == "notifications/cancelled":
            id = _read_id(_read_members(params).get("requestId"))
            asked, _ = self._questions.get(id, (None, None)) if id is not None else (None, None)
            if asked is not None:
                asked.deliver(message)
        elif params is not None and META_SUBSCRIPTION_ID.encode() in bytes(params):
            self._subscribed(message)
        elif method == "notifications/resources/updated":
            uri = _text(params, "uri")
            found = [each for each in self.participants if uri in each.uris]
            for each in found[:1] or self.participants:
                each.deliver(message)
        elif method == "notifications/message":
            self._logged(message)
        else:
            for each in tuple(self.participants):
                each.deliver(message)

    def _progress(self, message: Notification) -> None:
        members = _read_members(message.params)
        number = _read_id(members.get("progressToken"))
        client, token = self._tokens.get(number, (None, None)) if isinstance(number, int) else (None, None)
        if client is not None and client in self.participants:
            members["progressToken"] = Raw(msgspec.json.encode(token))
            client.deliver(Notification(message.method, Raw(msgspec.json.encode(members))))

    def _subscribed(self, message: Notification) -> None:
        """Deliver a notification of a stream that a request opened."""
        meta = _read_members(_read_members(message.params).get("_meta"))
        said = _read_id(meta.get(META_SUBSCRIPTION_ID))
        # Some servers write the id of the request as a string.
        number = int(said) if isinstance(said, str) and said.isdecimal() and len(said) < 19 else said
        call = self._calls.get(number) if isinstance(number, int) else None
        if call is None:
            return
        id = str(call.id) if isinstance(said, str) else call.id
        params, _ = _replace_meta(message.params, META_SUBSCRIPTION_ID, id)
        call.client.deliver(Notification(message.method, params))

    def _logged(self, message: Notification) -> None:
        """Deliver a log message; it does not name its request, and no client may read what another one causes."""
        users = {call.client for call in self._calls.values() if call.method != _LISTEN}
        if self.owner is not None:
            users.discard(self.owner)
            self.owner.deliver(message)
        if len(users) == 1:
            users.pop().deliver(message)
        elif self.owner is None and not users and self._latest is not None:
            # Between calls: the connection belongs to one session.
            self._latest.deliver(message)

    def _question(self, message: Request) -> None:
        """Ask the owner, or else the participant whose request began last."""
        asked, call = self.owner, None
        if asked is None:
            open_calls = [each for each in self._calls.values() if each.method != _LISTEN and each.message is None]
            waiting = [each for each in open_calls if not each.questions] or open_calls
            call = waiting[-1] if waiting else None
            asked = self._latest if call is None else call.client
        if asked is None or message.id in self._questions:
            self._send(ErrorResponse(message.id, ErrorObject(code=-32603, message=_GONE)))
            return
        self._questions[message.id] = (asked, call)
        if call is not None:
            call.questions += 1
            if call.slot is not None:
                call.slot.suspend()
        asked.deliver(message)

    def _answer(self, message: Response | ErrorResponse) -> None:
        assert message.id is not None
        _, call = self._questions.pop(message.id)
        if call is not None:
            call.questions -= 1
            if call.slot is not None and not call.questions:
                call.slot.resume()
        self._send(message)


class LocalParticipant(Participant, Link):
    """The participant in the process of the multiplexer: the link of the client that supervises the server.

    It owns the process, which ends when it leaves.
    """

    def __init__(self, multiplexer: Multiplexer) -> None:
        """Join as the owner."""
        super().__init__()
        self._receiver: Receiver | None = None
        self._ended = False
        multiplexer.join(self, own=True)

    def attach(self, receiver: Receiver) -> None:
        """Start to read from the server."""
        assert self.multiplexer is not None
        self._receiver = receiver
        self.multiplexer.start()

    def send(self, batch: Sequence[Outbound]) -> None:
        """Pass messages on."""
        assert self.multiplexer is not None
        for outbound in batch:
            messages = outbound.message if isinstance(outbound.message, tuple) else (outbound.message,)
            for message in messages:
                self.multiplexer.receive(self, _encoded(message))

    async def drain(self) -> None:
        """Wait until the process reads."""
        assert self.multiplexer is not None
        await self.multiplexer._link.drain()

    async def aclose(self) -> None:
        """End the process."""
        assert self.multiplexer is not None
        await self.multiplexer.aclose()

    @property
    def pid(self) -> int | None:
        """The id of the server process."""
        return None if self.multiplexer is None else self.multiplexer.pid

    def deliver(self, message: Message) -> None:
        """Deliver a message to the client."""
        if self._receiver is not None:
            self._receiver.message_received(message, STDIO)

    def ended(self, error: Exception | None) -> None:
        """Called when the process is gone."""
        if self._receiver is not None and not self._ended:
            self._ended = True
            self._receiver.eof_received(error)


def _encoded(message: Message) -> Message:
    """Return a message with its params or result as bytes, as if it had been read."""
    if isinstance(message, Request):
        return Request(message.id, message.method, _raw(message.params))
    if isinstance(message, Notification):
        return Notification(message.method, _raw(message.params))
    if isinstance(message, Response):
        return Response(message.id, _raw(message.result))
    return message


def _raw(value: Any) -> Raw | None:
    return value if value is None or isinstance(value, Raw) else Raw(msgspec.json.encode(value))


def _with_id(message: Response | ErrorResponse, id: RequestId) -> Response | ErrorResponse:
    return Response(id, message.result) if isinstance(message, Response) else ErrorResponse(id, message.error)


def _read_members(raw: Any) -> _Members:
    """Return the members of an object; none if it is no object."""
    if raw is None:
        return {}
    try:
        return _members.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _read_id(raw: Raw | None) -> RequestId | None:
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=int | str)
    except msgspec.DecodeError:
        return None


def _text(params: Any, name: str) -> str:
    found = _read_id(_read_members(params).get(name))
    return found if isinstance(found, str) else ""


def _replace_meta(params: Any, name: str, value: RequestId) -> tuple[Raw, RequestId | None]:
    """Replace a member of ``_meta``; return the new params, and what it was before (None: there is none)."""
    members = _read_members(params)
    meta = _read_members(members.get("_meta"))
    before = _read_id(meta.get(name))
    if before is None:
        return params, None
    meta[name] = Raw(msgspec.json.encode(value))
    members["_meta"] = Raw(msgspec.json.encode(meta))
    return Raw(msgspec.json.encode(members)), before
