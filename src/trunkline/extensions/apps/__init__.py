"""MCP Apps: pages that a server offers for the results of its tools, and how a client reads them."""

from __future__ import annotations

__all__: list[str] = []
