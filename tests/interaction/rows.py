"""What a behaviour of the specification is to the tests: a row with an id, its place there and its reach.

A row is written on its test, with ``behaviour``; what holds is the name of the test.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec

from msgspec import Struct

__all__ = [
    "ALL",
    "ANYWHERE",
    "BATCHING",
    "ELICITING",
    "EVERYWHERE",
    "HANDSHAKE",
    "IN_MEMORY",
    "ONE_LINK",
    "ON_HTTP",
    "ON_PAIR",
    "ON_PIPES",
    "SESSIONS",
    "SINCE_2025_03",
    "SINCE_2025_06",
    "SINCE_2025_11",
    "STATELESS",
    "UNTIL_2025_06",
    "URL_COMPLETING",
    "WITHOUT_BATCHES",
    "Row",
    "behaviour",
    "http_behaviour",
    "sse_behaviour",
    "stdio_behaviour",
]

ALL = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
HANDSHAKE = ALL[:4]
STATELESS = ALL[4:]
#: The revisions in which Streamable HTTP may have sessions.
SESSIONS = ALL[1:4]
SINCE_2025_03 = ALL[1:]
SINCE_2025_06 = ALL[2:]
SINCE_2025_11 = ALL[3:]
UNTIL_2025_06 = ALL[:3]
#: The revisions with arrays of messages.
BATCHING = ALL[1:2]
WITHOUT_BATCHES = ALL[:1] + ALL[2:]
#: The revisions in which a server sends ``elicitation/create`` as a request.
ELICITING = ALL[2:4]
#: The revisions with a notification that a page was finished.
URL_COMPLETING = ALL[3:4]

IN_MEMORY = ("memory",)
ON_PIPES = ("stdio",)
ON_HTTP = ("http",)
ON_PAIR = ("sse",)
#: Where an answer comes with other messages, out of order or with a status of its own.
ANYWHERE = ("memory", "http", "sse")
#: Where all messages come on one link, in order.
ONE_LINK = ("memory", "sse")
EVERYWHERE = ("memory", "stdio", "http", "sse")

P = ParamSpec("P")


class Row(Struct, frozen=True):
    """One behaviour: where the specification says it, in which revisions, and over which transports it is shown."""

    #: ``area.short-name``.
    id: str
    #: A revision that says it, and the page and heading there.
    spec: str
    revisions: tuple[str, ...]
    transports: tuple[str, ...]

    def legs(self) -> list[tuple[str, str]]:
        """Return the pairs of transport and revision to run."""
        return [(transport, revision) for transport in self.transports for revision in self._on(transport)]

    def _on(self, transport: str) -> Sequence[str]:
        """Return the revisions to run over a transport: all of them over the row's own, a few over the others."""
        newest = [name for name in (HANDSHAKE[-1], STATELESS[-1]) if name in self.revisions] or [self.revisions[-1]]
        if transport == "stdio":
            return newest
        if transport == "http" and self.transports != ON_HTTP:
            return [name for name in newest if name in SINCE_2025_03]
        if transport == "sse" and self.transports != ON_PAIR:
            # Newer clients may come over the old transport; where pipes are worth a run, so is that.
            also = [name for name in newest if name in HANDSHAKE[1:] and "stdio" in self.transports]
            return [name for name in self.revisions if name == ALL[0] or name in also]
        return self.revisions


def behaviour(
    id: str, spec: str, revisions: tuple[str, ...] = ALL, transports: tuple[str, ...] = IN_MEMORY
) -> Callable[[Callable[P, Coroutine[Any, Any, None]]], Callable[P, Coroutine[Any, Any, None]]]:
    """Mark a coroutine function as the test of a row; it runs once for each leg, with a ``wire``."""
    row = Row(id, spec, revisions, transports)

    def mark(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, Coroutine[Any, Any, None]]:
        test.row = row  # type: ignore[attr-defined]
        return test

    return mark


http_behaviour = functools.partial(behaviour, transports=ON_HTTP)
sse_behaviour = functools.partial(behaviour, transports=ON_PAIR)
stdio_behaviour = functools.partial(behaviour, transports=ON_PIPES)
