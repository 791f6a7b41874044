"""FastMCP's client."""

from driving import run, text_of
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport


async def look(target):
    """List and call."""
    if "url" in target:
        transport = StreamableHttpTransport(target["url"], headers=target["headers"])
    else:
        program, *arguments = target["command"]
        transport = StdioTransport(command=program, args=arguments, env=target["env"])
    async with Client(transport) as client:
        tools = await client.list_tools()
        results = [text_of((await client.call_tool(name, arguments)).content) for name, arguments in target["calls"]]
        return {"tools": [tool.name for tool in tools], "results": results}


run(look)
