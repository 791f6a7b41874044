"""A server of one era as a program: ``python -m tests.host.gateway.program REVISION``."""

from __future__ import annotations

import asyncio
import os
import sys

from trunkline import Context, Server
from trunkline.protocol.revisions import NEWEST, REVISION_NAMES

__all__ = ["make"]


def make(revision: str) -> Server:
    """Make a server that asks, waits, counts and says which process it is."""
    handshakes = [name for name in REVISION_NAMES if name != NEWEST.name]
    made = Server("program", revisions=[revision] if revision == NEWEST.name else handshakes)

    @made.tool
    async def pid() -> int:
        """Say which process this is."""
        return os.getpid()

    @made.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        return f"hello {(await ctx.elicit('Name?', str)).data}"

    @made.tool
    async def count(ctx: Context, steps: int) -> int:
        """Report each step."""
        for step in range(steps):
            await ctx.report_progress(step, steps)
            await ctx.info(f"step {step}")
        return steps

    @made.tool
    async def wait() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return ""

    @made.resource("note://1")
    async def note() -> str:
        return "note"

    return made


if __name__ == "__main__":
    make(sys.argv[1]).run()
