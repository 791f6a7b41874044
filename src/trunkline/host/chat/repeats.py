"""Notices a model that makes the same call over and over: it is told, and then stopped."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["STUCK_AT", "TOLD_AT", "Repeats"]

#: The same call in a row: from when on the model is told, and when the turn ends.
TOLD_AT = 3
STUCK_AT = 5


class Repeats:
    """Counts the same call in a row."""

    def __init__(self) -> None:
        """Start with no call made."""
        self._last: bytes | None = None
        self._count = 0

    def count(self, tool: str, arguments: dict[str, Any] | None) -> int:
        """Say the how manyth time in a row this call is made."""
        key = msgspec.json.encode([tool, arguments], order="sorted")
        self._count = self._count + 1 if key == self._last else 1
        self._last = key
        return self._count

    def clear(self) -> None:
        """Begin anew: the person said something."""
        self._last, self._count = None, 0
