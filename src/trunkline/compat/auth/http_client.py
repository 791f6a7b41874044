"""The HTTP client of FastMCP's providers: ``httpx2``, or ``httpx`` where only that is installed.

Users pass clients of this library in, so requests to identity providers go through it and not through our own fetcher.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


class _NotInstalled:
    """Stands for the library where it is not installed, until a request needs it."""

    def __getattr__(self, name: str) -> Any:
        raise ImportError("Requests to an identity provider need an HTTP client: pip install httpx2")


httpx2: Any
try:
    import httpx2
except ImportError:
    try:
        # FastMCP 2 and 3 bring it along.
        import httpx as httpx2  # type: ignore[import-not-found, no-redef, unused-ignore]
    except ImportError:
        httpx2 = _NotInstalled()

__all__ = ["http_client", "httpx2"]


@asynccontextmanager
async def http_client(given: Any, timeout: float | None = 10) -> AsyncIterator[Any]:
    """Yield the client that the user passed in, which stays open, or a new one."""
    if given is not None:
        yield given
        return
    async with httpx2.AsyncClient(timeout=timeout) as client:
        yield client
