"""The tools of the official server that need nothing from the client: text, images, structured content, progress."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trunkline import Context, Image, Server, ToolError
from trunkline.servers.everything.dynamic import Kind, as_number, dynamic, dynamic_uri, positive
from trunkline.servers.everything.environment import shown_environment
from trunkline.servers.everything.media import picture
from trunkline.types import Annotations, ResourceLink, TextContent

__all__ = ["ACTS", "ACTS_OUTSIDE", "READS", "add_basics"]

#: Tool annotations: read-only, acts on this server, acts on the outside world.
READS: Mapping[str, bool] = MappingProxyType(
    {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
)
ACTS: Mapping[str, bool] = MappingProxyType({**READS, "readOnlyHint": False, "idempotentHint": False})
ACTS_OUTSIDE: Mapping[str, bool] = MappingProxyType({**ACTS, "openWorldHint": True})

_WEATHER: Mapping[str, tuple[int, str, int]] = MappingProxyType(
    {
        "New York": (33, "Cloudy", 82),
        "Chicago": (36, "Light rain / drizzle", 82),
        "Los Angeles": (73, "Sunny / Clear", 48),
    }
)
_NUMBER, _WORDS = "number", "string"
_MOST_SECONDS = 600.0
_MOST_STEPS = 10_000


def add_basics(server: Server, *, show_environment: bool) -> None:
    """Register the basic tools."""

    async def get_env() -> str:
        """Show the environment of the server process, to see how it was configured; secrets are left out."""
        shown = shown_environment(os.environ, whole=show_environment)
        return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()

    plain: dict[str, Any] = {"annotations": READS, "output_schema": None}
    server.add_tool(echo, name="echo", title="Echo", **plain)
    server.add_tool(get_annotated_message, name="get-annotated-message", title="Annotated message", **plain)
    server.add_tool(get_env, name="get-env", title="Environment", **plain)
    server.add_tool(get_resource_links, name="get-resource-links", title="Resource links", **plain)
    server.add_tool(get_resource_reference, name="get-resource-reference", title="Resource reference", **plain)
    server.add_tool(
        get_structured_content,
        name="get-structured-content",
        title="Structured content",
        annotations=READS,
        output_schema=_weather_schema(),
    )
    server.add_tool(get_sum, name="get-sum", title="Sum", **plain)
    server.add_tool(get_tiny_image, name="get-tiny-image", title="Tiny image", **plain)
    server.add_tool(
        trigger_long_running_operation, name="trigger-long-running-operation", title="Long operation", **plain
    )


async def echo(message: Annotated[str, Meta(description="What to say back")]) -> str:
    """Say a message back."""
    return f"Echo: {message}"


async def get_sum(
    a: Annotated[float, Meta(description="The first number")], b: Annotated[float, Meta(description="The second")]
) -> str:
    """Add two numbers."""
    return f"The sum of {as_number(a)} and {as_number(b)} is {as_number(a + b)}."


async def get_tiny_image() -> list[Any]:
    """Give a small picture between two texts."""
    return ["Here's the image you requested:", Image(data=picture()), "The image above is three rails."]


_MESSAGES: Mapping[str, TextContent] = MappingProxyType(
    {
        "error": TextContent(
            text="Error: Operation failed", annotations=Annotations(priority=1.0, audience=["user", "assistant"])
        ),
        "success": TextContent(
            text="Operation completed successfully", annotations=Annotations(priority=0.7, audience=["user"])
        ),
        "debug": TextContent(
            text="Debug: Cache hit ratio 0.95, latency 150ms",
            annotations=Annotations(priority=0.3, audience=["assistant"]),
        ),
    }
)


async def get_annotated_message(
    messageType: Annotated[Literal["error", "success", "debug"], Meta(description="What kind of message")],
    includeImage: Annotated[bool, Meta(description="Whether a picture comes along")] = False,
) -> list[Any]:
    """Give a message that says for whom it is and how much it matters."""
    content: list[Any] = [_MESSAGES[messageType]]
    if includeImage:
        content.append(Image(data=picture(), annotations=Annotations(priority=0.5, audience=["user"])))
    return content


def _weather_schema() -> dict[str, Any]:
    fields = {
        "temperature": {"type": _NUMBER, "description": "In the unit of the place"},
        "conditions": {"type": _WORDS, "description": "What the sky looks like"},
        "humidity": {"type": _NUMBER, "description": "In percent"},
    }
    return {"type": "object", "properties": fields, "required": list(fields)}


async def get_structured_content(
    location: Annotated[Literal["New York", "Chicago", "Los Angeles"], Meta(description="Which city")],
) -> dict[str, Any]:
    """Give the weather of a city as structured content that its output schema describes."""
    return dict(zip(("temperature", "conditions", "humidity"), _WEATHER[location], strict=True))


async def get_resource_links(
    count: Annotated[float, Meta(description="How many links, 1 to 10", ge=1, le=10)] = 3,
) -> list[Any]:
    """Give links to resources of this server."""
    content: list[Any] = [f"Here are {as_number(count)} resource links to resources available in this server:"]
    for number in range(1, int(count) + 1):
        kind: Kind = "Blob" if number % 2 else "Text"
        content.append(
            ResourceLink(
                uri=dynamic_uri(kind, number),
                name=f"{kind} Resource {number}",
                description=f"Resource {number}: plaintext resource",
                mime_type="text/plain",
            )
        )
    return content


async def get_resource_reference(
    resourceType: Kind = "Text",
    resourceId: Annotated[float, Meta(description="Its number, from 1")] = 1,
) -> list[Any]:
    """Give a resource of this server inside the result."""
    number = positive(resourceId)
    return [
        f"Returning resource reference for Resource {number}:",
        dynamic(resourceType, number),
        f"You can access this resource using the URI: {dynamic_uri(resourceType, number)}",
    ]


async def trigger_long_running_operation(
    ctx: Context,
    duration: Annotated[float, Meta(description="How long it takes, in seconds")] = 10,
    steps: Annotated[float, Meta(description="In how many steps")] = 5,
) -> str:
    """Work for a while and report progress after each step."""
    if not 0 <= duration <= _MOST_SECONDS or not 1 <= steps <= _MOST_STEPS:
        raise ToolError(f"duration must be 0 to {_MOST_SECONDS:g} seconds and steps 1 to {_MOST_STEPS}.")
    for step in range(1, int(steps) + 1):
        await sleep(ctx, duration / steps)
        await ctx.report_progress(step, int(steps) if steps == int(steps) else steps)
    return f"Long running operation completed. Duration: {as_number(duration)} seconds, Steps: {as_number(steps)}."


async def sleep(ctx: Context, seconds: float) -> None:
    """Sleep on the server's clock, which tests control."""
    if seconds <= 0:
        await asyncio.sleep(0)
        return
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    row = ctx.server.timekeeper().after(seconds, lambda: None if done.done() else done.set_result(None))
    try:
        await done
    finally:
        row.cancel()
