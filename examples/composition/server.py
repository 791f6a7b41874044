"""Two servers in one: what is mounted keeps its own code, and its names get the namespace in front."""

from __future__ import annotations

from trunkline import Server

geo = Server("geo")
server = Server("travel", instructions="Weather and places.")


@geo.tool
async def distance(start: str, end: str) -> str:
    """Tell how far two places are apart."""
    return f"{start} to {end}: far"


@geo.resource("places://capitals")
async def capitals() -> list[str]:
    """List capitals."""
    return ["Oslo", "Paris"]


@server.tool
async def plan(city: str) -> str:
    """Plan a journey."""
    return f"Go to {city}."


# Live: what is added to `geo` later appears here too, and clients are told.
server.mount(geo, namespace="geo")

if __name__ == "__main__":
    server.run()
