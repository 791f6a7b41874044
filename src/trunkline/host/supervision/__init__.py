"""Servers kept running: where each is in its life, the task that owns it, and when to try again."""

from __future__ import annotations

__all__: list[str] = []
