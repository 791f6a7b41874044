"""What is claimed, and what was found not to hold; and the count of all calls, by the kind of their server."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

__all__ = ["Claims", "Errors", "Row", "Tally"]

_MOST = 50


class Claims:
    """Collects what does not hold; a claim that fails does not keep the others from being looked at."""

    def __init__(self) -> None:
        """Start with nothing found."""
        self.broken: list[str] = []

    def hold(self, true: object, claim: str) -> None:
        """Note a claim if it does not hold."""
        if not true and len(self.broken) < _MOST and claim not in self.broken:
            self.broken.append(claim)

    def watch_loop(self, loop: Any, context: dict[str, Any]) -> None:
        """Note what the event loop complains of."""
        self.hold(False, f"the event loop complains: {context.get('message')}: {context.get('exception')!r}")


class Errors(logging.Handler):
    """Notes what is logged as an error: whatever servers do, that is for our own mistakes."""

    def __init__(self, claims: Claims) -> None:
        """Note it among the claims."""
        super().__init__(logging.ERROR)
        self._claims = claims

    def emit(self, record: logging.LogRecord) -> None:
        """Note one."""
        trace = "" if record.exc_info is None else f": {record.exc_info[1]!r}"
        self._claims.hold(False, f"logged as an error: {record.getMessage()}{trace}")


class Row:
    """The calls to one kind of server."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.calls = 0
        self.answered = 0
        self.withdrawn = 0
        self.slowest = 0.0
        self.failures: Counter[str] = Counter()


class Tally:
    """All calls of a round."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.rows: dict[str, Row] = {}
        self.restarts = 0

    def row(self, kind: str) -> Row:
        """Give the row of a kind."""
        return self.rows.setdefault(kind, Row())
