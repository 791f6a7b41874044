"""Who may do what: scopes, which of them include others, and the answer to those who may not.

A scope is a word that an authorization server puts into a token; a server says which words a tool, resource or prompt
needs. Nothing here knows tokens or how they are checked: a ``Principal`` has scopes, wherever they come from.
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
# Whoever is at the other end of a process's own pipes, or inside it, has started it: it acts for its owner.
_OWN = frozenset({STDIO.transport, MEMORY.transport})


class Denied(Struct, frozen=True, kw_only=True):
    """Why somebody is not let in: the HTTP status, a sentence, and what the challenge is to say."""

    status: int
    message: str
    #: An error code of RFC 6750, if something was brought and did not do.
    error: str | None = None
    #: All scopes that are needed.
    scopes: tuple[str, ...] = ()


class Hierarchy:
    """Which scopes include others: ``{"files:write": ["files:read"]}`` says that who may write may read."""

    __slots__ = ("_includes",)

    def __init__(self, includes: Mapping[str, Iterable[str]] = _NOTHING) -> None:
        """Read the table once; what is included may include more.

        Raises:
            TypeError: a scope is not written as scopes are.
        """
        self._includes = {
            broad: read_scopes(narrow, f"implied_scopes[{broad!r}]") for broad, narrow in dict(includes).items()
        }

    def covers(self, granted: frozenset[str], needed: Iterable[str]) -> bool:
        """Tell whether everything needed was granted, by its name or by that of a broader scope."""
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
    """Tell whether a caller has the scopes; who is not known has none, unless nobody but the owner can be there."""
    return origin_may(caller.origin, needed, hierarchy)


def origin_may(origin: Origin, needed: Iterable[str], hierarchy: Hierarchy) -> bool:
    """Tell the same of whoever sent a message."""
    principal = origin.principal
    if principal is None:
        return origin.transport in _OWN
    return hierarchy.covers(principal.scopes, needed)


def read_scopes(given: str | Iterable[str] | None, what: str) -> tuple[str, ...]:
    """Read a list of scopes, or a text with spaces between them; each stands once, in the order given.

    Raises:
        TypeError: one is not written as scopes are.
    """
    scopes = tuple(dict.fromkeys(given.split() if isinstance(given, str) else given or ()))
    for scope in scopes:
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
            raise TypeError(f"{what}: {scope!r} is no scope: a scope is a word of ASCII letters, digits and signs")
    return scopes
