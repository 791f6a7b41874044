"""Microsoft's Agent Framework: the tools of a server as its own."""

from agent_framework import MCPStdioTool, MCPStreamableHTTPTool
from driving import find, run, text_of


async def look(target):
    """List and call."""
    if "url" in target:
        server = MCPStreamableHTTPTool("fleet", target["url"], load_prompts=False, static_headers=target["headers"])
    else:
        program, *arguments = target["command"]
        server = MCPStdioTool("fleet", program, load_prompts=False, args=arguments, env=target["env"])
    async with server:
        results = []
        for name, arguments in target["calls"]:
            results.append(text_of(await find(server.functions, name).invoke(arguments=arguments)))
        return {"tools": [tool.name for tool in server.functions], "results": results}


run(look)
