"""The user's secrets: where they are stored, which servers get them, and how they are redacted from output."""

from __future__ import annotations

__all__: list[str] = []
