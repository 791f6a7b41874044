"""A server for ``fastmcp`` over HTTP."""

import sys

from fastmcp import Context, FastMCP
from fastmcp.server.dependencies import get_http_headers, get_http_request
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

mcp = FastMCP("fast-http")


@mcp.tool
def team() -> str:
    """Say which team asks, and where; the caller's token is not passed on."""
    headers = get_http_headers()
    return f"{headers.get('x-team', 'nobody')} {get_http_request().url.path} {'authorization' in headers}"


@mcp.tool
async def count(ctx: Context) -> int:
    """Count the calls of this session."""
    stored = ctx.get_state("n")
    counted = (await stored if hasattr(stored, "__await__") else stored) or 0
    stored = ctx.set_state("n", counted + 1)
    if hasattr(stored, "__await__"):
        await stored
    return counted + 1


@mcp.resource("users://{user_id}/name")
def name(user_id: str) -> str:
    """Return a name."""
    return f"name of {user_id}"


@mcp.custom_route("/health", methods=["GET"])
async def health(request):
    return PlainTextResponse("fine")


class Stamp:
    """ASGI middleware that adds a header to every response."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        async def stamped(message):
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-stamp", b"1")]
            await send(message)

        await self.app(scope, receive, stamped)


port, stamps = int(sys.argv[1]), [Middleware(Stamp)]
if sys.argv[2:] == ["mounted"]:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import Mount

    inner = mcp.http_app(path="/mcp")
    routes = [Mount("/api", app=inner), Route("/health", health)]
    app = Starlette(routes=routes, lifespan=inner.lifespan, middleware=stamps)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
else:
    mcp.run("http", host="127.0.0.1", port=port, path="/api/mcp", middleware=stamps)
