"""A small cache for results of git. The key contains everything that a result depends on."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["Remembered"]

K = TypeVar("K")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """A bounded cache; the oldest entry is evicted first. ``get`` may be called from any thread."""

    def __init__(self, most: int) -> None:
        """Keep at most ``most`` entries."""
        self._most = most
        self._answers: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Return the cached value; None if there is none."""
        return self._answers.get(key)

    def put(self, key: K, answer: V) -> None:
        """Store a value; call this from one thread only."""
        self._answers.pop(key, None)
        self._answers[key] = answer
        if len(self._answers) > self._most:
            del self._answers[next(iter(self._answers))]
