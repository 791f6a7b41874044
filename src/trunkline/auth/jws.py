"""Signed tokens as such: their header, and what is in them if a signature holds. What they say is others' to judge."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

__all__ = ["payload_of", "read_header"]

H = TypeVar("H", bound=Struct)
_LONGEST_HEADER = 16 * 1024


def payload_of(token: str, algorithm: str, key: Any) -> bytes | None:
    """Give what a token has in it if its signature holds, made so and with this key; else None."""
    from joserfc.errors import JoseError
    from joserfc.jws import JWSRegistry, deserialize_compact

    # Providers put headers of their own into tokens; what is not known is not looked at.
    registry = JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    # Certificates and keys make headers longer than the library expects; whoever calls has bounded the whole.
    registry.max_header_length = _LONGEST_HEADER
    try:
        return deserialize_compact(token, key, registry=registry).payload
    except (JoseError, ValueError, TypeError):
        return None


def read_header(token: str, kind: type[H]) -> H | None:
    """Read the header of a token; None if it is no JWT in its compact form, or the header is of another shape."""
    import binascii
    from base64 import urlsafe_b64decode

    first, *rest = token.split(".")
    if len(rest) != 2:
        return None
    try:
        return msgspec.json.decode(urlsafe_b64decode(first + "=" * (-len(first) % 4)), type=kind)
    except (ValueError, binascii.Error, RecursionError):
        # msgspec's own error and that of text that is not UTF-8 are kinds of ValueError.
        return None
