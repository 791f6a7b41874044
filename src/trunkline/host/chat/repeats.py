"""Detects a model that repeats the same call: it is warned, and then stopped."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["STUCK_AT", "TOLD_AT", "Repeats"]

#: Repetitions of the same call: when the model is warned, and when the turn ends.
TOLD_AT = 3
STUCK_AT = 5


class Repeats:
    """Counts the same call in a row."""

    def __init__(self) -> None:
        """Start without calls."""
        self._last: bytes | None = None
        self._count = 0

    def count(self, tool: str, arguments: dict[str, Any] | None) -> int:
        """Count a call; return how many times in a row it was made."""
        key = msgspec.json.encode([tool, arguments], order="sorted")
        self._count = self._count + 1 if key == self._last else 1
        self._last = key
        return self._count

    def clear(self) -> None:
        """Reset the count when the person sends a message."""
        self._last, self._count = None, 0
