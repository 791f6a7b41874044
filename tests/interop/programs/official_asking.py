"""A server of the official Python SDK, of both eras, whose tool asks while it runs: that works only in one of them."""

from __future__ import annotations

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

__all__ = ["build"]


class Person(BaseModel):
    """A form of one field."""

    name: str


def build() -> MCPServer:
    """Make the server."""
    server = MCPServer("asking", log_level="ERROR")

    @server.tool()
    async def ask_in_the_middle(ctx: Context) -> str:
        """Ask who it is."""
        answer = await ctx.elicit("Who are you?", Person)
        return answer.data.name if answer.action == "accept" else answer.action

    return server


if __name__ == "__main__":
    build().run()
