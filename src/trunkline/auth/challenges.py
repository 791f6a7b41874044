"""The ``WWW-Authenticate`` header that a resource server sends when it rejects a request.

RFC 6750, section 3, with the pointer of RFC 9728, section 5.1, to the metadata that names the authorization server.
"""

from __future__ import annotations

import re

__all__ = ["write_challenge"]

# RFC 6750, 3: the characters a description may not contain; each is replaced by one that it may.
_UNSPEAKABLE = re.compile(r"[^\x20-\x21\x23-\x5b\x5d-\x7e]")
_MOST = 300


def write_challenge(
    scheme: str,
    *,
    metadata: str | None = None,
    scopes: tuple[str, ...] = (),
    error: str | None = None,
    description: str | None = None,
    more: tuple[tuple[str, str], ...] = (),
) -> str:
    """Format a challenge; every value is quoted, so that no value can become a parameter of its own."""
    given = (
        ("error", error),
        ("error_description", description if error is not None else None),
        ("scope", " ".join(scopes) or None),
        ("resource_metadata", metadata),
        *more,
    )
    written = ", ".join(f'{name}="{_plain(value)}"' for name, value in given if value is not None)
    return f"{scheme} {written}" if written else scheme


def _plain(value: str) -> str:
    return _UNSPEAKABLE.sub("'", value[:_MOST])
