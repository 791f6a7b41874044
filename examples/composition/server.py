"""Two servers in one: the mounted server stays separate, and its names get a prefix."""

from __future__ import annotations

from trunkline import Server

geo = Server("geo")
server = Server("travel", instructions="Weather and places.")


@geo.tool
async def distance(start: str, end: str) -> str:
    """Return the distance between two places."""
    return f"{start} to {end}: far"


@geo.resource("places://capitals")
async def capitals() -> list[str]:
    """List capitals."""
    return ["Oslo", "Paris"]


@server.tool
async def plan(city: str) -> str:
    """Plan a journey."""
    return f"Go to {city}."


# What is added to `geo` later appears here too, and clients are notified.
server.mount(geo, namespace="geo")

if __name__ == "__main__":
    server.run()
