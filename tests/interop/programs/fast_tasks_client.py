"""A FastMCP client of our server with tasks; it writes what it saw as JSON.

Its arguments are the URL or the command of the server.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from typing import Any

__all__ = ["look"]


async def look(target: list[str]) -> dict[str, Any]:
    """Run tasks that succeed, ask, fail, break and are cancelled."""
    fastmcp: Any = importlib.import_module("fastmcp")
    transports: Any = importlib.import_module("fastmcp.client.transports")
    tasks: Any = importlib.import_module("fastmcp_tasks")

    async def answer(message: str, kind: Any, params: Any, context: Any) -> Any:
        return kind(name="Ann")

    def text(result: Any) -> str:
        return str(result.content[0].text)

    stdio = len(target) > 1
    transport = transports.StdioTransport(command=target[0], args=target[1:]) if stdio else target[0]
    async with fastmcp.Client(transport, elicitation_handler=answer) as client:

        async def ended(tool: str) -> str:
            try:
                return text(await client.call_tool(tool))
            except Exception as error:  # noqa: BLE001 - whatever it raises is what the test looks at
                return f"{type(error).__name__}: {error}"

        started = await tasks.call_tool_task(client, "double", {"number": 4})
        waiting = await tasks.call_tool_task(client, "wait", {"label": "fast"})
        await waiting.cancel()
        cancelled = await waiting.wait(timeout=10)
        return {
            "transparent": text(await client.call_tool("double", {"number": 21})),
            "handle": text(await started.result()),
            "asked": await ended("greet"),
            "asked first": await ended("greet_first"),
            "failed": await ended("fail"),
            "broken": await ended("break_down"),
            "cancelled": cancelled.status,
            "stopped": text(await client.call_tool("was_stopped", {"label": "fast"})),
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(look(sys.argv[1:]))))
