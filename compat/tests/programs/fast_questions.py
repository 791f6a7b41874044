"""A server of FastMCP whose tools ask the caller, remember, and log: what differs between the eras of the protocol."""

from fastmcp import Context, FastMCP

mcp = FastMCP("questions")


@mcp.tool
async def greet(ctx: Context) -> str:
    """Greet whoever calls."""
    first = await ctx.elicit("First name?", response_type=str)
    if first.action != "accept":
        return first.action
    last = await ctx.elicit("Last name?", response_type=str)
    return f"Hello {first.data} {last.data}"


@mcp.tool
async def work(ctx: Context) -> str:
    """Work, and say so."""
    await ctx.info("working")
    await ctx.report_progress(1, 2)
    return ctx.session_id or "none"


if __name__ == "__main__":
    mcp.run()
