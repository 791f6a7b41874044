"""Errors of encoding and decoding, shared by the links: a message too long to read, one that cannot be encoded."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from trunkline.protocol.jsonrpc import ErrorResponse, InvalidMessage, Message, Outbound, Response, encode
from trunkline.protocol.line_framing import OversizedLine
from trunkline.types import ErrorObject

__all__ = ["encode_each", "is_identified", "too_long_error"]

_HOW_TO_RAISE_IT = "raise it with limits=Limits(message_bytes=...), or with messageBytes in a host's entry"

log = logging.getLogger("trunkline.transports")


def too_long_error(line: OversizedLine) -> InvalidMessage:
    """Return the error for an oversized message: the answer to it, or the failure of the request it answers."""
    from trunkline.protocol.partial_message import inspect_partial

    seen = inspect_partial(line.head, line.tail)
    if seen.kind == "answer":
        text = f"longer than {line.max_bytes} bytes, the limit message_bytes: {_HOW_TO_RAISE_IT}"
        return InvalidMessage(-32600, text, seen.id, response=True, too_long=True)
    return InvalidMessage(-32700, f"Parse error: a line longer than {line.max_bytes} bytes", seen.id)


def is_identified(head: bytes) -> bool:
    """Return whether the beginning of an oversized line identifies the message, so that its end is not needed."""
    from trunkline.protocol.partial_message import inspect_partial

    return not inspect_partial(head).open


def encode_each(batch: Sequence[Outbound]) -> list[bytes]:
    """Encode a batch message by message: an answer that cannot be encoded becomes an error, others are dropped."""
    encoded: list[bytes] = []
    for outbound in batch:
        message = outbound.message
        if isinstance(message, tuple):
            encoded.append(b"[" + b",".join(filter(None, map(_encode_one, message))) + b"]")
        elif line := _encode_one(message):
            encoded.append(line)
    return encoded


def _encode_one(message: Message) -> bytes | None:
    try:
        return encode(message)
    except Exception:
        # An encoder runs code of the user's types, and sending never raises.
        log.exception("a %s cannot be encoded", type(message).__name__)
        if not isinstance(message, Response):
            return None
        error = ErrorObject(code=-32603, message="Internal error: the result cannot be encoded")
        return encode(ErrorResponse(message.id, error))
