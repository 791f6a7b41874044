"""Models behind one small interface: what a host asks of one, and the adapters to those that exist."""

from __future__ import annotations

__all__: list[str] = []
