"""A client in five lines: starts the weather server, calls a tool, prints the answer."""

import asyncio
from pathlib import Path

from trunkline import Client


async def main() -> None:
    """Ask for the weather."""
    async with Client(Path(__file__).with_name("server.py")) as client:
        answer = await client.call_tool("com.example.weather/current", {"location": "San Francisco"})
        print(answer.text)


if __name__ == "__main__":
    asyncio.run(main())
