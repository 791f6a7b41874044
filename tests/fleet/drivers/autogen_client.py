"""AutoGen: the tools of a server as its own, over stdio with requests that give up after five seconds."""

from autogen_core import CancellationToken
from autogen_ext.tools.mcp import StdioServerParams, StreamableHttpServerParams, mcp_server_tools
from driving import find, run, text_of


async def look(target):
    """List and call."""
    if "url" in target:
        given = StreamableHttpServerParams(url=target["url"], headers=target["headers"])
    else:
        program, *arguments = target["command"]
        given = StdioServerParams(command=program, args=arguments, env=target["env"])
    tools = await mcp_server_tools(given)
    results = []
    for name, arguments in target["calls"]:
        results.append(text_of(await find(tools, name).run_json(arguments, CancellationToken())))
    return {"tools": [tool.name for tool in tools], "results": results}


run(look)
