"""Clients of both frameworks, against a server over HTTP at a URL and one that is started by a command."""

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.transports import SSETransport, StreamableHttpTransport
from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

url, command = sys.argv[1], sys.argv[2:]
HEADERS = {"x-team": "sky"}
LINES = []


async def use(streams):
    async with ClientSession(streams[0], streams[1]) as session:
        hello = await session.initialize()
        result = await session.call_tool("shout", {"text": "hi"})
        info = getattr(hello, "serverInfo", None) or hello.server_info
        LINES.append(f"{info.name} {result.content[0].text}")


async def main():
    async with streamablehttp_client(f"{url}/mcp", headers=HEADERS) as streams:
        await use(streams)
    async with sse_client(f"{url}/sse", headers=HEADERS) as streams:
        await use(streams)
    for target in (f"{url}/mcp", StreamableHttpTransport(f"{url}/mcp", headers=HEADERS), SSETransport(f"{url}/sse")):
        async with Client(target) as client:
            LINES.append((await client.call_tool("shout", {"text": "hi"})).data)
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        LINES.append(",".join(tool.name for tool in (await session.list_tools()).tools))


asyncio.run(main())
sys.stdout.write("\n".join(LINES))
