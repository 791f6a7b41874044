"""A client over HTTP: uses the newest revision of the server, then an older one at the same address."""

import asyncio
import sys

from trunkline import Client

URL = "http://127.0.0.1:8000/mcp"


async def main(url: str = URL) -> None:
    """Bake a cake, and print which revision each call used."""
    async with Client(url) as client:
        print((await client.call_tool("transport")).text)
        cake = await client.call_tool("bake", {"cake": "Sacher"}, on_progress=lambda done, total, text: print(text))
        print(cake.text)
    async with Client(url, revision="2025-11-25") as client:
        print((await client.call_tool("transport")).text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
