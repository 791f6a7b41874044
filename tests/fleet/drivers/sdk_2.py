"""The official Python SDK, second major version: ``mcp.Client``, in the era that ``mode`` names."""

import httpx2
import mcp
from driving import run, text_of
from mcp.client.streamable_http import streamable_http_client


async def look(target):
    """List and call."""
    if "url" in target:
        async with httpx2.AsyncClient(headers=target["headers"], timeout=30) as web:
            return await _look(streamable_http_client(target["url"], http_client=web), target)
    program, *arguments = target["command"]
    given = mcp.StdioServerParameters(command=program, args=arguments, env=target["env"])
    return await _look(mcp.stdio_client(given), target)


async def _look(transport, target):
    async with mcp.Client(transport, mode=target["mode"]) as client:
        tools = (await client.list_tools()).tools
        results = [text_of((await client.call_tool(name, arguments)).content) for name, arguments in target["calls"]]
        return {"tools": [tool.name for tool in tools], "results": results}


run(look)
