"""What all servers offer together: named, filtered, cached between runs, searched."""

from __future__ import annotations

__all__: list[str] = []
