"""One process owns the stdio servers of a gateway with several workers; the workers use them through a local socket."""

from __future__ import annotations

__all__: list[str] = []
