"""CAMEL: its MCP client, whose requests give up after ten seconds."""

from camel.utils.mcp_client import MCPClient
from driving import run, text_of


async def look(target):
    """List and call."""
    if "url" in target:
        server = {"url": target["url"], "headers": target["headers"]}
    else:
        program, *arguments = target["command"]
        server = {"command": program, "args": arguments, "env": target["env"]}
    async with MCPClient(server) as client:
        tools = [tool.get_function_name() for tool in client.get_tools()]
        results = [text_of((await client.call_tool(name, arguments)).content) for name, arguments in target["calls"]]
        return {"tools": tools, "results": results}


run(look)
