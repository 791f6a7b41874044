"""A recording read as exchanges: what a client sent, and all that the server said because of it, in order.

Pure. An answer goes with its request by id, and over HTTP by the exchange it came on; progress goes with its token.
Whatever else a server says, a question or a notice, goes with what the conversation was about at that moment: the
request or notification that came last, or the answer that was given last. That is a guess where several requests were
in flight, and it is all that a recording can tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw, Struct

from trunkline.host.record.recording import Recording, Side
from trunkline.types import META_SUBSCRIPTION_ID, RequestId

__all__ = [
    "Exchange",
    "Question",
    "Step",
    "comparable",
    "digest",
    "exchanges",
    "label",
    "member",
    "progress_token",
    "with_unique_ids",
]

#: What opens a conversation: a client says who it is, and gets the same answer whoever it is.
_OPENING = frozenset({"initialize", "server/discover"})
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_NAMING = ("name", "uri", "ref", "level", "taskId")


class Step(Struct, frozen=True):
    """One message that the server sent, and when."""

    message: dict[str, Any]
    at: float | None = None


class Question(Struct):
    """A request of the server's, and what it was answered."""

    request: dict[str, Any]
    answer: dict[str, Any] | None = None


class Exchange(Struct):
    """A request or a notification of the client's, and what came of it."""

    message: dict[str, Any]
    at: float | None = None
    #: What the server sent because of it, the answer included, in order.
    steps: list[Step] = []
    questions: list[Question] = []
    #: The answer, whole; None if there is none: it was a notification, or withdrawn, or the recording ends before it.
    answer: dict[str, Any] | None = None
    cancelled: bool = False

    @property
    def id(self) -> RequestId | None:
        """The id of a request; None for a notification."""
        id: RequestId | None = self.message.get("id")
        return id

    @property
    def method(self) -> str:
        """What was asked."""
        return str(self.message["method"])

    @property
    def params(self) -> Any:
        """What it was asked with."""
        return self.message.get("params")

    @property
    def key(self) -> tuple[str, str]:
        """What two requests have in common that mean the same."""
        return self.method, digest(comparable(self.method, self.params))


def exchanges(recording: Recording) -> list[Exchange]:
    """Read a recording as exchanges, in the order the client began them."""
    reader = _Reader()
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


class _Reader:
    """Sorts messages as they come."""

    def __init__(self) -> None:
        self.found: list[Exchange] = []
        #: Requests without an answer, in order, with the HTTP exchange each came on.
        self._open: list[tuple[int | None, Exchange]] = []
        self._asked: list[Question] = []
        #: What the conversation is about.
        self._current: Exchange | None = None

    def take(self, sender: Side, message: dict[str, Any], *, at: float | None, on: int | None) -> None:
        """Sort one message in."""
        if "method" not in message:
            if sender == "server":
                self._answered(message, at, on)
            else:
                self._replied(message)
        elif sender == "server":
            self._said(message, at, on)
        elif message["method"] == "notifications/cancelled":
            self._cancelled(message)
        else:
            self._current = Exchange(message, at)
            self.found.append(self._current)
            if "id" in message:
                self._open.append((on, self._current))

    def _answered(self, message: dict[str, Any], at: float | None, on: int | None) -> None:
        mine = [pair for pair in self._open if pair[1].id == message.get("id")]
        # On one HTTP exchange an id is unique; a stream that was taken up again has another number.
        pair = next((pair for pair in mine if on is not None and pair[0] == on), mine[-1] if mine else None)
        if pair is None:
            return
        self._open.remove(pair)
        self._current = pair[1]
        pair[1].answer = message
        pair[1].steps.append(Step(message, at))

    def _said(self, message: dict[str, Any], at: float | None, on: int | None) -> None:
        about = self._about(message, on)
        if about is None:
            return
        about.steps.append(Step(message, at))
        if "id" in message:
            question = Question(message)
            about.questions.append(question)
            self._asked.append(question)

    def _about(self, message: dict[str, Any], on: int | None) -> Exchange | None:
        if message["method"] == "notifications/progress":
            token = member(message, "params").get("progressToken")
            return next((each for _, each in reversed(self._open) if progress_token(each.message) == token), None)
        if message["method"] == "notifications/subscriptions/acknowledged":
            id = member(member(message, "params"), "_meta").get(META_SUBSCRIPTION_ID)
            return next((each for _, each in reversed(self._open) if each.id == id), None)
        asked_here = next((each for number, each in self._open if on is not None and number == on), None)
        # A stream that stays open for whatever happens says nothing of why it happened.
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


# --- what counts ------------------------------------------------------------------------------------------------------


def comparable(method: str, params: Any) -> Any:
    """Give what of a request's params says what is wanted: not who asks, nor how the answer is to travel."""
    if method in _OPENING or not isinstance(params, dict):
        return None
    kept = {name: value for name, value in params.items() if name != "_meta"}
    return kept or None


def digest(value: Any) -> str:
    """Give a digest of a JSON value that does not depend on the order of members."""
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def progress_token(request: dict[str, Any]) -> RequestId | None:
    """Give the token under which a request wants to hear of its progress."""
    token: RequestId | None = member(member(request, "params"), "_meta").get("progressToken")
    return token


def member(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Give a member that should be an object; if it is none, one without members."""
    found = value.get(name)
    return found if isinstance(found, dict) else _NOTHING


def label(message: dict[str, Any]) -> str:
    """Say in a few words what a request is about: its method, and the tool, prompt or resource it names."""
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
    """Give the client's requests ids that none other has, where HTTP let several use the same at once."""
    if all(entry.exchange is None for entry in recording.entries):
        return recording
    numbers = _Numbers()
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


class _Numbers:
    """Counts the client's requests, and knows them again."""

    def __init__(self) -> None:
        self._last = 0
        self._by_exchange: dict[tuple[int | None, RequestId], int] = {}
        self._by_id: dict[RequestId, int] = {}

    def of(self, sender: Side, message: Any, exchange: int | None) -> Any:
        """Give a message with the numbers in place of ids."""
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
