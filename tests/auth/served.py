"""An application served on a socket, for tests that need its URL before it runs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from trunkline import Limits
from trunkline.transports.http.server.serve import serve

__all__ = ["free_port", "served"]


def free_port() -> int:
    """Return a port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def served(app: Any, port: int) -> AsyncIterator[str]:
    """Serve at a port of this machine; give the address."""
    stopping = asyncio.Event()
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    limits = Limits(drain_seconds=1)
    task = asyncio.create_task(serve(app, limits=limits, port=port, started=started.set_result, stopping=stopping))
    try:
        yield await started
    finally:
        stopping.set()
        await task
