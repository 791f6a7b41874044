"""Middleware: functions around every request. One measures time, one rejects requests."""

from __future__ import annotations

import logging
import time
from typing import Any

from trunkline import RequestFailed, Server
from trunkline.server import CallNext, ServerRequest

log = logging.getLogger("example")


async def timing(request: ServerRequest, call_next: CallNext) -> Any:
    """Log how long each request took; its content is not logged."""
    start = time.perf_counter()
    try:
        return await call_next(request)
    finally:
        log.info("%s took %.1f ms", request.method, 1000 * (time.perf_counter() - start))


async def no_deleting(request: ServerRequest, call_next: CallNext) -> Any:
    """Reject calls of tools whose names begin with "delete"."""
    if request.method == "tools/call" and request.params.name.startswith("delete"):
        raise RequestFailed("Deleting is switched off on this server.", code=-32001)
    return await call_next(request)


server = Server("guarded", middleware=[timing, no_deleting])


@server.tool
async def read(path: str) -> str:
    """Read a note."""
    return f"the note {path}"


@server.tool
async def delete(path: str) -> str:
    """Delete a note."""
    return f"{path} is gone"


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    server.run()
