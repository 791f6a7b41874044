"""Supervision of servers: the state of each, the task that owns it, and when to restart it."""

from __future__ import annotations

__all__: list[str] = []
