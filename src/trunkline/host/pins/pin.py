"""The pin of a definition: a digest that changes whenever anything of it does.

What a user approves is a definition, not a name, so approvals, grants and the audit trail name a pin. It is the
SHA-256 of the definition's canonical JSON: members sorted by name, no white space, UTF-8, every member the protocol
knows (name, title, description, schemas, annotations, icons, execution, ``_meta``). Members it does not know are gone
when a definition is decoded, so they reach nobody and are in no pin.

Canonical JSON is near to RFC 8785: the order of members never matters, and ``1``, ``1.0`` and ``1e0`` are one number,
as they are for JSON Schema and for most programs that re-encode. It differs in two points, where the RFC would lose
something or cost much: an integer beyond 2**53 is written with all its digits, and members are sorted by code point
rather than by UTF-16 unit. Lists keep their order, which may mean something. Unicode is not normalised: two texts that
look alike are two texts.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

import msgspec

import trunkline.types as t

__all__ = ["canonical", "pin_of"]

_encoder = msgspec.json.Encoder(order="sorted")
# How a float that is a whole number is written by the encoder; it may stand in a text as well, which costs time only.
_WHOLE_FLOAT = re.compile(rb"\d\.0(?!\d)|\de\d")


def pin_of(definition: t.Tool | t.Prompt | t.Resource | t.ResourceTemplate, *, most_bytes: int | None = None) -> str:
    """Give the pin of a definition: 64 hexadecimal digits.

    Raises:
        ValueError: it holds a text that is no Unicode, or takes more bytes than that.
        RecursionError: it is nested too deeply.
        TypeError: it holds what JSON cannot.
    """
    written = canonical(definition)
    if most_bytes is not None and len(written) > most_bytes:
        raise ValueError(f"the definition takes {len(written)} bytes; {most_bytes} are allowed")
    return sha256(written).hexdigest()


def canonical(value: Any) -> bytes:
    """Write a value so that equal JSON gives equal bytes; raises as ``pin_of``."""
    written = _encoder.encode(value)
    if _WHOLE_FLOAT.search(written):
        # Decoding keeps integers of any size; only what the encoder has just written is read.
        written = _encoder.encode(_whole(msgspec.json.decode(written)))
    return written


def _whole(value: Any) -> Any:
    """Make every float that is a whole number an integer."""
    if isinstance(value, dict):
        return {name: _whole(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_whole(member) for member in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
