"""A server for ``mcp.server.mcpserver`` over HTTP: run by itself, or as an application under uvicorn."""

import sys

from mcp.server.mcpserver import Context, MCPServer
from starlette.responses import PlainTextResponse

mcp = MCPServer("over-http")


@mcp.tool()
def shout(text: str, ctx: Context) -> str:
    """Say it louder."""
    return f"{text.upper()} {(ctx.headers or {}).get('x-team', 'nobody')}"


@mcp.custom_route("/health", methods=["GET"])
async def health(request):
    return PlainTextResponse("fine")


if __name__ == "__main__":
    how, port = sys.argv[1], int(sys.argv[2])
    if how in ("streamable-http", "sse"):
        mcp.run(how, port=port)
    else:
        import uvicorn

        app = mcp.sse_app() if how == "sse_app" else mcp.streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
