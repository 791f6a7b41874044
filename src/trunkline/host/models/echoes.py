"""A model's reasoning before its tool calls, kept for the provider, which wants it back with the results.

The host's conversation has no place for it, and nothing else can read it: it is signed or encrypted. So an adapter
keeps it, under a key made of everything sent before and of the model's answer. If anything earlier has changed since (a
result was cut, a tool is gone), the key differs and nothing is returned: providers reject reasoning that is put in
another place. Bounded, in memory only; a conversation goes on without it.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256
from typing import Any

from trunkline.host.models.blocks import encoded

__all__ = ["Echoes", "Trail"]

_MOST_ENTRIES = 1024
_MOST_BYTES = 16 * 1024 * 1024


class Trail:
    """A digest of what was sent so far, in order."""

    def __init__(self, *start: Any) -> None:
        """Start with what precedes all messages."""
        self._digest = sha256()
        for each in start:
            self.add(each)

    def add(self, sent: Any) -> None:
        """Add something that was sent."""
        data = encoded(sent)
        self._digest.update(b"%d:" % len(data))
        self._digest.update(data)

    def key(self, said: Any) -> bytes:
        """Return the key of the answer that follows what was sent."""
        digest = self._digest.copy()
        digest.update(encoded(said))
        return digest.digest()


class Echoes:
    """Whole answers in the provider's own form, by key; the least recently used are evicted first."""

    def __init__(self) -> None:
        """Start empty."""
        self._kept: OrderedDict[bytes, tuple[int, list[Any]]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, key: bytes, answer: list[Any]) -> None:
        """Store an answer."""
        self._drop(key)
        size = len(encoded(answer))
        self._kept[key] = (size, answer)
        self._size += size
        while self._kept and (len(self._kept) > _MOST_ENTRIES or self._size > _MOST_BYTES):
            self._drop(next(iter(self._kept)))

    def recall(self, key: bytes) -> list[Any] | None:
        """Return a stored answer, or None."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[1]

    def forget(self) -> None:
        """Clear the store."""
        self._kept.clear()
        self._size = 0

    def _drop(self, key: bytes) -> None:
        size, _ = self._kept.pop(key, (0, []))
        self._size -= size
