"""smolagents: the tools of a server as its own, which are called in threads."""

from driving import find, run, text_of
from mcp import StdioServerParameters
from smolagents import ToolCollection


async def look(target):
    """List and call."""
    if "url" in target:
        given = {"url": target["url"], "transport": "streamable-http", "headers": target["headers"]}
    else:
        program, *arguments = target["command"]
        given = StdioServerParameters(command=program, args=arguments, env=target["env"])
    with ToolCollection.from_mcp(given, trust_remote_code=True, structured_output=False) as collection:
        tools = collection.tools
        results = [text_of(find(tools, name)(**arguments)) for name, arguments in target["calls"]]
        return {"tools": [tool.name for tool in tools], "results": results}


run(look)
