"""Recordings of whole conversations: writing, relaying, replaying and comparing them."""

from __future__ import annotations

__all__: list[str] = []
