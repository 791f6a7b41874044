"""A gateway over stdio that asks its client, as a program: ``python -m tests.host.gateway.own_gateway FOLDER``."""

from __future__ import annotations

import asyncio
import sys

import trunkline.types as t
from trunkline import Server
from trunkline.host.host import Host

__all__: list[str] = []


async def main(folder: str) -> None:
    """Serve a server with one tool that reads."""
    made = Server("library")

    @made.tool(annotations=t.ToolAnnotations(read_only_hint=True))
    async def look() -> str:
        """Look."""
        return "seen"

    async with Host.open({"s": made}, folder=folder) as host:
        await host.serve()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
