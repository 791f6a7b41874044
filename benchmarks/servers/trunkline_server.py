"""The bench tools on Trunkline.

`many` as argument registers 500 tools of one function; `tools=N` makes a server of N tools, each with a function of its
own; `mounted` mounts one that has `add` three deep.
"""

import sys
from collections.abc import Awaitable, Callable

from trunkline import Server

server = Server("bench")


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


def server_of(count: int) -> Server:
    """Make a server of `count` tools, each with a function of its own."""
    grown = Server("bench")
    grown.tool(add)
    for number in range(1, count):
        grown.tool(name=f"own_{number}")(_own(number))
    return grown


def _own(number: int) -> Callable[[int, int], Awaitable[int]]:
    async def own(a: int, b: int = 1) -> int:
        return a + b

    own.__doc__ = f"""Add two numbers, in way {number}.

    Args:
        a: The first number.
        b: The number that is added to it.

    Returns:
        The sum.
    """
    return own


def mounted_server() -> Server:
    """Make a server with `add`, and with another `add` three mounts below."""
    inner = server_of(1)
    for namespace in ("three", "two", "one"):
        outer = server_of(1) if namespace == "one" else Server("bench")
        outer.mount(inner, namespace)
        inner = outer
    return inner


if __name__ == "__main__":
    if "many" in sys.argv[1:]:
        register_many(496)
    for argument in sys.argv[1:]:
        if argument.startswith("tools="):
            server = server_of(int(argument.removeprefix("tools=")))
    if "mounted" in sys.argv[1:]:
        server = mounted_server()
    server.run()
