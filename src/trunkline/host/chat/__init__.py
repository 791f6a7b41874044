"""Conversations of a person with a model that uses the servers of a host: the loop and its events."""

from __future__ import annotations

__all__: list[str] = []
