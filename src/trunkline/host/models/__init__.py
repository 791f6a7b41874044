"""Models behind one small interface: what a host requests of one, and the adapters for the existing providers."""

from __future__ import annotations

__all__: list[str] = []
