"""Every rule of MCP that needs no socket, task or clock.

Nothing here imports ``asyncio``, sockets, subprocesses, time, randomness or logging: bytes, clocks and ids come in as
arguments, events and messages are returned as values. Everything else in the package builds on this and ``types``.
"""

from __future__ import annotations

__all__: list[str] = []
