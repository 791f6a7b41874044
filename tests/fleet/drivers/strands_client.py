"""Strands Agents: its MCP client, which runs in a thread of its own."""

from driving import run, text_of
from strands.tools.mcp import MCPClient


async def look(target):
    """List and call."""
    if "url" in target:
        entry = {"url": target["url"], "headers": target["headers"]}
    else:
        program, *arguments = target["command"]
        entry = {"command": program, "args": arguments, "env": target["env"]}
    [client] = MCPClient.load_servers({"fleet": entry})
    with client:
        tools = client.list_tools_sync()
        results = []
        for number, (name, arguments) in enumerate(target["calls"]):
            results.append(text_of(client.call_tool_sync(f"call-{number}", name, arguments)["content"]))
        return {"tools": [tool.tool_name for tool in tools], "results": results}


run(look)
