"""A client in five lines."""

import asyncio

from trunkline import Client


async def main() -> None:
    """Start the server, call its tool, print the answer."""
    async with Client("examples/hello/server.py") as client:
        result = await client.call_tool("greet", {"name": "Ada"})
        print(result.data)


if __name__ == "__main__":
    asyncio.run(main())
