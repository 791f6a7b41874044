"""Five of everything, two on a page."""

from __future__ import annotations

from trunkline import Server

NAMES = ("a", "b", "c", "d", "e")


def make() -> Server:
    """Make the server."""
    server = Server("paged", version="1", list_page_size=2, cache_ttl_ms=5000)

    async def nothing() -> str:
        return "nothing"

    async def shown(x: str) -> str:
        return x

    for name in NAMES:
        server.add_tool(nothing, name=name)
        server.add_prompt(nothing, name=name)
        server.add_resource(f"note://{name}", "text")
        server.add_resource(f"note://{name}/{{x}}", shown)
    return server


if __name__ == "__main__":
    make().run()
