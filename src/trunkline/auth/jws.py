"""Signed tokens: their header, and their payload if the signature is valid. The claims are judged elsewhere."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

__all__ = ["payload_of", "read_header"]

H = TypeVar("H", bound=Struct)
_LONGEST_HEADER = 16 * 1024


def payload_of(token: str, algorithm: str, key: Any) -> bytes | None:
    """Return the payload of a token if its signature by this algorithm and key is valid; else None."""
    from joserfc.errors import JoseError
    from joserfc.jws import JWSRegistry, deserialize_compact

    # Providers add header parameters of their own; unknown ones are ignored.
    registry = JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    # Certificates and keys make headers longer than the library expects; the caller has bounded the whole token.
    registry.max_header_length = _LONGEST_HEADER
    try:
        return deserialize_compact(token, key, registry=registry).payload
    except (JoseError, ValueError, TypeError):
        return None


def read_header(token: str, kind: type[H]) -> H | None:
    """Decode the header of a token; return None if it is not a compact JWT, or the header has another shape."""
    import binascii
    from base64 import urlsafe_b64decode

    first, *rest = token.split(".")
    if len(rest) != 2:
        return None
    try:
        return msgspec.json.decode(urlsafe_b64decode(first + "=" * (-len(first) % 4)), type=kind)
    except (ValueError, binascii.Error, RecursionError):
        # msgspec's own error and UnicodeDecodeError are subclasses of ValueError.
        return None
