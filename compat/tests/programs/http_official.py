"""A server for the official SDK over HTTP: run by itself, or as an application, also inside another one."""

import contextlib
import sys
from importlib import metadata

from starlette.responses import PlainTextResponse

how, port = sys.argv[1], int(sys.argv[2])
if metadata.version("mcp").startswith("1."):
    from mcp.server.fastmcp import Context, FastMCP

    plain = {"stateless_http": True, "json_response": True} if how == "mounted" else {}
    mcp, options = FastMCP("over-http", host="127.0.0.1", port=port, **plain), {}
else:
    from mcp.server.mcpserver import Context, MCPServer

    mcp, options = MCPServer("over-http"), {"port": port}


@mcp.tool()
def shout(text: str, ctx: Context) -> str:
    """Say it louder."""
    return f"{text.upper()} {ctx.request_context.request.headers.get('x-team', 'nobody')}"


@mcp.custom_route("/health", methods=["GET"])
async def health(request):
    return PlainTextResponse("fine")


if how in ("streamable-http", "sse"):
    mcp.run(how, **options)
else:
    import uvicorn

    if how == "mounted":
        from starlette.applications import Starlette
        from starlette.routing import Mount

        @contextlib.asynccontextmanager
        async def lifespan(app):
            async with mcp.session_manager.run():
                yield

        app = Starlette(routes=[Mount("/", app=mcp.streamable_http_app())], lifespan=lifespan)
    else:
        app = mcp.streamable_http_app()
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
