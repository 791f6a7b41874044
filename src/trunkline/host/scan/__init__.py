"""What should not be in a definition: characters, words, markup, other servers' tools."""

from __future__ import annotations

__all__: list[str] = []
