"""What every link needs beside its own I/O, off the common path: marks for bytes that are no message, both ways.

The common path calls ``jsonrpc.decode`` and ``jsonrpc.encode`` straight; these functions are for what they cannot do.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from trunkline.protocol.jsonrpc import ErrorResponse, Malformed, Message, Outbound, Response, encode
from trunkline.protocol.lines import TooLong
from trunkline.types import ErrorObject

__all__ = ["encode_each", "refuse", "says_enough"]

_HOW_TO_RAISE_IT = "raise it with limits=Limits(message_bytes=...), or with messageBytes in a host's entry"

log = logging.getLogger("trunkline.transports")


def refuse(line: TooLong) -> Malformed:
    """Return the error for a message too long to be read: what to answer, or what the request it answers fails with."""
    from trunkline.protocol.glimpses import glimpse

    seen = glimpse(line.head, line.tail)
    if seen.kind == "answer":
        text = f"longer than {line.max_bytes} bytes, the limit message_bytes: {_HOW_TO_RAISE_IT}"
        return Malformed(-32600, text, seen.id, response=True, too_long=True)
    return Malformed(-32700, f"Parse error: a line longer than {line.max_bytes} bytes", seen.id)


def says_enough(head: bytes) -> bool:
    """Tell whether the end of a line too long has nothing to add to its beginning."""
    from trunkline.protocol.glimpses import glimpse

    return not glimpse(head).open


def encode_each(batch: Sequence[Outbound]) -> list[bytes]:
    """Encode what can be encoded when a batch as a whole cannot: a bad answer becomes an error, all else is dropped."""
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
