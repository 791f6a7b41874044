"""DSPy: the tools of a session of the official SDK as its own."""

import dspy
import httpx2
import mcp
from driving import find, run, text_of
from mcp.client.streamable_http import streamable_http_client


async def look(target):
    """List and call."""
    if "url" in target:
        async with httpx2.AsyncClient(headers=target["headers"], timeout=30) as web:
            return await _look(streamable_http_client(target["url"], http_client=web), target)
    program, *arguments = target["command"]
    return await _look(
        mcp.stdio_client(mcp.StdioServerParameters(command=program, args=arguments, env=target["env"])), target
    )


async def _look(transport, target):
    async with mcp.Client(transport) as client:
        tools = [dspy.Tool.from_mcp_tool(client, tool) for tool in (await client.list_tools()).tools]
        results = [text_of(await find(tools, name).acall(**arguments)) for name, arguments in target["calls"]]
        return {"tools": [tool.name for tool in tools], "results": results}


run(look)
