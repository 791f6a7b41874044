"""A server on the lower layer of the official Python SDK, for our client: pages, log level, subscriptions, notices."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import mcp_types as theirs
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged

__all__ = ["build", "serve"]

Context = ServerRequestContext[Any, Any]
CHANGES = InMemorySubscriptionBus()
LISTENERS = ListenHandler(CHANGES)
SUBSCRIBED: set[str] = set()


def _tool(name: str) -> theirs.Tool:
    return theirs.Tool(name=name, input_schema={"type": "object"})


async def list_tools(ctx: Context, params: theirs.PaginatedRequestParams | None) -> theirs.ListToolsResult:
    """Give one tool a page."""
    names = ["change", "loud", "end", "raw"]
    at = int(params.cursor) if params is not None and params.cursor is not None else 0
    following = str(at + 1) if at + 1 < len(names) else None
    return theirs.ListToolsResult(tools=[_tool(names[at])], next_cursor=following)


async def change(ctx: Context) -> theirs.CallToolResult:
    """Tell of changes in both ways: to listeners and to the session."""
    await CHANGES.publish(ToolsListChanged())
    await CHANGES.publish(ResourceUpdated(uri="note://fixed"))
    await ctx.session.send_tool_list_changed()
    for uri in sorted(SUBSCRIBED):
        await ctx.session.send_resource_updated(uri)
    return theirs.CallToolResult(content=[theirs.TextContent(text="told")])


async def loud(ctx: Context) -> theirs.CallToolResult:
    """Log an error."""
    await ctx.session.send_log_message(level="error", data={"count": 1}, logger="low")
    return theirs.CallToolResult(content=[theirs.TextContent(text="logged")])


async def end(ctx: Context) -> theirs.CallToolResult:
    """End all subscriptions."""
    LISTENERS.close()
    return theirs.CallToolResult(content=[theirs.TextContent(text="ended")])


async def raw(ctx: Context) -> theirs.CallToolResult:
    """Give every kind of content."""
    text = theirs.TextResourceContents(uri="note://inside", text="inside", mime_type="text/plain")
    return theirs.CallToolResult(
        content=[
            theirs.TextContent(text="one", annotations=theirs.Annotations(priority=0.5, audience=["user"])),
            theirs.AudioContent(data="AAAA", mime_type="audio/wav"),
            theirs.EmbeddedResource(resource=text),
            theirs.ResourceLink(name="fixed", uri="note://fixed"),
        ],
        structured_content={"ok": True},
        _meta={"example.com/mark": 7},
    )


TOOLS = {"change": change, "loud": loud, "end": end, "raw": raw}


async def call_tool(ctx: Context, params: theirs.CallToolRequestParams) -> theirs.CallToolResult:
    """Call a tool by its name."""
    return await TOOLS[params.name](ctx)


async def list_resources(ctx: Context, params: theirs.PaginatedRequestParams | None) -> theirs.ListResourcesResult:
    """Give the one resource."""
    return theirs.ListResourcesResult(resources=[theirs.Resource(name="fixed", uri="note://fixed")])


async def subscribe(ctx: Context, params: theirs.SubscribeRequestParams) -> theirs.EmptyResult:
    """Remember who wants to know."""
    SUBSCRIBED.add(str(params.uri))
    return theirs.EmptyResult()


async def unsubscribe(ctx: Context, params: theirs.UnsubscribeRequestParams) -> theirs.EmptyResult:
    """Forget it again."""
    SUBSCRIBED.discard(str(params.uri))
    return theirs.EmptyResult()


async def set_level(ctx: Context, params: theirs.SetLevelRequestParams) -> theirs.EmptyResult:
    """Take any level."""
    return theirs.EmptyResult()


def build() -> Server[Any]:
    """Make the server."""
    return Server(
        "low",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_subscriptions_listen=LISTENERS,
        on_set_logging_level=set_level,
    )


async def serve() -> None:
    """Serve over stdio until the other side goes away."""
    server = build()
    changes = NotificationOptions(tools_changed=True, resources_changed=True)
    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options(changes))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    asyncio.run(serve())
