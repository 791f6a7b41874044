"""What a model thought before it called a tool, kept for the provider: it wants that back with the results.

The conversation of a host has no place for it, and nobody else may read it: it is signed or encrypted. So an adapter
keeps it, under a key made of all that was sent before and of what the model then said. If anything before has changed
since (a result was cut, a tool is gone), the key is another, and nothing is given back: providers refuse thoughts that
are put in another place. Bounded, in memory only; a conversation goes on without it.
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
        """Begin with what stands before all messages."""
        self._digest = sha256()
        for each in start:
            self.add(each)

    def add(self, sent: Any) -> None:
        """Take note of something sent."""
        data = encoded(sent)
        self._digest.update(b"%d:" % len(data))
        self._digest.update(data)

    def key(self, said: Any) -> bytes:
        """Give the key of what was said right after this."""
        digest = self._digest.copy()
        digest.update(encoded(said))
        return digest.digest()


class Echoes:
    """Whole answers in the provider's own words, by key; those not used for longest go first."""

    def __init__(self) -> None:
        """Remember nothing."""
        self._kept: OrderedDict[bytes, tuple[int, list[Any]]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, key: bytes, answer: list[Any]) -> None:
        """Keep an answer."""
        self._drop(key)
        size = len(encoded(answer))
        self._kept[key] = (size, answer)
        self._size += size
        while self._kept and (len(self._kept) > _MOST_ENTRIES or self._size > _MOST_BYTES):
            self._drop(next(iter(self._kept)))

    def recall(self, key: bytes) -> list[Any] | None:
        """Give an answer that was kept."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[1]

    def forget(self) -> None:
        """Keep nothing any longer."""
        self._kept.clear()
        self._size = 0

    def _drop(self, key: bytes) -> None:
        size, _ = self._kept.pop(key, (0, []))
        self._size -= size
