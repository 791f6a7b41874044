"""A host with five servers that fork; it writes their process ids as a line of JSON and waits to be killed."""

from __future__ import annotations

import asyncio
import json
import sys

from tests.host.supervised import program, supervising


async def main() -> None:
    """Run them."""
    async with supervising({f"s{n}": program(f"s{n}", "forks") for n in range(5)}) as stage:
        pids: list[int] = []
        for n in range(5):
            client = await stage.upstream(f"s{n}").connected_client()
            pids += map(int, (await client.call_tool("pid")).text.split())
        sys.stdout.write(json.dumps(pids) + "\n")
        sys.stdout.flush()
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main())
