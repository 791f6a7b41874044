"""A FastMCP client of the server whose command is given; it writes what it saw as JSON."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from typing import Any

__all__ = ["look"]


async def look(command: list[str]) -> dict[str, Any]:
    """List, call, read and be asked."""
    fastmcp: Any = importlib.import_module("fastmcp")
    transports: Any = importlib.import_module("fastmcp.client.transports")

    async def answer(message: str, kind: Any, params: Any, context: Any) -> Any:
        return kind(name="Ann", age=9)

    transport = transports.StdioTransport(command=command[0], args=command[1:])
    async with fastmcp.Client(transport, elicitation_handler=answer) as client:
        return {
            "tools": [tool.name for tool in await client.list_tools()],
            "sum": (await client.call_tool("add", {"a": 19, "b": 23})).data,
            "note": (await client.read_resource("note://fixed"))[0].text,
            "asked": (await client.call_tool("ask_person")).data,
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(look(sys.argv[1:]))))
