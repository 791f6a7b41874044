"""Every rule of MCP that needs no socket, task or clock.

Nothing here imports ``asyncio``, sockets, subprocesses, time, randomness or logging: bytes, clocks and ids come in as
arguments, events and messages go out as values. Everything else in the package stands on this and ``types``.
"""

from __future__ import annotations

__all__: list[str] = []
