"""A server of the tests over stdio: slow tools, in memory or in a file."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from trunkline import Context, Server
from trunkline.extensions import TaskOptions
from trunkline.protocol.limits import Limits

__all__ = ["make"]


def make(folder: Path, database: str | None) -> Server:
    """Return a server whose tools leave files in a folder: what they began, and what they ended."""
    server = Server("slow", tasks=database, limits=Limits(drain_seconds=20.0))

    @server.tool(task=True)
    async def add(a: int, b: int, ctx: Context) -> int:
        """Add, and report that."""
        await ctx.report_progress(1, 2, "adding")
        return a + b

    @server.tool(task=True)
    async def ask(ctx: Context) -> str:
        """Ask the user."""
        return str((await ctx.elicit("Which?", str)).data)

    @server.tool(task=TaskOptions(retry=1))
    async def wait(name: str) -> str:
        """Wait until there is a file, or be cancelled."""
        (folder / f"{name}-begun-{os.getpid()}").touch()
        try:
            while not (folder / f"{name}-go").exists():  # noqa: ASYNC110 - the file is made by another process
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            (folder / f"{name}-cancelled").touch()
            raise
        (folder / f"{name}-ended").touch()
        return name

    return server


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None).run()
