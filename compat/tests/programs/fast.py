"""A server for ``fastmcp``: middleware, a tool object, a hidden tool, dependencies."""

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_context, get_http_headers
from fastmcp.server.middleware import Middleware, MiddlewareContext
from fastmcp.tools import Tool
from fastmcp.tools.tool import ToolResult


class Stamp(Middleware):
    async def on_call_tool(self, context: MiddlewareContext, call_next):
        result = await call_next(context)
        result.meta = {"stamped": context.message.name}
        return result


mcp = FastMCP(name="fast", middleware=[Stamp()])


@mcp.tool
def hello(name: str = "you", ctx: Context = None) -> dict:
    """Say hello."""
    return {"hello": name, "headers": get_http_headers(), "same": get_context().request_id == ctx.request_id}


@mcp.tool(tags={"internal"})
def secret() -> str:
    return "hidden"


@mcp.tool
def fails() -> str:
    raise ToolError("nope")


def double(x: int) -> ToolResult:
    """Double a number."""
    return ToolResult(content=str(2 * x), structured_content={"doubled": 2 * x})


mcp.add_tool(Tool.from_function(double, name="twice", description="Twice as much"))
mcp.disable(tags={"internal"})
