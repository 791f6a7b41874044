"""Agno: the tools of a server as a toolkit."""

from agno.tools.function import FunctionCall
from agno.tools.mcp import MCPTools, StreamableHTTPClientParams
from driving import find, run, text_of
from mcp import StdioServerParameters


async def look(target):
    """List and call."""
    if "url" in target:
        given = StreamableHTTPClientParams(url=target["url"], headers=target["headers"])
        tools = MCPTools(server_params=given, transport="streamable-http")
    else:
        program, *arguments = target["command"]
        given = StdioServerParameters(command=program, args=arguments, env=target["env"])
        tools = MCPTools(server_params=given)
    async with tools:
        functions = list(tools.functions.values())
        results = []
        for name, arguments in target["calls"]:
            done = await FunctionCall(function=find(functions, name), arguments=arguments).aexecute()
            results.append(text_of(getattr(done.result, "content", done.result)))
        return {"tools": [function.name for function in functions], "results": results}


run(look)
