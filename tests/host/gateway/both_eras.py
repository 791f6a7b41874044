"""A server of both eras that can ask only in its handshake era: ``python -m tests.host.gateway.both_eras``."""

from __future__ import annotations

import os
import sys

from trunkline import Context, Server
from trunkline.errors import RequestFailed
from trunkline.protocol.revisions import NEWEST, REVISION_NAMES

__all__ = ["make"]


def make(revisions: list[str]) -> Server:
    """Make a server with tools that ask."""
    made = Server("both", revisions=revisions)

    def check(ctx: Context) -> None:
        if not ctx._exchange.admitted.caller.revision.handshake:
            raise RequestFailed("there is no way to ask here")

    @made.tool
    async def pid() -> int:
        """Say which process this is."""
        return os.getpid()

    @made.tool
    async def era(ctx: Context) -> str:
        """Say which revision is spoken."""
        name: str = ctx._exchange.admitted.caller.revision.name
        return name

    @made.tool
    async def ask(ctx: Context) -> str:
        """Ask the user."""
        check(ctx)
        return f"hello {(await ctx.elicit('Name?', str)).data}"

    @made.tool
    async def think(ctx: Context) -> str:
        """Ask the model."""
        check(ctx)
        return (await ctx.sample("Say hello", max_tokens=10)).text

    @made.tool
    async def look(ctx: Context) -> list[str]:
        """Ask for the folders."""
        check(ctx)
        return [str(root.uri) for root in await ctx.list_roots()]

    return made


if __name__ == "__main__":
    make([NEWEST.name] if sys.argv[1:] == ["stateless"] else list(REVISION_NAMES)).run()
