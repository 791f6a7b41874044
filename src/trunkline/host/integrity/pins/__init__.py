"""Pins: definitions as they were first seen, what changed since, and what of a catalog may be served."""

from __future__ import annotations

__all__: list[str] = []
