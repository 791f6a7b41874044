"""The conversation of a person, a model and the servers of a host: the loop, and what it shows."""

from __future__ import annotations

__all__: list[str] = []
