"""Google's Agent Development Kit: the tools of a server as a toolset, which gives up after five seconds."""

from unittest.mock import MagicMock

from driving import find, run, text_of
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from mcp import StdioServerParameters


async def look(target):
    """List and call."""
    if "url" in target:
        given = StreamableHTTPConnectionParams(url=target["url"], headers=target["headers"])
    else:
        program, *arguments = target["command"]
        server = StdioServerParameters(command=program, args=arguments, env=target["env"])
        given = StdioConnectionParams(server_params=server)
    toolset = McpToolset(connection_params=given)
    try:
        tools = await toolset.get_tools()
        results = []
        for name, arguments in target["calls"]:
            results.append(text_of(await find(tools, name).run_async(args=arguments, tool_context=MagicMock())))
        return {"tools": [tool.name for tool in tools], "results": results}
    finally:
        await toolset.close()


run(look)
