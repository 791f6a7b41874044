"""Recordings of whole conversations: written, relayed, played, compared."""

from __future__ import annotations

__all__: list[str] = []
