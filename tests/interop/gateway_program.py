"""A gateway as a program: it serves the servers of a configuration over stdio, or over HTTP, where it says so in JSON.

Its arguments are the file, and ``http`` or ``stdio``. Policy and state are in the folder that ``TRUNKLINE_HOME`` names.
"""

from __future__ import annotations

import asyncio
import json
import sys

from trunkline.host.host import Host

__all__ = ["serve"]


def say(url: str, token: str | None) -> None:
    """Write where the gateway is, and the token it asks for."""
    sys.stdout.write(f"{json.dumps({'url': url, 'token': token})}\n")
    sys.stdout.flush()


async def serve(file: str, kind: str) -> None:
    """Open the host and serve it until told to stop."""
    async with Host.open(file, wait_seconds=30.0) as host:
        if kind == "http":
            await host.serve(http="127.0.0.1:0", started=say, search="off")
        else:
            await host.serve(search="off")


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
