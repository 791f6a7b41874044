"""Haystack: the tools of a server as a toolset, whose calls block."""

from driving import find, run, text_of
from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo, StreamableHttpServerInfo


async def look(target):
    """List and call."""
    if "url" in target:
        server = StreamableHttpServerInfo(url=target["url"], headers=target["headers"])
    else:
        program, *arguments = target["command"]
        server = StdioServerInfo(command=program, args=arguments, env=target["env"])
    toolset = MCPToolset(server, eager_connect=True)
    try:
        results = [text_of(find(toolset, name).invoke(**arguments)) for name, arguments in target["calls"]]
        return {"tools": [tool.name for tool in toolset], "results": results}
    finally:
        toolset.close()


run(look)
