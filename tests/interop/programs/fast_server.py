"""A FastMCP server, for our client; run by the interpreter of an environment that has FastMCP."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["serve"]


def serve() -> None:
    """Serve over stdio until the other side goes away."""
    fastmcp: Any = importlib.import_module("fastmcp")
    server = fastmcp.FastMCP("fast")

    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    def note() -> str:
        """Give a fixed note."""
        return "as it was"

    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Greet {name}."

    server.tool(add)
    server.resource("note://fixed")(note)
    server.prompt(greet)
    server.run(show_banner=False)


if __name__ == "__main__":
    serve()
