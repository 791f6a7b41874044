"""The scan of definitions for deceptive characters, instructions, markup, and other servers' tools."""

from __future__ import annotations

__all__: list[str] = []
