"""The official Python SDK, first major version: ``ClientSession`` over the streams of a transport."""

from driving import run, text_of
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


async def look(target):
    """List and call."""
    if "url" in target:
        transport = streamablehttp_client(target["url"], headers=target["headers"])
    else:
        program, *arguments = target["command"]
        transport = stdio_client(StdioServerParameters(command=program, args=arguments, env=target["env"]))
    async with transport as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        results = [text_of((await session.call_tool(name, arguments)).content) for name, arguments in target["calls"]]
        return {"tools": [tool.name for tool in tools], "results": results}


run(look)
