"""The taint of a conversation: whose words came into it that nobody vouches for, and which acts they might steer.

A result, a text of a resource, a prompt or an error of a server that is not trusted may hold instructions, and whoever
reads it next may follow them. So a session remembers where such words came from, and an act elsewhere is *tainted*: the
policy then asks before anything is changed, whatever would allow it (``policy/policy.py``).

Two kinds of source are told apart:

- **a server** that is not trusted. Its words do not taint acts at itself: it could have done those without asking.
- **a tool that reaches out into the world** by its own word (``openWorldHint``), of a trusted server too. What it
  brings (an issue, a page, a mail) is a stranger's and not the server's, so it taints writing at the same server as
  well: an issue must not make an assistant publish what is private beside it. Reading there goes on, and so does the
  tool itself.

Hints only raise here: a source that says nothing of the world counts as its server does, and what the second kind adds
is taken back by nothing but a hint of the same server that the act only reads. It does no I/O and knows no clock.
"""

from __future__ import annotations

from trunkline.host.catalog.names import id_of
from trunkline.host.policy.acts import Annotations

__all__ = ["Taint"]

# A conversation that hears more strangers than this is tainted for everybody.
_MOST_SOURCES = 256
_TOO_MANY = "/many"
_NO_HINTS = Annotations()


class Taint:
    """Where untrusted words in one conversation came from; it only grows."""

    __slots__ = ("kept", "sources")

    def __init__(self, *, kept: bool = True) -> None:
        """Start clean; ``kept`` is false where requests are no conversation, and then it stays clean."""
        self.kept = kept
        #: Names of servers, and ids (``server/tool``) of tools that reach out.
        self.sources: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Tell whether anything untrusted came in."""
        return bool(self.sources)

    def __repr__(self) -> str:
        """Name the sources."""
        return f"Taint({', '.join(sorted(self.sources))})"

    def take(self, server: str, name: str, *, trusted: bool, hints: Annotations = _NO_HINTS) -> None:
        """Note that words of a server came in: of its tool, prompt or resource of this name."""
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
        """Tell whether what came in might steer an act at this server."""
        if not self.sources:
            return False
        own, prefix = id_of(server, name), id_of(server, "")
        return any(
            source not in (server, own) and not (hints.read_only is True and source.startswith(prefix))
            for source in self.sources
        )

    def told(self, server: str, name: str) -> str:
        """Name, for people, where the words came from that taint an act."""
        return ", ".join(sorted(self.sources - {server, id_of(server, name)}))
