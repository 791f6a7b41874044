"""Semantic Kernel: the tools of a server as a plugin of a kernel, whose requests give up after five seconds."""

from driving import find, run, text_of
from semantic_kernel import Kernel
from semantic_kernel.connectors.mcp import MCPStdioPlugin, MCPStreamableHttpPlugin


async def look(target):
    """List and call."""
    options = {"name": "fleet", "load_prompts": False, "request_timeout": 5}
    if "url" in target:
        plugin = MCPStreamableHttpPlugin(url=target["url"], headers=target["headers"], **options)
    else:
        program, *arguments = target["command"]
        plugin = MCPStdioPlugin(command=program, args=arguments, env=target["env"], **options)
    async with plugin:
        kernel = Kernel()
        functions = list(kernel.add_plugin(plugin).functions.values())
        results = []
        for name, arguments in target["calls"]:
            done = await kernel.invoke(find(functions, name), **arguments)
            results.append(text_of(done.value))
        return {"tools": [function.name for function in functions], "results": results}


run(look)
