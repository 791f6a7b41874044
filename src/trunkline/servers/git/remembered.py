"""Remembers a few answers of git's. It knows nothing of what was asked; whoever asks says what makes it the same."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["Remembered"]

K = TypeVar("K")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """A few answers; the oldest is forgotten first. It may be looked into from any thread."""

    def __init__(self, most: int) -> None:
        """Remember at most this many."""
        self._most = most
        self._answers: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Give what was remembered, if anything."""
        return self._answers.get(key)

    def put(self, key: K, answer: V) -> None:
        """Remember an answer; this is for one thread alone."""
        self._answers.pop(key, None)
        self._answers[key] = answer
        if len(self._answers) > self._most:
            del self._answers[next(iter(self._answers))]
