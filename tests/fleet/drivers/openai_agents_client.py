"""The OpenAI Agents SDK: its MCP servers, without a model. Each request gives up after five seconds."""

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from driving import run, text_of


async def look(target):
    """List and call."""
    if "url" in target:
        server = MCPServerStreamableHttp({"url": target["url"], "headers": target["headers"]})
    else:
        program, *arguments = target["command"]
        params = {"command": program, "args": arguments, "env": target["env"]}
        server = MCPServerStdio(params)
    async with server:
        tools = await server.list_tools()
        results = [text_of((await server.call_tool(name, arguments)).content) for name, arguments in target["calls"]]
        return {"tools": [tool.name for tool in tools], "results": results}


run(look)
