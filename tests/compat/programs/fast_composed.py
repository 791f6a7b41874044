"""A FastMCP server made of parts: versions, mounted servers, providers, transforms, middleware, an HTTP API."""

import tempfile
from pathlib import Path

import httpx2
from fastmcp import Context, FastMCP
from fastmcp.server import create_proxy
from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.caching import CallToolSettings, ResponseCachingMiddleware
from fastmcp.server.middleware.response_limiting import ResponseLimitingMiddleware
from fastmcp.server.providers import LocalProvider
from fastmcp.server.providers.openapi import MCPType, OpenAPIProvider, RouteMap
from fastmcp.server.providers.skills import SkillsDirectoryProvider
from fastmcp.server.transforms import Namespace, PromptsAsTools, ToolTransform
from fastmcp.tools.tool_transform import ToolTransformConfig

# The middleware sees the names that callers use.
mcp = FastMCP(
    "composed",
    middleware=[
        ResponseCachingMiddleware(call_tool_settings=CallToolSettings(included_tools=["all_counted"])),
        ResponseLimitingMiddleware(max_size=400, tools=["all_long"]),
    ],
)
COUNTS = {"counted": 0}


@mcp.tool(version="1.0", name="convert")
def convert_to_feet(metres: float) -> str:
    """Convert metres."""
    return f"{metres * 3.28:.1f} ft"


@mcp.tool(version="2.0", name="convert")
def convert_to_yards(metres: float) -> str:
    """Convert metres."""
    return f"{metres * 1.09:.1f} yd"


@mcp.tool
def counted() -> int:
    """Count the calls."""
    COUNTS["counted"] += 1
    return COUNTS["counted"]


@mcp.tool
def long() -> str:
    """Say much."""
    return "x" * 1000


@mcp.prompt
def greet(name: str) -> str:
    """Greet."""
    return f"Hello {name}"


# --- a mounted server, with middleware of its own


class Loud(Middleware):
    """Passes calls on with an argument in capitals."""

    async def on_call_tool(self, context, call_next):  # type: ignore[no-untyped-def]
        """Change the message."""
        changed = context.message.model_copy(update={"arguments": {"text": context.message.arguments["text"].upper()}})
        return await call_next(context.copy(message=changed))


child = FastMCP("child", middleware=[Loud()])


@child.tool
async def echo(text: str, ctx: Context) -> str:
    """Repeat."""
    await ctx.info("echoing")
    return f"{text} from {ctx.fastmcp.name}"


mcp.mount(child, namespace="loud")
mcp.mount(create_proxy(child), namespace="far")

# --- providers

library = LocalProvider()


@library.tool
def shelve(book: str, ctx: Context) -> str:
    """Shelve a book."""
    return f"{book} in {ctx.fastmcp.name}"


@library.resource("book://{title}")
def book(title: str) -> str:
    """Read a book."""
    return f"The text of {title}"


library.add_transform(ToolTransform({"shelve": ToolTransformConfig(name="put_away")}))
mcp.add_provider(library, namespace="lib")

folder = Path(tempfile.mkdtemp())
(folder / "knots").mkdir()
(folder / "knots" / "SKILL.md").write_text("---\ndescription: Ties knots\n---\n# Knots\n")
(folder / "knots" / "bowline.md").write_text("# Bowline\n")
mcp.add_provider(SkillsDirectoryProvider(folder))


def answer(request: httpx2.Request) -> httpx2.Response:
    """Stand for the HTTP API."""
    return httpx2.Response(200, json={"path": request.url.path, "query": dict(request.url.params)})


API = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/pets/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
            "get": {"operationId": "get_pet", "responses": {"200": {"description": "A pet"}}},
            "post": {
                "operationId": "feed_pet",
                "parameters": [{"name": "times", "in": "query", "schema": {"type": "integer"}}],
                "responses": {"200": {"description": "Fed"}},
            },
        }
    },
}
client = httpx2.AsyncClient(base_url="https://pets.example", transport=httpx2.MockTransport(answer))
maps = [RouteMap(methods=["GET"], mcp_type=MCPType.RESOURCE_TEMPLATE)]
mcp.add_provider(OpenAPIProvider(API, client, route_maps=maps))

mcp.add_transform(PromptsAsTools(mcp))
mcp.add_transform(Namespace("all"))
mcp.disable(names={"all_list_prompts"})
