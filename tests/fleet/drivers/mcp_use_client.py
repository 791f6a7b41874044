"""mcp-use: a client of several servers, from a configuration as other clients have it."""

from driving import run, text_of
from mcp_use import MCPClient


async def look(target):
    """List and call."""
    if "url" in target:
        entry = {"url": target["url"], "headers": target["headers"]}
    else:
        program, *arguments = target["command"]
        entry = {"command": program, "args": arguments, "env": target["env"]}
    client = MCPClient({"mcpServers": {"fleet": entry}})
    session = await client.create_session("fleet")
    try:
        tools = await session.list_tools()
        results = [text_of((await session.call_tool(name, arguments)).content) for name, arguments in target["calls"]]
        return {"tools": [tool.name for tool in tools], "results": results}
    finally:
        await client.close_all_sessions()


run(look)
