"""BeeAI: the tools of a server as its own."""

from beeai_framework.tools.mcp import MCPTool
from driving import find, run, text_of
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


async def look(target):
    """List and call."""
    if "url" in target:
        client = streamablehttp_client(target["url"], headers=target["headers"])
    else:
        program, *arguments = target["command"]
        client = stdio_client(StdioServerParameters(command=program, args=arguments, env=target["env"]))
    tools = await MCPTool.from_client(client)
    results = [text_of((await find(tools, name).run(arguments)).result) for name, arguments in target["calls"]]
    return {"tools": [tool.name for tool in tools], "results": results}


run(look)
