"""Pydantic AI: an agent with a model for tests, which calls the tools it is told to."""

from driving import find, run, text_of
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, RunContext
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage


async def look(target):
    """List and call, as an agent does in a run."""
    toolset = _toolset(target)
    context = RunContext(deps=None, model=TestModel(call_tools=[]), usage=RunUsage())
    async with Agent(context.model, toolsets=[toolset]):
        tools = await toolset.get_tools(context)
        named = [tool.tool_def for tool in tools.values()]
        results = []
        for name, arguments in target["calls"]:
            tool = find(named, name)
            results.append(text_of(await toolset.call_tool(tool.name, arguments, context, tools[tool.name])))
        return {"tools": list(tools), "results": results}


def _toolset(target):
    if "url" in target:
        return MCPToolset(target["url"], headers=target["headers"])
    program, *arguments = target["command"]
    return MCPToolset(StdioTransport(program, arguments, env=target["env"]))


run(look)
