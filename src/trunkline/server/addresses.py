"""Addresses to listen at as people type them, and how what listens there is called."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Address", "read_address", "shown_url"]

_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):)?(?P<port>[0-9]{1,5})")
# What a server is bound to when it listens on every address; it is called by another name.
_EVERYWHERE = ("0.0.0.0", "[::]")


class Address(NamedTuple):
    """What was typed; what was not is left to whoever serves."""

    host: str | None = None
    port: int | None = None


def read_address(text: str) -> Address | None:
    """Read ``[HOST:]PORT``, or nothing; None if it is neither."""
    if not text:
        return Address()
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return None
    host = found["host"]
    return Address(None if host is None else host.strip("[]"), int(found["port"]))


def shown_url(origin: str, path: str) -> tuple[str, str]:
    """Give the URL by which this machine calls an address, and a remark if others can, too."""
    scheme, _, where = origin.partition("://")
    host, _, port = where.rpartition(":")
    here = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    everywhere = " (and every other address of this machine)" if host in _EVERYWHERE else ""
    return f"{scheme}://{here}:{port}{path}", everywhere
