"""CrewAI: the tools of a server as its own, which are called in threads."""

from crewai_tools import MCPServerAdapter
from driving import find, run, text_of
from mcp import StdioServerParameters


async def look(target):
    """List and call."""
    if "url" in target:
        server = {"url": target["url"], "transport": "streamable-http", "headers": target["headers"]}
    else:
        program, *arguments = target["command"]
        server = StdioServerParameters(command=program, args=arguments, env=target["env"])
    with MCPServerAdapter(server) as tools:
        results = [text_of(find(tools, name).run(**arguments)) for name, arguments in target["calls"]]
        return {"tools": [tool.name for tool in tools], "results": results}


run(look)
