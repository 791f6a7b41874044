"""The server of the deployment files: one tool, callers with a token, no state in the process."""

import os

from trunkline import Context, Server, StaticTokens

server = Server("books", version="1.0.0", auth=StaticTokens({os.environ["BOOKS_TOKEN"]: "reader"}))


@server.tool
async def count_books(shelf: str) -> int:
    """Count the books on a shelf."""
    return len(shelf)


@server.tool
async def order(ctx: Context) -> str:
    """Order a book."""
    title = await ctx.elicit("Which title?", str)
    return f"Ordered: {title.data}"
