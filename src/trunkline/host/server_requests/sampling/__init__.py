"""Sampling: servers that request completions of the user's models, under review and within limits."""

from __future__ import annotations

__all__: list[str] = []
