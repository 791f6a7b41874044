"""A client that logs in: it finds the sign-in page, opens it in a browser, and stores the tokens for the next time."""

import asyncio
import sys

from trunkline import Client, OAuth

URL = "http://127.0.0.1:8000/mcp"


async def main(url: str = URL, auth: OAuth | str = "oauth") -> None:
    """Borrow a book."""
    async with Client(url, auth=auth) as client:
        print((await client.call_tool("list_books")).data)
        print((await client.call_tool("borrow", {"title": "Momo"})).text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
