"""A session with the host, and the state that belongs to it alone: grants, taint, budget and connections.

A server sees the calls made to it, never a session or the answers of other servers.

The **taint** of a session is where untrusted text in it came from, and which acts that text might influence. A result,
a resource, a prompt or an error of an untrusted server may contain instructions, and the model that reads it next may
follow them. So a session remembers where such text came from, and an act elsewhere is *tainted*: the policy then asks
before anything is changed, even if a rule would allow it (``policy/policy.py``). There are two kinds of source:

- **a server** that is not trusted. Its text does not taint acts at the same server: it could have done those anyway.
- **a tool that reaches the outside world** by its own hint (``openWorldHint``), even of a trusted server. What it
  returns (an issue, a page, a mail) was written by third parties, so it taints writing at the same server as well: an
  issue must not make an assistant publish private data beside it. Reading there stays untainted, and so does the tool
  itself.

Hints can only add taint here: a source without ``openWorldHint`` counts as its server does, and the taint of the second
kind is lifted only by a hint of the same server that the act is read-only. No I/O, and the clock comes in as an
argument.

``ServerResults`` keeps earlier results of a server in a session, as context for its own sampling requests. A server may
ask for context (``includeContext``). It gets none unless a person says so, and then only its own results: they are kept
by session and by server, and no server gets those of another. The latest few are kept, each cut to a maximum length;
they are dropped with the session.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET

import trunkline.types as t
from trunkline.errors import TooManyRequests
from trunkline.host.authorization.grants import SessionGrants
from trunkline.host.authorization.policy.decisions import ToolHints
from trunkline.host.upstreams.catalog.names import item_id
from trunkline.host.upstreams.routing.channels import ConnectionNeeds
from trunkline.host.upstreams.routing.connection_pool import ConnectionPool, Credentials
from trunkline.protocol.caller import Principal

__all__ = ["CallBudget", "HostSession", "ServerResults", "Taint"]

# A session with more sources than this is tainted for every server.
_MOST_SOURCES = 256
_TOO_MANY = "/many"
_NO_HINTS = ToolHints()
_MOST_RESULTS = 8  # The last calls of a server are what its request is about.
_LONGEST = 4000  # About 1000 tokens for each result.
_MOST_SERVERS = 64  # More servers than one session uses.


class Taint:
    """The sources of untrusted text in one session; the set only grows."""

    __slots__ = ("enabled", "sources")

    def __init__(self, *, enabled: bool = True) -> None:
        """Start clean; ``enabled`` is False where requests do not form a conversation, and then it stays clean."""
        self.enabled: bool = enabled
        #: Names of servers, and ids (``server/tool``) of open-world tools.
        self.sources: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Return True if the session is tainted."""
        return bool(self.sources)

    def __repr__(self) -> str:
        """List the sources."""
        return f"Taint({', '.join(sorted(self.sources))})"

    def add_source(self, server: str, name: str, *, trusted: bool, hints: ToolHints = _NO_HINTS) -> None:
        """Add the text of a server as a source: of its tool, prompt or resource with this name."""
        if not self.enabled:
            return
        found = set() if trusted else {server}
        if hints.open_world is True:
            found.add(item_id(server, name))
        if found <= self.sources:
            return
        known = self.sources | found
        self.sources = known if len(known) <= _MOST_SOURCES else self.sources | {_TOO_MANY}

    def affects(self, server: str, name: str, *, hints: ToolHints = _NO_HINTS) -> bool:
        """Return True if the untrusted text might influence an act at this server."""
        if self.sources <= {server}:
            return False
        own, prefix = item_id(server, name), item_id(server, "")
        return any(
            source not in (server, own) and not (hints.read_only is True and source.startswith(prefix))
            for source in self.sources
        )

    def describe_sources(self, server: str, name: str) -> str:
        """Return the sources that taint an act, as a text."""
        return ", ".join(sorted(self.sources - {server, item_id(server, name)}))


class CallBudget:
    """The call limits of a session: concurrent calls, and calls per minute as a token bucket."""

    __slots__ = (
        *("_at", "_left", "_now", "_per_second", "burst", "concurrent", "counted_elsewhere", "in_flight", "per_minute"),
    )

    def __init__(self, now: Callable[[], float], *, per_minute: float | None, concurrent: int) -> None:
        """Start with a full bucket: one minute of calls."""
        self._now = now
        self.per_minute: float | None = per_minute
        self._per_second = None if per_minute is None else per_minute / 60.0
        self.burst: float = 0.0 if per_minute is None else max(1.0, per_minute)
        self._left = self.burst
        self._at = now()
        self.concurrent: int = concurrent
        self.in_flight: int = 0
        #: Whether the calls per minute are counted for all workers of a gateway, in its store.
        self.counted_elsewhere: bool = False

    def enter(self) -> None:
        """Start a call.

        Raises:
            TooManyRequests: the caller has too many calls in flight, or made too many in the last minute.
        """
        if self.in_flight >= self.concurrent:
            raise TooManyRequests(
                f"Too many calls at once: the limit is {self.concurrent} for each caller. "
                "Wait until one of them has ended, then try again",
                data={"limit": "concurrent", "allowed": self.concurrent, "retryAfter": 1},
            )
        if not self.counted_elsewhere and (wait := self._wait()) > 0:
            raise self.too_many(wait)
        self.in_flight += 1

    def too_many(self, wait: float) -> TooManyRequests:
        """Return the error for a caller that must wait so many seconds."""
        seconds = math.ceil(wait)
        return TooManyRequests(
            f"Too many calls: the limit is {self.per_minute:g} a minute for each caller; try again in {seconds} s",
            data={"limit": "perMinute", "allowed": self.per_minute, "retryAfter": seconds},
        )

    def leave(self) -> None:
        """End a call."""
        self.in_flight -= 1

    def _wait(self) -> float:
        """Use one call of the budget and return 0, or return the seconds until one is available."""
        if self._per_second is None:
            return 0.0
        now = self._now()
        self._left = min(self.burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1.0:
            return (1.0 - self._left) / self._per_second
        self._left -= 1.0
        return 0.0


class ServerResults:
    """The latest results of each server in one session."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        """Start with none."""
        self._kept: dict[str, deque[str]] = {}

    def keep(self, server: str, name: str, result: Any) -> None:
        """Keep the result of a tool call, a read or a prompt; one without text is not kept."""
        text = _text(result)
        if not text:
            return
        kept = self._kept.pop(server, None) or deque(maxlen=_MOST_RESULTS)
        # Ordered by last use, so that the least recently used server is dropped first.
        self._kept[server] = kept
        if len(self._kept) > _MOST_SERVERS:
            del self._kept[next(iter(self._kept))]
        cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} […]"
        kept.append(f"{name}:\n{cut}")

    def text(self, server: str) -> str:
        """Return the results of one server, oldest first; empty if there are none."""
        return "\n\n".join(self._kept.get(server, ()))


def _text(result: Any) -> str:
    if isinstance(result, t.CallToolResult):
        texts = [block.text for block in result.content if isinstance(block, t.TextContent)]
        structured = result.structured_content
        if not texts and structured is not UNSET and structured is not None:
            texts = [msgspec.json.encode(structured).decode()]
        return "\n".join(texts)
    if isinstance(result, t.ReadResourceResult):
        return "\n".join(each.text for each in result.contents if each.text is not None)
    if isinstance(result, t.GetPromptResult):
        blocks = [message.content for message in result.messages]
        return "\n".join(block.text for block in blocks if isinstance(block, t.TextContent))
    return ""


class HostSession:
    """The state of one session."""

    __slots__ = (
        *("budget", "found", "grants", "id", "connections", "log_level", "principal", "profile", "results"),
        *("covers", "shared", "shared_key", "taint", "used_at"),
    )

    def __init__(
        self,
        *,
        now: Callable[[], float],
        principal: Principal | None = None,
        profile: str | None = None,
        budget: CallBudget | None = None,
        credentials: Credentials | None = None,
        conversation: bool = True,
        covers: str | None = None,
    ) -> None:
        """Create a session; ``conversation`` is False where its requests have nothing in common.

        ``covers`` says whose requests those are, if they may be of several clients.
        """
        self.covers = covers
        self.id: str = os.urandom(8).hex()
        #: Names the session at every worker of a gateway; empty if there is one process.
        self.shared_key: str = ""
        #: Keeps it the same at every worker, see ``SharedSession`` of the gateway; None if there is one process.
        self.shared: Any = None
        self.principal = principal
        self.profile = profile
        self.grants: SessionGrants = SessionGrants()
        #: The servers whose untrusted content entered the session.
        self.taint: Taint = Taint(enabled=conversation)
        #: Recent results of each server, for its own sampling requests that ask for context.
        self.results: ServerResults = ServerResults()
        #: The wire names of tools found by tool search through the gateway, the latest last.
        self.found: dict[str, None] = {}
        self.connections: ConnectionPool = ConnectionPool(now, credentials)
        self.budget: CallBudget = budget or CallBudget(now, per_minute=None, concurrent=1024)
        #: The log messages a handshake client asked for by ``logging/setLevel``.
        self.log_level: t.LoggingLevel | None = None
        self.used_at: float = now()

    def share(self, key: str, *, is_session: bool) -> None:
        """Share this session with other workers, which identify it by the same key."""
        self.id = key[:16]
        self.shared_key = key

        def process_key(needs: ConnectionNeeds, own_roots: bool) -> str | None:
            # Requests without a session may be of different clients, and a server asks for the roots of its client
            # once: no other worker may use the process.
            if needs.roots and not own_roots and not is_session:
                return None
            return hashlib.sha256(msgspec.json.encode([key, needs])).hexdigest()

        self.connections.process_key = process_key

    @property
    def subject(self) -> str | None:
        """The subject of the principal, for rules and the audit trail."""
        return None if self.principal is None else self.principal.subject

    @property
    def tainted(self) -> bool:
        """Whether untrusted content entered the session, from any server."""
        return bool(self.taint)

    async def aclose(self) -> None:
        """Close its connections."""
        await self.connections.aclose()
