"""Calls that show how messages travel over HTTP: they tell before they answer, leave a stream, or mirror arguments."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Annotated

from msgspec import Meta

from trunkline import Context, Server


def make() -> Server:
    """Make the server."""
    server = Server("streaming", version="1")
    gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    @server.tool
    async def steps(before: int, after: int, ctx: Context) -> str:
        """Report, wait to be let go, report again."""
        for number in range(1, before + 1):
            await ctx.report_progress(number)
        await gates["steps"].wait()
        for number in range(before + 1, before + after + 1):
            await ctx.report_progress(number)
        return "done"

    @server.tool
    async def leave(ctx: Context) -> str:
        """Let the response end and answer later."""
        left = await ctx.close_stream()
        await gates["leave"].wait()
        return f"left: {left}"

    @server.tool
    async def go(name: str) -> str:
        """Let a call go on."""
        gates[name].set()
        return "gone"

    @server.tool
    async def query(
        region: Annotated[str | None, Meta(extra_json_schema={"x-mcp-header": "Region"})] = None,
        limit: Annotated[int | None, Meta(extra_json_schema={"x-mcp-header": "Limit"})] = None,
        exact: Annotated[bool | None, Meta(extra_json_schema={"x-mcp-header": "Exact"})] = None,
    ) -> str:
        """Tell the arguments."""
        return f"{region} {limit} {exact}"

    @server.tool
    async def grow(name: str) -> str:
        """Offer one tool more."""

        async def nothing() -> str:
            return "nothing"

        server.add_tool(nothing, name=name)
        return "grown"

    return server
