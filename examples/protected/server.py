"""A protected server: users sign in on its own page, and each tool needs scopes that they consented to."""

import os

from trunkline import Context, Server
from trunkline.auth import AuthorizationServer

PORT = int(os.environ.get("PORT", "8000"))

auth = AuthorizationServer(
    issuer=f"http://127.0.0.1:{PORT}",
    # Stored in memory; in production set store="authorization.db", so that users stay signed in after a restart.
    name="The library",
    scopes={"books:read": "See which books there are", "books:lend": "Borrow books in your name"},
)
server = Server("library", version="1.0.0", auth=auth)


@server.tool(scopes=["books:read"])
def list_books() -> list[str]:
    """List the books that can be borrowed."""
    return ["Emma", "Momo"]


@server.tool(scopes=["books:lend"])
def borrow(title: str, ctx: Context) -> str:
    """Borrow a book for the signed-in user."""
    assert ctx.auth is not None
    return f"{title} is lent to {ctx.auth.subject}"


if __name__ == "__main__":
    server.run("http", port=PORT, started=lambda url: print(f"serving {url}/mcp", flush=True))
