"""A server for ``mcp.server.lowlevel``: one handler for each method."""

import asyncio

import mcp.server.stdio
import mcp.types as types
from mcp.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions

server = Server("notes")
NOTES = {"first": "Hello"}


@server.list_tools()
async def list_tools() -> list[types.Tool]:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return [types.Tool(name="read", description="Read a note.", inputSchema=schema)]


@server.call_tool()
async def call_tool(name: str, arguments: dict) -> list[types.TextContent | types.ImageContent]:
    await server.request_context.session.send_resource_list_changed()
    return [types.TextContent(type="text", text=NOTES[arguments["name"]])]


@server.list_resources()
async def list_resources() -> list[types.Resource]:
    return [types.Resource(uri=f"note://internal/{name}", name=name, mimeType="text/plain") for name in NOTES]


@server.read_resource()
async def read_resource(uri) -> str:
    return NOTES[uri.path.removeprefix("/")]


@server.list_prompts()
async def list_prompts() -> list[types.Prompt]:
    return [types.Prompt(name="sum", arguments=[types.PromptArgument(name="style", required=False)])]


@server.get_prompt()
async def get_prompt(name: str, arguments: dict | None) -> types.GetPromptResult:
    message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=str(arguments)))
    return types.GetPromptResult(description="Sum up", messages=[message])


async def main():
    async with mcp.server.stdio.stdio_server() as (reading, writing):
        capabilities = server.get_capabilities(NotificationOptions(), {})
        options = InitializationOptions(server_name="notes", server_version="0.1.0", capabilities=capabilities)
        await server.run(reading, writing, options)


if __name__ == "__main__":
    asyncio.run(main())
