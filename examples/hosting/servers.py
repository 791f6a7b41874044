"""Two small servers: one that answers at once, and one that asks the user first."""

from trunkline import Context, Server

clock = Server("clock", "Returns the time.")
shop = Server("shop", "Sells things.")


@clock.tool
async def now() -> str:
    """Return the time."""
    return "half past nine"


@shop.tool
async def price(thing: str) -> int:
    """Return the price of a thing."""
    return 3 * len(thing)


@shop.tool
async def buy(thing: str, amount: int, ctx: Context) -> str:
    """Buy a thing."""
    colour = (await ctx.elicit(f"Which colour for the {thing}?", str)).data
    return f"bought a {colour} {thing} for {amount}"
