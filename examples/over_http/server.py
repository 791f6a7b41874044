"""A server over HTTP: one endpoint for clients of every revision, on its own address until Ctrl-C."""

import asyncio
import os

from trunkline import Context, Server

server = Server("kitchen", version="1.0.0")


@server.tool
async def bake(cake: str, ctx: Context, minutes: int = 3) -> str:
    """Bake a cake, and report each minute.

    Progress makes the answer a stream of events; a tool that only answers is answered with plain JSON.
    """
    for minute in range(1, minutes + 1):
        await asyncio.sleep(0.05)
        await ctx.report_progress(minute, minutes, f"{cake}: minute {minute}")
    return f"{cake} is done"


@server.tool
async def transport(ctx: Context) -> str:
    """Return the revision of this call, and whether it has a session."""
    session = "a session" if ctx.session_id else "no session"
    return f"{ctx.client.revision}, {session}"


if __name__ == "__main__":
    port = int(os.environ.get("PORT", "8000"))
    server.run("http", port=port, started=lambda url: print(f"serving {url}/mcp", flush=True))
