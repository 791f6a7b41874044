"""A server for ``mcp.server.fastmcp``: version 1 of the official SDK."""

from contextlib import asynccontextmanager

from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.server.session import ServerSession
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field


@asynccontextmanager
async def lifespan(server):
    yield {"unit": "C"}


class Place(BaseModel):
    name: str = Field(description="Name of the place.")


mcp = FastMCP("weather", instructions="Ask for weather.", lifespan=lifespan, port=9000)
mcp.settings.port = 9001


@mcp.tool()
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@mcp.tool(annotations=ToolAnnotations(readOnlyHint=True), description="Tells the temperature.")
async def temperature(place: Place, ctx: Context[ServerSession, dict]) -> list[TextContent]:
    await ctx.info(f"asking for {place.name}")
    unit = ctx.request_context.lifespan_context["unit"]
    return [TextContent(type="text", text=f"21 {unit} in {place.name}, port {ctx.fastmcp.settings.port}")]


@mcp.tool()
def refused() -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text="not today")], isError=True)


@mcp.tool()
def broken() -> str:
    raise ToolError("no such thing")


@mcp.resource("weather://{city}")
def weather(city: str) -> str:
    return f"{city}: fine"


@mcp.prompt()
def ask(city: str) -> str:
    return f"How is {city}?"


if __name__ == "__main__":
    mcp.run(transport="stdio")
