"""Routing of requests to servers and of the servers' questions back to the caller, across eras."""

from __future__ import annotations

__all__: list[str] = []
