"""Tasks of a server: calls whose result is fetched later, as the extension and as the core protocol have them."""

from __future__ import annotations

__all__: list[str] = []
