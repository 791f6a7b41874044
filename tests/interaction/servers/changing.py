"""A server whose tools change what it offers."""

from __future__ import annotations

import os

from trunkline import Server
from trunkline.server.runtime import runtime_for


def make() -> Server:
    """Make the server."""
    server = Server("changing", version="1", capabilities=["prompts", "resources"])

    async def nothing() -> str:
        return "nothing"

    @server.tool
    async def add_tools(names: list[str]) -> str:
        for name in names:
            server.add_tool(nothing, name=name)
        return "added"

    @server.tool
    async def remove_tool(name: str) -> str:
        server.remove_tool(name)
        return "removed"

    @server.tool
    async def add_prompt(name: str) -> str:
        server.add_prompt(nothing, name=name)
        return "added"

    @server.tool
    async def add_resource(uri: str) -> str:
        server.add_resource(uri, "text")
        return "added"

    @server.tool
    async def touch(uri: str) -> str:
        server.changed(uri)
        return "touched"

    @server.tool
    async def end_listening() -> str:
        runtime_for(server).hub.end("the server is shutting down")
        return "ended"

    @server.tool
    async def die() -> str:
        os._exit(4)

    @server.resource("note://one")
    async def one() -> str:
        return "one"

    @server.resource("note://two")
    async def two() -> str:
        return "two"

    return server


if __name__ == "__main__":
    make().run()
