"""Servers of the official Python SDK over HTTP, one of each kind: it writes their URLs to stdout, as JSON."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import warnings
from pathlib import Path
from typing import Any

import uvicorn

KINDS = ("http", "json", "low", "sse")

sys.path.insert(0, str(Path(__file__).parent))


def app(kind: str) -> tuple[Any, str]:
    """Make the application of a kind, and say at which path it is."""
    import official  # type: ignore[import-not-found,unused-ignore]
    import official_low  # type: ignore[import-not-found,unused-ignore]

    if kind == "low":
        return official_low.build().streamable_http_app(), "/mcp"
    if kind == "sse":
        return official.build().sse_app(), "/sse"
    return official.build().streamable_http_app(json_response=kind == "json"), "/mcp"


async def serve() -> None:
    """Serve every kind on a port of its own until the process is ended."""
    servers, urls = [], {}
    for kind in KINDS:
        listening = socket.create_server(("127.0.0.1", 0))
        application, path = app(kind)
        server = uvicorn.Server(uvicorn.Config(application, log_level="error"))
        servers.append(server.serve(sockets=[listening]))
        urls[kind] = f"http://127.0.0.1:{listening.getsockname()[1]}{path}"
    sys.stdout.write(f"{json.dumps(urls)}\n")
    sys.stdout.flush()
    await asyncio.gather(*servers)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    asyncio.run(serve())
