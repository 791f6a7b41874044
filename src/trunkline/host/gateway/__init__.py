"""The gateway: what all servers of a host offer, served as one MCP server, in both eras, over stdio and HTTP."""

from __future__ import annotations

__all__: list[str] = []
