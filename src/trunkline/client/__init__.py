"""The client: calls a server over any transport and in any revision."""

from __future__ import annotations

__all__: list[str] = []
