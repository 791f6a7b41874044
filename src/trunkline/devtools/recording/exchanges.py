"""A recording as exchanges: what a client sent, and everything the server sent because of it, in order.

Pure. A response belongs to its request by id, and over HTTP by the HTTP exchange it came on; progress belongs to its
token. Everything else that a server sends, a request or a notification, is attributed to what the conversation was
about at that moment: the last request or notification, or the last response. With several requests in flight that is a
guess, and it is all that a recording can tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw, Struct

from trunkline.devtools.recording.format import Recording, Side
from trunkline.types import META_SUBSCRIPTION_ID, RequestId

__all__ = [
    "RecordedExchange",
    "RecordedMessage",
    "RecordedServerRequest",
    "comparable_params",
    "digest",
    "label",
    "member",
    "progress_token",
    "read_exchanges",
    "with_unique_ids",
]

#: The opening requests: they describe the client, but the response does not depend on that.
_OPENING = frozenset({"initialize", "server/discover"})
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_NAMING = ("name", "uri", "ref", "level", "taskId")


class RecordedMessage(Struct, frozen=True):
    """A message that the server sent, and when."""

    message: dict[str, Any]
    at: float | None = None


class RecordedServerRequest(Struct):
    """A request of the server, and the client's response."""

    request: dict[str, Any]
    answer: dict[str, Any] | None = None


class RecordedExchange(Struct):
    """A request or notification of the client, and what followed from it."""

    message: dict[str, Any]
    at: float | None = None
    #: What the server sent because of it, including the response, in order.
    steps: list[RecordedMessage] = []
    questions: list[RecordedServerRequest] = []
    #: The whole response; None for a notification, a cancelled request, or if the recording ends before it.
    answer: dict[str, Any] | None = None
    cancelled: bool = False

    @property
    def id(self) -> RequestId | None:
        """The id of a request; None for a notification."""
        id: RequestId | None = self.message.get("id")
        return id

    @property
    def method(self) -> str:
        """The method."""
        return str(self.message["method"])

    @property
    def params(self) -> Any:
        """The params."""
        return self.message.get("params")

    @property
    def key(self) -> tuple[str, str]:
        """The key by which equal requests are recognised."""
        return self.method, digest(comparable_params(self.method, self.params))


def read_exchanges(recording: Recording) -> list[RecordedExchange]:
    """Return the exchanges of a recording, in the order the client started them."""
    reader = _ExchangeReader()
    for entry in recording.entries:
        value = entry.json
        for message in value if isinstance(value, list) else [value]:
            if entry.sender != "recorder" and _is_message(message):
                reader.take(entry.sender, message, at=entry.at, on=entry.exchange)
    return reader.found


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("method", ""), str):
        return False
    return isinstance(value.get("id"), int | str | None)


class _ExchangeReader:
    """Assigns messages to exchanges in order."""

    def __init__(self) -> None:
        self.found: list[RecordedExchange] = []
        #: Pending requests in order, with the HTTP exchange each came on.
        self._open: list[tuple[int | None, RecordedExchange]] = []
        self._asked: list[RecordedServerRequest] = []
        #: The exchange that the conversation is about.
        self._current: RecordedExchange | None = None

    def take(self, sender: Side, message: dict[str, Any], *, at: float | None, on: int | None) -> None:
        """Assign one message."""
        if "method" not in message:
            if sender == "server":
                self._answered(message, at, on)
            else:
                self._replied(message)
        elif sender == "server":
            self._add_server_message(message, at, on)
        elif message["method"] == "notifications/cancelled":
            self._cancelled(message)
        else:
            self._current = RecordedExchange(message, at)
            self.found.append(self._current)
            if "id" in message:
                self._open.append((on, self._current))

    def _answered(self, message: dict[str, Any], at: float | None, on: int | None) -> None:
        mine = [pair for pair in self._open if pair[1].id == message.get("id")]
        # On one HTTP exchange an id is unique; a resumed stream has another number.
        pair = next((pair for pair in mine if on is not None and pair[0] == on), mine[-1] if mine else None)
        if pair is None:
            return
        self._open.remove(pair)
        self._current = pair[1]
        pair[1].answer = message
        pair[1].steps.append(RecordedMessage(message, at))

    def _add_server_message(self, message: dict[str, Any], at: float | None, on: int | None) -> None:
        about = self._about(message, on)
        if about is None:
            return
        about.steps.append(RecordedMessage(message, at))
        if "id" in message:
            question = RecordedServerRequest(message)
            about.questions.append(question)
            self._asked.append(question)

    def _about(self, message: dict[str, Any], on: int | None) -> RecordedExchange | None:
        if message["method"] == "notifications/progress":
            token = member(message, "params").get("progressToken")
            return next((each for _, each in reversed(self._open) if progress_token(each.message) == token), None)
        if message["method"] == "notifications/subscriptions/acknowledged":
            id = member(member(message, "params"), "_meta").get(META_SUBSCRIPTION_ID)
            return next((each for _, each in reversed(self._open) if each.id == id), None)
        asked_here = next((each for number, each in self._open if on is not None and number == on), None)
        # A standing stream does not tell why a notification was sent on it.
        return self._current if asked_here is None or "id" not in message else asked_here

    def _replied(self, message: dict[str, Any]) -> None:
        for question in reversed(self._asked):
            if question.answer is None and question.request["id"] == message.get("id"):
                question.answer = message
                return

    def _cancelled(self, message: dict[str, Any]) -> None:
        id = member(message, "params").get("requestId")
        for pair in reversed(self._open):
            if pair[1].id == id:
                pair[1].cancelled = True
                return


# --- comparing --------------------------------------------------------------------------------------------------------


def comparable_params(method: str, params: Any) -> Any:
    """Return the part of a request's params that says what is wanted, without ``_meta`` and client information."""
    if method in _OPENING or not isinstance(params, dict):
        return None
    kept = {name: value for name, value in params.items() if name != "_meta"}
    return kept or None


def digest(value: Any) -> str:
    """Return a digest of a JSON value that does not depend on the order of members."""
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def progress_token(request: dict[str, Any]) -> RequestId | None:
    """Return the progress token of a request."""
    token: RequestId | None = member(member(request, "params"), "_meta").get("progressToken")
    return token


def member(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a member that should be an object; an empty one if it is not."""
    found = value.get(name)
    return found if isinstance(found, dict) else _NOTHING


def label(message: dict[str, Any]) -> str:
    """Return a short label of a request: its method, and the tool, prompt or resource it names."""
    params = member(message, "params")
    for name in _NAMING:
        value = params.get(name)
        if isinstance(value, dict):
            value = value.get("name") or value.get("uri")
        if isinstance(value, str):
            return f"{message['method']} {value}"
    return str(message["method"])


# --- ids --------------------------------------------------------------------------------------------------------------


def with_unique_ids(recording: Recording) -> Recording:
    """Give the client's requests unique ids; over HTTP several requests may have used the same id at once."""
    if all(entry.exchange is None for entry in recording.entries):
        return recording
    numbers = _IdAllocator()
    entries = []
    for entry in recording.entries:
        value = entry.json
        if value is not None and entry.sender != "recorder":
            items = [numbers.of(entry.sender, each, entry.exchange) for each in _each(value)]
            made = Raw(msgspec.json.encode(items if isinstance(value, list) else items[0]))
            entries.append(msgspec.structs.replace(entry, message=made))
        else:
            entries.append(entry)
    return msgspec.structs.replace(recording, entries=tuple(entries))


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


class _IdAllocator:
    """Numbers the client's requests, and maps their ids."""

    def __init__(self) -> None:
        self._last = 0
        self._by_exchange: dict[tuple[int | None, RequestId], int] = {}
        self._by_id: dict[RequestId, int] = {}

    def of(self, sender: Side, message: Any, exchange: int | None) -> Any:
        """Return a message with its ids replaced by numbers."""
        if not _is_message(message):
            return message
        id, method = message.get("id"), message.get("method")
        if sender == "client" and method is not None and id is not None:
            self._last += 1
            self._by_exchange[exchange, id] = self._by_id[id] = self._last
            return {**message, "id": self._last}
        if sender == "server" and method is None and id is not None:
            return {**message, "id": self._by_exchange.get((exchange, id), self._by_id.get(id, id))}
        if sender == "client" and method == "notifications/cancelled":
            params = member(message, "params")
            asked = params.get("requestId")
            number = self._by_id.get(asked, asked) if isinstance(asked, int | str) else asked
            return {**message, "params": {**params, "requestId": number}}
        return message
