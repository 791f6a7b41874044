"""A server on the official Python SDK 1.x with its experimental tasks; run by an environment that has that SDK."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["serve"]


def build() -> Any:
    """Return the server."""
    types: Any = importlib.import_module("mcp.types")
    server = importlib.import_module("mcp.server").Server("official1")
    server.experimental.enable_tasks()
    anyio: Any = importlib.import_module("anyio")
    execution = types.ToolExecution(taskSupport="required")
    names = ("double", "fail", "wait", "greet")

    def say(text: object, *, failed: bool = False) -> Any:
        return types.CallToolResult(content=[types.TextContent(type="text", text=str(text))], isError=failed)

    @server.list_tools()  # type: ignore[untyped-decorator,unused-ignore]
    async def list_tools() -> Any:
        schema = {"type": "object"}
        return [types.Tool(name=name, inputSchema=schema, execution=execution) for name in names]

    async def work(name: str, given: dict[str, Any], task: Any) -> Any:
        await anyio.sleep(0.05)
        if name == "fail":
            return say("out of paper", failed=True)
        if name == "wait":
            await anyio.sleep(60)
        if name == "greet":
            form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
            answer = await task.elicit("Who are you?", form)
            return say(f"Hello, {answer.content['name']}!" if answer.action == "accept" else f"({answer.action})")
        return say(2 * given["number"])

    @server.call_tool()  # type: ignore[untyped-decorator,unused-ignore]
    async def call_tool(name: str, given: dict[str, Any]) -> Any:
        context = server.request_context
        context.experimental.validate_task_mode("required")
        return await context.experimental.run_task(lambda task: work(name, given, task))

    return server


def serve() -> None:
    """Serve over stdio until the other side goes away."""
    anyio: Any = importlib.import_module("anyio")
    stdio: Any = importlib.import_module("mcp.server.stdio")
    server = build()

    async def main() -> None:
        async with stdio.stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(main)


if __name__ == "__main__":
    serve()
