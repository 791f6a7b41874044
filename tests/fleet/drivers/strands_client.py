"""Strands Agents: its MCP client, which runs in a thread of its own."""

from driving import run, text_of
from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamablehttp_client
from strands.tools.mcp import MCPClient


async def look(target):
    """List and call."""

    def transport():
        if "url" in target:
            return streamablehttp_client(target["url"], headers=target["headers"])
        program, *arguments = target["command"]
        return stdio_client(StdioServerParameters(command=program, args=arguments, env=target["env"]))

    with MCPClient(transport) as client:
        tools = client.list_tools_sync()
        results = []
        for number, (name, arguments) in enumerate(target["calls"]):
            results.append(text_of(client.call_tool_sync(f"call-{number}", name, arguments)["content"]))
        return {"tools": [tool.tool_name for tool in tools], "results": results}


run(look)
