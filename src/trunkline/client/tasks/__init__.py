"""Tasks of a client: those that it starts at a server, and requests of a server that it runs as tasks."""

from __future__ import annotations

__all__: list[str] = []
