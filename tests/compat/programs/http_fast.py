"""A server for ``fastmcp`` over HTTP."""

import sys

from fastmcp import FastMCP
from fastmcp.server.dependencies import get_http_headers

mcp = FastMCP("fast-http")


@mcp.tool
def team() -> str:
    """Say which team asks."""
    return get_http_headers().get("x-team", "nobody")


@mcp.resource("users://{user-id}/name")
def name(user_id: str) -> str:
    """Return a name."""
    return f"name of {user_id}"


if __name__ == "__main__":
    mcp.run("http", host="127.0.0.1", port=int(sys.argv[1]))
