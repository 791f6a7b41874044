"""The bench tools on FastMCP; `many` as argument registers 500 tools instead."""

import sys

from fastmcp import FastMCP

server = FastMCP("bench")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def add_sync(a: int, b: int) -> int:
    """Add two numbers in a plain function."""
    return a + b


@server.tool
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@server.tool
async def blob(size: int) -> str:
    """Make a text of the given size."""
    return "x" * size


def register_many(count: int) -> None:
    """Register `count` tools of one shape."""
    for number in range(count):
        server.tool(name=f"tool_{number:03}", description=f"Add two numbers, variant {number}.")(add)


if __name__ == "__main__":
    if "many" in sys.argv[1:]:
        register_many(496)
    server.run("stdio", show_banner=False, log_level="ERROR")
