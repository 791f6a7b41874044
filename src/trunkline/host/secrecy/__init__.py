"""The user's secrets: where they are kept, who gets them, and where they are hidden."""

from __future__ import annotations

__all__: list[str] = []
