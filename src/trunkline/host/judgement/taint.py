"""The taint of a session: where untrusted text in it came from, and which acts that text might influence.

A result, a resource, a prompt or an error of an untrusted server may contain instructions, and the model that reads it
next may follow them. So a session remembers where such text came from, and an act elsewhere is *tainted*: the policy
then asks before anything is changed, even if a rule would allow it (``policy/policy.py``).

There are two kinds of source:

- **a server** that is not trusted. Its text does not taint acts at the same server: it could have done those anyway.
- **a tool that reaches the outside world** by its own hint (``openWorldHint``), even of a trusted server. What it
  returns (an issue, a page, a mail) was written by third parties, so it taints writing at the same server as well: an
  issue must not make an assistant publish private data beside it. Reading there stays untainted, and so does the tool
  itself.

Hints can only add taint here: a source without ``openWorldHint`` counts as its server does, and the taint of the second
kind is lifted only by a hint of the same server that the act is read-only. No I/O and no clock.
"""

from __future__ import annotations

from trunkline.host.catalog.names import id_of
from trunkline.host.policy.acts import Annotations

__all__ = ["Taint"]

# A session with more sources than this is tainted for every server.
_MOST_SOURCES = 256
_TOO_MANY = "/many"
_NO_HINTS = Annotations()


class Taint:
    """The sources of untrusted text in one session; the set only grows."""

    __slots__ = ("kept", "sources")

    def __init__(self, *, kept: bool = True) -> None:
        """Start clean; ``kept`` is False where requests do not form a conversation, and then it stays clean."""
        self.kept = kept
        #: Names of servers, and ids (``server/tool``) of open-world tools.
        self.sources: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Return True if the session is tainted."""
        return bool(self.sources)

    def __repr__(self) -> str:
        """List the sources."""
        return f"Taint({', '.join(sorted(self.sources))})"

    def take(self, server: str, name: str, *, trusted: bool, hints: Annotations = _NO_HINTS) -> None:
        """Add the text of a server as a source: of its tool, prompt or resource with this name."""
        if not self.kept:
            return
        found = set() if trusted else {server}
        if hints.open_world is True:
            found.add(id_of(server, name))
        if found <= self.sources:
            return
        known = self.sources | found
        self.sources = known if len(known) <= _MOST_SOURCES else self.sources | {_TOO_MANY}

    def reaches(self, server: str, name: str, *, hints: Annotations = _NO_HINTS) -> bool:
        """Return True if the untrusted text might influence an act at this server."""
        if not self.sources:
            return False
        own, prefix = id_of(server, name), id_of(server, "")
        return any(
            source not in (server, own) and not (hints.read_only is True and source.startswith(prefix))
            for source in self.sources
        )

    def told(self, server: str, name: str) -> str:
        """Return the sources that taint an act, as a text."""
        return ", ".join(sorted(self.sources - {server, id_of(server, name)}))
