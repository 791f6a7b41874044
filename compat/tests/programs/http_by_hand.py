"""Applications that join the transports of the official SDK by hand: SSE, and a session manager inside a mount."""

import contextlib
import sys

import mcp.types as types
import uvicorn
from mcp.server import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

server = Server("by-hand")


@server.list_tools()
async def list_tools():
    return [types.Tool(name="length", inputSchema={"type": "object"})]


@server.call_tool()
async def call_tool(name, arguments):
    return [types.TextContent(type="text", text=str(len(arguments.get("text", ""))))]


sse = SseServerTransport("/messages/")
manager = StreamableHTTPSessionManager(
    app=server, security_settings=TransportSecuritySettings(allowed_hosts=["127.0.0.1:*"])
)


async def handle_sse(request):
    async with sse.connect_sse(request.scope, request.receive, request._send) as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
    return Response()


@contextlib.asynccontextmanager
async def lifespan(app):
    async with manager.run():
        yield


app = Starlette(
    routes=[
        Route("/sse", endpoint=handle_sse, methods=["GET"]),
        Mount("/messages/", app=sse.handle_post_message),
        Mount("/mcp", app=manager.handle_request),
    ],
    lifespan=lifespan,
)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
