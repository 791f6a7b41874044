"""Tasks: calls whose result is fetched later; the extension, and the tasks of the core protocol."""

from __future__ import annotations

__all__: list[str] = []
