"""The HTTP client of FastMCP's providers: ``httpx2``, or ``httpx`` where only that is installed.

Users pass clients of this library in, so requests to identity providers go through it and not through our own fetcher.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

try:
    import httpx2
except ImportError:  # FastMCP 2 and 3 bring httpx along.
    import httpx as httpx2  # type: ignore[import-not-found, no-redef, unused-ignore]

__all__ = ["http_client", "httpx2"]


@asynccontextmanager
async def http_client(given: Any, timeout: float | None = 10) -> AsyncIterator[Any]:
    """Yield the client that the user passed in, which stays open, or a new one."""
    if given is not None:
        yield given
        return
    async with httpx2.AsyncClient(timeout=timeout) as client:
        yield client
