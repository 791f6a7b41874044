"""A FastMCP server with tasks, for our client; run by the interpreter of an environment that has ``fastmcp-tasks``.

Over stdio, or over HTTP with the argument ``http``: it writes its URL then.
"""

from __future__ import annotations

import asyncio
import importlib
import socket
import sys
from typing import Any

__all__ = ["build", "serve_http"]


def build() -> Any:
    """Return the server."""
    fastmcp: Any = importlib.import_module("fastmcp")
    exceptions: Any = importlib.import_module("fastmcp.exceptions")
    types: Any = importlib.import_module("mcp_types")
    tasks: Any = importlib.import_module("fastmcp_tasks")
    server = fastmcp.FastMCP("fast")
    server.add_extension(tasks.TasksExtension())

    async def double(number: int) -> int:
        """Double a number, a little later."""
        await asyncio.sleep(0.05)
        return 2 * number

    async def fail() -> str:
        """Fail."""
        raise exceptions.ToolError("out of paper")

    async def wait() -> str:
        """Wait until it is cancelled."""
        await asyncio.sleep(60)
        return "never"

    async def greet(ctx: Any) -> Any:
        """Ask for a name inside the task."""
        answers = ctx.input_responses
        if answers and "who" in answers:
            answer = answers["who"]
            return f"Hello, {answer.content['name']}!" if answer.action == "accept" else f"Hello ({answer.action})."
        form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        params = types.ElicitRequestFormParams(message="Who are you?", requested_schema=form)
        return types.InputRequiredResult(input_requests={"who": types.ElicitRequest(params=params)})

    greet.__annotations__["ctx"] = fastmcp.Context
    for function in (double, fail, wait, greet):
        function.__annotations__.pop("return")
        server.tool(function, task=True)
    return server


def serve_http(server: Any) -> None:
    """Serve at a free port of this machine."""
    uvicorn: Any = importlib.import_module("uvicorn")
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(server.http_app(), log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        serve_http(build())
    else:
        build().run(show_banner=False)
