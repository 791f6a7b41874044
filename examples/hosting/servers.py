"""Two small servers: one that only answers, and one that asks before it does something."""

from trunkline import Context, Server

clock = Server("clock", "Tells the time.")
shop = Server("shop", "Sells things.")


@clock.tool
async def now() -> str:
    """Tell the time."""
    return "half past nine"


@shop.tool
async def price(thing: str) -> int:
    """Tell what a thing costs."""
    return 3 * len(thing)


@shop.tool
async def buy(thing: str, amount: int, ctx: Context) -> str:
    """Buy a thing."""
    colour = (await ctx.elicit(f"Which colour for the {thing}?", str)).data
    return f"bought a {colour} {thing} for {amount}"
