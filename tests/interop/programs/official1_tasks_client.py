"""A client on the official Python SDK 1.x with its experimental tasks; it writes what it saw of our server as JSON.

Its arguments are the URL or the command of the server.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

__all__ = ["look"]


async def look(target: list[str]) -> dict[str, Any]:
    """Run tasks that succeed, ask, fail, break and are cancelled."""
    mcp: Any = importlib.import_module("mcp")
    types: Any = importlib.import_module("mcp.types")
    errors: Any = importlib.import_module("mcp.shared.exceptions")

    async def answer(context: Any, params: Any) -> Any:
        return types.ElicitResult(action="accept", content={"name": "Ann"})

    async with AsyncExitStack() as stack:
        if len(target) > 1:
            opened = mcp.stdio_client(mcp.StdioServerParameters(command=target[0], args=target[1:]))
        else:
            web: Any = importlib.import_module("mcp.client.streamable_http")
            opened = web.streamable_http_client(target[0])
        reading, writing, *_ = await stack.enter_async_context(opened)
        session = await stack.enter_async_context(mcp.ClientSession(reading, writing, elicitation_callback=answer))
        await session.initialize()
        tasks = session.experimental

        async def run(tool: str, given: dict[str, Any] | None = None) -> list[Any]:
            created = await tasks.call_tool_as_task(tool, given or {})
            id = created.task.taskId
            seen = []
            async for state in tasks.poll_task(id):
                seen.append(state.status)
                if state.status == "input_required":
                    break
            try:
                result = await tasks.get_task_result(id, types.CallToolResult)
            except errors.McpError as error:
                return [error.error.code, error.error.message]
            return [seen[-1], result.content[0].text]

        waiting = (await tasks.call_tool_as_task("wait", {"label": "official1"})).task.taskId
        cancelled = await tasks.cancel_task(waiting)
        stopped = await session.call_tool("was_stopped", {"label": "official1"})
        return {
            "double": await run("double", {"number": 21}),
            "greet": await run("greet"),
            "fail": await run("fail"),
            "broken": await run("break_down"),
            "cancelled": [cancelled.status, (await tasks.get_task(waiting)).status],
            "stopped": stopped.content[0].text,
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(look(sys.argv[1:]))))
