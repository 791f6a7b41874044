"""Bytes to JSON-RPC messages and back: the one strict reader and the one writer of the package.

``decode`` never raises. What it cannot accept is returned as an ``InvalidMessage`` that has the error to answer with,
so that one bad message never ends a connection. Params and results stay undecoded (``msgspec.Raw``) until their type is
known.

msgspec rejects most bad input by itself (NaN, trailing data, control characters, fractions as ids). Three things it
accepts are rejected here, each behind a cheap test for suspicion so that the common message pays next to nothing:
invalid UTF-8 in parts it skips, duplicate members of the envelope, and nesting beyond the limit.

Batches: validated as a whole, and answered with one array when the last answer is ready.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from trunkline.errors import InsufficientScope
from trunkline.protocol.limits import Limits
from trunkline.types import ErrorObject, RequestId

__all__ = [
    "Batch",
    "BatchReply",
    "ErrorResponse",
    "Incoming",
    "InvalidMessage",
    "Message",
    "Notification",
    "Outbound",
    "Request",
    "Response",
    "batch_fault",
    "decode",
    "encode",
    "requests_of",
]


class Request(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="jsonrpc", tag="2.0"):
    """A call that must be answered; params are raw bytes when read, anything encodable when written."""

    id: RequestId
    method: str
    params: Any = None


class Notification(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="jsonrpc", tag="2.0"):
    """A one-way message."""

    method: str
    params: Any = None


class Response(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """The response to a request that succeeded."""

    id: RequestId
    result: Any


class ErrorResponse(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """The response to a request that failed; the id is null when it could not be read."""

    id: RequestId | None
    error: ErrorObject


Message = Request | Notification | Response | ErrorResponse


class InvalidMessage(Struct, frozen=True, gc=False):
    """An invalid message: the error to answer with, and the id if it could be read.

    ``response`` says that it was meant as a response to us; a response is never answered. ``too_long`` says that it was
    not read at all, being over the limit.
    """

    code: int
    message: str
    id: RequestId | None = None
    response: bool = False
    too_long: bool = False


class Batch(Struct, frozen=True, gc=False):
    """Several messages that arrived as one array."""

    items: tuple[Message | InvalidMessage, ...]


Incoming = Message | InvalidMessage | Batch


class Outbound(Struct, frozen=True, gc=False):
    """A message to be sent.

    ``about`` is the id of the other side's request it belongs to, if any. A tuple is the answers to a batch and leaves
    as one array. The other fields are for links over HTTP, which say in the head of a request or response what others
    say in the message alone.
    """

    message: Message | tuple[Message, ...]
    about: RequestId | None = None
    #: Of a request of ours: all headers that repeat its content, where only its sender can build them.
    headers: Mapping[str, str] | None = None
    #: Of a cancellation: the request of ours that it withdraws.
    cancels: RequestId | None = None
    #: Of an error response: the scopes that the caller's token lacks, if that is the error.
    insufficient_scope: InsufficientScope | None = None


class _Envelope(Struct):
    jsonrpc: Literal["2.0"]
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: ErrorObject | UnsetType = UNSET


class _Payloads(Struct):
    """The members that may be large, undecoded."""

    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Loose(Struct):
    id: Any = UNSET
    method: Any = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_DEFAULT_LIMITS = Limits()
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_MEMBERS = frozenset(("jsonrpc", "id", "method", "params", "result", "error"))
_envelope_decoder = msgspec.json.Decoder(_Envelope)
_payload_decoder = msgspec.json.Decoder(_Payloads)
_encode = msgspec.json.Encoder().encode
_REQUEST_SIZE = len(b'{"jsonrpc":"2.0","id":,"method":"","params":}')
# The numbers of n digits are those from ``_POWERS[n - 1]`` to below ``_POWERS[n]``; zero has a digit of its own.
_MAX_DIGITS = 18
_POWERS = (0, *(10**digits for digits in range(1, _MAX_DIGITS)))
_RESPONSE_SIZE = len(b'{"jsonrpc":"2.0","id":,"result":}')
# Numbers: ``b"\n" in data`` first fails to read the bytes as one, and that costs as much as decoding a small message.
_LINE_FEED, _CARRIAGE_RETURN = 10, 13
_ONE_KIND = bytes.maketrans(b"[]", b"{}")
_STEPS = bytes.maketrans(b"{}", b"\x01\xff")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
_PEELS = 16  # Nesting levels peeled one by one before the exact count; nearly all messages have fewer.
# Takes the place of a value that was cut out; none of its prefixes is also a suffix, so it cannot overlap itself. It is
# chosen at random by each process: a message that contained it on purpose would be read whole by the slow parser.
_MARK = b"1" + bytes(50 + byte % 8 for byte in os.urandom(15))
# Strings are cut out of a message in parts: the pieces between them take ten times the memory of the message.
_PART = 64 * 1024
# Up to this size it is cheaper to search the whole message for suspicion than to cut the large member out first.
_SMALL = 4096


# --- reading ---------------------------------------------------------------------------------------------------------


def decode(data: bytes, limits: Limits = _DEFAULT_LIMITS) -> Incoming:
    """Decode one message, strictly; an error is returned, never raised."""
    try:
        if not data.isascii():
            str(data, "utf-8")
        envelope = _envelope_decoder.decode(data)
    except _UNREADABLE as error:
        return _explain_failure(data, error, limits)
    # A level of nesting takes at least two bytes.
    if len(data) > 2 * limits.depth and _too_deep(data, limits.depth):
        text = f"Parse error: nested deeper than {limits.depth}"
        return InvalidMessage(-32700, text, _valid_id(envelope.id), response=_is_response(envelope))
    id, method, params = envelope.id, envelope.method, envelope.params
    if method is not UNSET and params is not UNSET and type(id) is int:
        digits = len(data) - _REQUEST_SIZE - len(method) - len(params)
        if 0 < digits < _MAX_DIGITS and _POWERS[digits - 1] <= id < _POWERS[digits]:
            # The usual request is exactly as long as these members require: there is nothing else in it.
            return Request(id, method, params)
    if len(data) != _least_size(envelope) and (repeated := _repeated_members(data, envelope)):
        text = f"Invalid request: given twice in one message: {', '.join(sorted(repeated))}"
        valid_id = None if "id" in repeated else _valid_id(id)
        return InvalidMessage(-32600, text, valid_id, response=_is_response(envelope))
    if method is UNSET:
        return _read_response(envelope)
    if envelope.result is not UNSET or envelope.error is not UNSET:
        return InvalidMessage(-32600, "Invalid request: a request has no result or error", _valid_id(envelope.id))
    given = None if params is UNSET else params
    if id is UNSET:
        return Notification(method, given)
    if id is None:
        return InvalidMessage(-32600, "Invalid request: id must be a string or an integer, not null")
    return Request(id, method, given)


def _read_response(envelope: _Envelope) -> Message | InvalidMessage:
    """Interpret a message without a method: it can only be a response."""
    if envelope.result is UNSET and envelope.error is UNSET:
        return InvalidMessage(-32600, "Invalid request: neither method, result nor error", _valid_id(envelope.id))
    if envelope.result is not UNSET and envelope.error is not UNSET:
        return InvalidMessage(-32600, "Invalid response: both result and error", _valid_id(envelope.id), response=True)
    if envelope.error is not UNSET:
        return ErrorResponse(_valid_id(envelope.id), envelope.error)
    if envelope.id is UNSET or envelope.id is None:
        return InvalidMessage(-32600, "Invalid response: a result without an id", response=True)
    return Response(envelope.id, envelope.result)


def _is_response(message: _Envelope | _Loose) -> bool:
    """Return True if a rejected message was meant as a response to us."""
    return message.method is UNSET and (message.result is not UNSET or message.error is not UNSET)


def _valid_id(id: object) -> RequestId | None:
    return id if isinstance(id, int | str) and not isinstance(id, bool) else None


def _explain_failure(data: bytes, error: Exception, limits: Limits) -> Incoming:
    """Determine the error for bytes that are not one message: a batch, bad JSON, or a bad envelope."""
    if not isinstance(error, msgspec.ValidationError):
        text = f"Parse error: {_reason(error)}"
        return _too_deep_to_read(data, text) if isinstance(error, RecursionError) else InvalidMessage(-32700, text)
    if data.lstrip(b" \t\r\n").startswith(b"["):
        return _decode_batch(data, limits)
    text = f"Invalid request: {_reason(error)}"
    try:
        # The first error found may stand before a worse one.
        msgspec.json.decode(data, type=Raw)
        loose = msgspec.json.decode(data, type=_Loose)
    except msgspec.ValidationError:
        return InvalidMessage(-32600, text)
    except _UNREADABLE as worse:
        return InvalidMessage(-32700, f"Parse error: {_reason(worse)}")
    return InvalidMessage(-32600, text, _valid_id(loose.id), response=_is_response(loose))


def _too_deep_to_read(data: bytes, text: str) -> InvalidMessage:
    """Check whether it is a response: then the request that waits for it can be failed at once."""
    from trunkline.protocol.partial_message import inspect_partial

    seen = inspect_partial(data[:_SMALL], data[-_SMALL:])
    return (
        InvalidMessage(-32700, text, seen.id, response=True) if seen.kind == "answer" else InvalidMessage(-32700, text)
    )


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)


def _decode_batch(data: bytes, limits: Limits) -> Incoming:
    try:
        parts = msgspec.json.decode(data, type=list[Raw])
    except _UNREADABLE as error:
        return InvalidMessage(-32700, f"Parse error: {_reason(error)}")
    if not parts:
        return InvalidMessage(-32600, "Invalid request: an empty batch")
    if len(parts) > limits.batch:
        return InvalidMessage(-32600, f"Invalid request: a batch of {len(parts)} messages; the limit is {limits.batch}")
    return Batch(tuple(_decode_part(bytes(part), limits) for part in parts))


def _decode_part(data: bytes, limits: Limits) -> Message | InvalidMessage:
    if data.startswith(b"["):
        # Not decoded: arrays nested a thousand deep would be decoded by a function that calls itself for each.
        return InvalidMessage(-32600, "Invalid request: a batch inside a batch")
    incoming = decode(data, limits)
    assert not isinstance(incoming, Batch)
    return incoming


# --- what msgspec accepts --------------------------------------------------------------------------------------------


def _least_size(envelope: _Envelope) -> int:
    """Return the size of the found members without white space or escapes; 0 if it is not a usual message.

    A message of exactly this size contains nothing else, so it has no duplicate members. Most programs write without
    white space, and for them this replaces a search.
    """
    id, method, params = envelope.id, envelope.method, envelope.params
    size = len(str(id)) if type(id) is int else len(id) + 2 if type(id) is str else 0
    if not size:
        return 0
    if method is not UNSET and params is not UNSET:
        return _REQUEST_SIZE + size + len(method) + len(params)
    if envelope.result is not UNSET and method is UNSET:
        return _RESPONSE_SIZE + size + len(envelope.result)
    return 0


def _repeated_members(data: bytes, envelope: _Envelope) -> frozenset[str] | None:
    """Return the duplicate members of the envelope.

    Which one wins would depend on the parser, so a proxy in front could have checked another message than we serve.
    """
    if len(data) > _SMALL:
        data = _without_payload(data, envelope)
    suspicious = (
        data.count(b'"id"') > 1
        or data.count(b'"method"') > 1
        or data.count(b'"params"') > 1
        or data.count(b'"jsonrpc"') > 1
        or data.count(b'"result"') > 1
        or data.count(b'"error"') > 1
        # Escaped lower-case letters: a name such as "\u0069d" is read as "id".
        or data.find(b"\\u006") >= 0
        or data.find(b"\\u007") >= 0
    )
    return _repeated_exactly(_without_payload(data, envelope)) if suspicious else None


def _without_payload(data: bytes, envelope: _Envelope) -> bytes:
    """Replace the largest member's value by the mark, so that the rest is short; only if its place is certain."""
    error: Raw | UnsetType = UNSET if envelope.error is UNSET else _payload_decoder.decode(data).error
    for name, value in (("params", envelope.params), ("result", envelope.result), ("error", error)):
        if value is UNSET:
            continue
        payload = bytes(value)
        named = b'"%s"' % name.encode()
        at = data.find(payload, data.find(named) + len(named))
        if at >= 0:
            cut = data[:at] + _MARK + data[at + len(payload) :]
            if cut.count(_MARK) == 1 and _reads_mark(cut, name):
                return cut
    return data


def _reads_mark(cut: bytes, name: str) -> bool:
    """Return True if the mark is the value of the member.

    The same bytes may occur elsewhere, even across the quotes of two names, and a cut there would hide what is searched
    for. If the one mark is read as the member's value, the place was the member's.
    """
    try:
        value = getattr(_payload_decoder.decode(cut), name)
    except _UNREADABLE:
        return False
    return value is not UNSET and bytes(value) == _MARK


def _repeated_exactly(data: bytes) -> frozenset[str]:
    """Read the names of the outermost object with a parser that shows each of them."""
    import json

    # Numbers stay text: an integer of many digits would raise an exception of its own.
    pairs: list[tuple[str, Any]] = json.loads(data, object_pairs_hook=list, parse_int=str, parse_float=str)
    names = [name for name, _ in pairs if name in _MEMBERS]
    return frozenset(name for name in names if names.count(name) > 1)


def _too_deep(data: bytes, limit: int) -> bool:
    """Return whether a JSON text is nested deeper than the limit.

    If it has more brackets than that, everything but the brackets is removed, and then one level after another.
    """
    if data.count(b"{") + data.count(b"[") <= limit:
        return False
    if data.find(b"\\") >= 0:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # The parser has checked that brackets match, so the two kinds may be merged. Two adjacent quotes are an empty
    # string or separate two strings: without them the same brackets are inside.
    brackets = data.translate(_ONE_KIND, _NOT_STRUCTURE).replace(b'""', b"")
    if b'"' in brackets:
        brackets = _outside_strings(brackets)
    depth = 0
    while brackets and depth < _PEELS:
        brackets = brackets.replace(b"{}", b"")
        depth += 1
    if brackets:
        # Peeling costs one pass per level: deliberate nesting is counted in one slower pass.
        depth += max(accumulate(memoryview(brackets.translate(_STEPS)).cast("b")))
    return depth > limit


def _outside_strings(brackets: bytes) -> bytes:
    """Return the bytes outside of quotes."""
    kept, inside = bytearray(), 0
    for at in range(0, len(brackets), _PART):
        parts = brackets[at : at + _PART].split(b'"')
        kept += b"".join(parts[inside::2])
        inside ^= (len(parts) - 1) & 1
    return bytes(kept)


# --- writing ---------------------------------------------------------------------------------------------------------


def encode(message: Message | tuple[Message, ...]) -> bytes:
    """Encode one message, or the responses to a batch as an array, on one line."""
    data = _encode(message)
    # Raw parts keep their original layout; between values a line break is only white space.
    if _LINE_FEED in data or _CARRIAGE_RETURN in data:
        return data.replace(b"\n", b" ").replace(b"\r", b" ")
    return data


def batch_fault(batch: Batch) -> str | None:
    """Return why a batch is invalid as a whole, or None."""
    answers = sum(isinstance(item, Response | ErrorResponse) for item in batch.items)
    asks = sum(isinstance(item, Request | Notification) for item in batch.items)
    if answers and asks:
        return "Invalid request: a batch holds requests or responses, not both"
    ids = [item.id for item in batch.items if isinstance(item, Request)]
    if len(ids) != len({(type(id), id) for id in ids}):
        return "Invalid request: two requests of a batch have the same id"
    # 2025-03-26, basic/lifecycle: the initialize request MUST NOT be part of a batch.
    if any(isinstance(item, Request) and item.method == "initialize" for item in batch.items):
        return "Invalid request: initialize cannot be part of a batch"
    return None


def requests_of(incoming: Incoming) -> frozenset[RequestId]:
    """Return the ids of the requests in a message or batch."""
    items = incoming.items if isinstance(incoming, Batch) else (incoming,)
    return frozenset(item.id for item in items if isinstance(item, Request))


class BatchReply:
    """Collects the answers to one batch."""

    __slots__ = ("_messages", "_owed")

    def __init__(self, batch: Batch) -> None:
        """Expect an answer to each request; invalid messages are answered at once."""
        self._owed = {item.id for item in batch.items if isinstance(item, Request)}
        self._messages: list[Message] = [
            ErrorResponse(item.id, ErrorObject(code=item.code, message=item.message))
            for item in batch.items
            if isinstance(item, InvalidMessage) and not item.response
        ]

    def add(self, id: RequestId, message: Message | None) -> tuple[Message, ...] | None:
        """Add the answer to a request (None: it was cancelled); return all answers once none is missing."""
        self._owed.discard(id)
        if message is not None:
            self._messages.append(message)
        return self.complete()

    def complete(self) -> tuple[Message, ...] | None:
        """Return the answers if none is missing and there are some."""
        if self._owed or not self._messages:
            return None
        messages, self._messages = tuple(self._messages), []
        return messages
