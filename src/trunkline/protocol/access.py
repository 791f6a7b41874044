"""Scopes: which ones include others, which ones a caller has, and the response to a caller without them.

A scope is a word that an authorization server puts into a token; a server declares which scopes a tool, resource or
prompt requires. Nothing here knows tokens or how they are verified: a ``Principal`` has scopes, wherever they come
from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct

from trunkline.protocol.caller import MEMORY, STDIO, Caller, Origin

__all__ = ["Denied", "Hierarchy", "may", "origin_may", "read_scopes"]

# RFC 6749, 3.3: printable ASCII without space, quote and backslash.
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_NOTHING: Mapping[str, Iterable[str]] = MappingProxyType({})
# The peer on a process's own pipes, or inside the process, has started it: it acts for the owner.
_OWN = frozenset({STDIO.transport, MEMORY.transport})


class Denied(Struct, frozen=True, kw_only=True):
    """Why access is denied: the HTTP status, a message, and the content of the challenge."""

    status: int
    message: str
    #: An error code of RFC 6750, if credentials were presented but not sufficient.
    error: str | None = None
    #: All required scopes.
    scopes: tuple[str, ...] = ()


class Hierarchy:
    """Which scopes include others: in ``{"files:write": ["files:read"]}``, writing includes reading."""

    __slots__ = ("_includes",)

    def __init__(self, includes: Mapping[str, Iterable[str]] = _NOTHING) -> None:
        """Parse the table once; an included scope may include more.

        Raises:
            TypeError: a scope is not valid.
        """
        self._includes = {
            broad: read_scopes(narrow, f"implied_scopes[{broad!r}]") for broad, narrow in dict(includes).items()
        }

    def covers(self, granted: frozenset[str], needed: Iterable[str]) -> bool:
        """Return True if all required scopes were granted, by name or by a broader scope."""
        missing = [scope for scope in needed if scope not in granted]
        if not missing or not self._includes:
            return not missing
        whole, left = set(granted), list(granted)
        while left:
            fresh = [scope for scope in self._includes.get(left.pop(), ()) if scope not in whole]
            whole.update(fresh)
            left.extend(fresh)
        return whole.issuperset(missing)


def may(caller: Caller, needed: Iterable[str], hierarchy: Hierarchy) -> bool:
    """Return True if the caller has the scopes; an anonymous caller has none, unless it can only be the owner."""
    return origin_may(caller.origin, needed, hierarchy)


def origin_may(origin: Origin, needed: Iterable[str], hierarchy: Hierarchy) -> bool:
    """Return True if the sender of a message has the scopes."""
    principal = origin.principal
    if principal is None:
        return origin.transport in _OWN
    return hierarchy.covers(principal.scopes, needed)


def read_scopes(given: str | Iterable[str] | None, what: str) -> tuple[str, ...]:
    """Parse a list of scopes, or a string of scopes separated by spaces; duplicates are removed, the order is kept.

    Raises:
        TypeError: a scope is not valid.
    """
    scopes = tuple(dict.fromkeys(given.split() if isinstance(given, str) else given or ()))
    for scope in scopes:
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
            raise TypeError(f"{what}: {scope!r} is not a scope: use ASCII letters, digits and signs, without spaces")
    return scopes
