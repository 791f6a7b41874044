"""LlamaIndex's tools for MCP."""

from driving import find, run, text_of
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec


class _Named:
    def __init__(self, tool):
        self.tool = tool
        self.name = tool.metadata.name


async def look(target):
    """List and call."""
    if "url" in target:
        client = BasicMCPClient(target["url"], headers=target["headers"])
    else:
        program, *arguments = target["command"]
        client = BasicMCPClient(program, args=arguments, env=target["env"])
    tools = [_Named(tool) for tool in await McpToolSpec(client).to_tool_list_async()]
    results = []
    for name, arguments in target["calls"]:
        output = await find(tools, name).tool.acall(**arguments)
        results.append(text_of(output.raw_output))
    return {"tools": [tool.name for tool in tools], "results": results}


run(look)
