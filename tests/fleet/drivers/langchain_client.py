"""LangChain's adapters: the tools of a server as LangChain tools."""

from driving import find, run, text_of
from langchain_mcp_adapters.client import MultiServerMCPClient


async def look(target):
    """List and call."""
    if "url" in target:
        connection = {"transport": "streamable_http", "url": target["url"], "headers": target["headers"]}
    else:
        program, *arguments = target["command"]
        connection = {"transport": "stdio", "command": program, "args": arguments, "env": target["env"]}
    tools = await MultiServerMCPClient({"fleet": connection}).get_tools()
    results = [text_of(await find(tools, name).ainvoke(arguments)) for name, arguments in target["calls"]]
    return {"tools": [tool.name for tool in tools], "results": results}


run(look)
