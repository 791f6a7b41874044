"""The server that the tests of recordings talk to: it asks, reports, hangs, changes and returns secrets."""

from __future__ import annotations

import asyncio

from trunkline import Context, Server

server = Server("talker", version="1.0.0")


@server.tool
async def order(ctx: Context, dish: str) -> str:
    """Ask how many are wanted."""
    answer = await ctx.elicit(f"How many {dish}?", int)
    return f"{answer.action} {answer.data}"


@server.tool
async def work(ctx: Context) -> str:
    """Report progress."""
    await ctx.report_progress(1, 2)
    await ctx.report_progress(2, 2)
    return "worked"


@server.tool
async def hang(ctx: Context) -> str:
    """Say that it began, and never answer."""
    await ctx.report_progress(1)
    await asyncio.sleep(60)
    return "late"


@server.tool
async def grow(ctx: Context) -> str:
    """Add a tool."""
    ctx.server.add_tool(lambda: "new", name="grown")
    return "grown"


@server.tool
async def login(user: str, password: str) -> dict[str, str]:
    """Give back a token."""
    return {"user": user, "access_token": f"token-for-{password}", "header": "Bearer abcdefghijklmnop"}
