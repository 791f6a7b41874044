"""The tools that need nothing from the client.

Text, images, audio, structured content, links, progress, failures, and the environment without its secrets.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trunkline import Audio, Context, Image, RequestFailed, Server, ToolError
from trunkline.server import looks_secret
from trunkline.types import Annotations, EmbeddedResource, ResourceContents, ResourceLink, TextContent
from trunkline_servers.everything.catalog import (
    ResourceKind,
    dynamic_resource,
    dynamic_uri,
    format_number,
    parse_resource_id,
    sample_icon,
    sample_png,
    sample_wav,
)

__all__ = ["ACTS", "ACTS_OUTSIDE", "HIDDEN", "READS", "add_basic_tools", "add_content_tools", "redacted_environment"]

#: Replaces a hidden value.
HIDDEN = "(hidden; start the server with --show-environment to see it)"


def redacted_environment(environment: Mapping[str, str], *, whole: bool) -> dict[str, str]:
    """Return the variables, with values that look secret hidden unless ``whole``."""
    return {name: value if whole or not looks_secret(name, value) else HIDDEN for name, value in environment.items()}


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


def add_basic_tools(server: Server, *, show_environment: bool) -> None:
    """Register the basic tools."""

    async def get_env() -> str:
        """Show the environment of the server process, to see how it was configured; secrets are left out."""
        shown = redacted_environment(os.environ, whole=show_environment)
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


async def echo(message: Annotated[str, Meta(description="The text to return")]) -> str:
    """Return a message unchanged."""
    return f"Echo: {message}"


async def get_sum(
    a: Annotated[float, Meta(description="The first number")], b: Annotated[float, Meta(description="The second")]
) -> str:
    """Add two numbers."""
    return f"The sum of {format_number(a)} and {format_number(b)} is {format_number(a + b)}."


async def get_tiny_image() -> list[Any]:
    """Return a small image between two texts."""
    return ["Here's the image you requested:", Image(data=sample_png()), "The image above is three rails."]


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
    messageType: Annotated[Literal["error", "success", "debug"], Meta(description="The kind of message")],
    includeImage: Annotated[bool, Meta(description="Whether to include an image")] = False,
) -> list[Any]:
    """Return a message whose annotations state its audience and priority."""
    content: list[Any] = [_MESSAGES[messageType]]
    if includeImage:
        content.append(Image(data=sample_png(), annotations=Annotations(priority=0.5, audience=["user"])))
    return content


def _weather_schema() -> dict[str, Any]:
    fields = {
        "temperature": {"type": _NUMBER, "description": "In the unit used at the place"},
        "conditions": {"type": _WORDS, "description": "The weather conditions"},
        "humidity": {"type": _NUMBER, "description": "In percent"},
    }
    return {"type": "object", "properties": fields, "required": list(fields)}


async def get_structured_content(
    location: Annotated[Literal["New York", "Chicago", "Los Angeles"], Meta(description="Which city")],
) -> dict[str, Any]:
    """Return the weather of a city as structured content with an output schema."""
    return dict(zip(("temperature", "conditions", "humidity"), _WEATHER[location], strict=True))


async def get_resource_links(
    count: Annotated[float, Meta(description="How many links, 1 to 10", ge=1, le=10)] = 3,
) -> list[Any]:
    """Return links to resources of this server."""
    content: list[Any] = [f"Here are {format_number(count)} resource links to resources available in this server:"]
    for number in range(1, int(count) + 1):
        kind: ResourceKind = "Blob" if number % 2 else "Text"
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
    resourceType: ResourceKind = "Text",
    resourceId: Annotated[float, Meta(description="The number of the resource, from 1")] = 1,
) -> list[Any]:
    """Return a resource of this server embedded in the result."""
    number = parse_resource_id(resourceId)
    return [
        f"Returning resource reference for Resource {number}:",
        dynamic_resource(resourceType, number),
        f"You can access this resource using the URI: {dynamic_uri(resourceType, number)}",
    ]


async def trigger_long_running_operation(
    ctx: Context,
    duration: Annotated[float, Meta(description="The duration in seconds")] = 10,
    steps: Annotated[float, Meta(description="The number of steps")] = 5,
) -> str:
    """Work for a while and report progress after each step."""
    if not 0 <= duration <= _MOST_SECONDS or not 1 <= steps <= _MOST_STEPS:
        raise ToolError(f"duration must be 0 to {_MOST_SECONDS:g} seconds and steps 1 to {_MOST_STEPS}.")
    for step in range(1, int(steps) + 1):
        await sleep(ctx, duration / steps)
        await ctx.report_progress(step, int(steps) if steps == int(steps) else steps)
    return (
        f"Long running operation completed. Duration: {format_number(duration)} seconds, Steps: {format_number(steps)}."
    )


async def sleep(ctx: Context, seconds: float) -> None:
    """Sleep on the server's clock, which tests control."""
    if seconds <= 0:
        await asyncio.sleep(0)
        return
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    row = ctx.server.call_later(seconds, lambda: None if done.done() else done.set_result(None))
    try:
        await done
    finally:
        row.cancel()


def add_content_tools(server: Server) -> None:
    """Register the content tools."""
    plain: dict[str, Any] = {"annotations": READS, "output_schema": None}
    server.add_tool(get_audio, name="get-audio", title="Sound", icons=[sample_icon()], **plain)
    server.add_tool(get_every_content, name="get-every-content", title="Every kind of content", **plain)
    server.add_tool(get_timetable, name="get-timetable", title="Timetable", annotations=READS)
    server.add_tool(fail, name="fail", title="Fail", **plain)
    server.add_tool(book_seat, name="book-seat", title="JSON Schema 2020-12", input_schema=_seat_schema(), **plain)
    server.add_tool(get_region, name="get-region", title="Argument in a header", **plain)


async def get_audio() -> list[Any]:
    """Return a short sound."""
    return ["A short tone:", Audio(data=sample_wav())]


async def get_every_content() -> list[Any]:
    """Return a content block of every kind, with resources embedded as text, as JSON and as bytes."""
    blob = b64encode(sample_png()).decode()
    marked = Annotations(audience=["user"], priority=0.5, last_modified="2020-01-02T03:04:05Z")
    return [
        TextContent(text="Every kind of content:", annotations=marked, meta={"example.com/kind": "text"}),
        Image(data=sample_png(), annotations=marked),
        Audio(data=sample_wav()),
        ResourceLink(
            uri="demo://resource/shared/note",
            name="note",
            mime_type="text/plain",
            icons=[sample_icon()],
            annotations=marked,
        ),
        _embedded("note.txt", "text/plain", text="Plain text."),
        _embedded("note.json", "application/json", text='{"kind":"json"}'),
        _embedded("picture.png", "image/png", blob=blob),
    ]


def _embedded(name: str, mime_type: str, *, text: str | None = None, blob: str | None = None) -> EmbeddedResource:
    contents = ResourceContents(uri=f"demo://resource/embedded/{name}", mime_type=mime_type, text=text, blob=blob)
    return EmbeddedResource(resource=contents)


@dataclass
class Stop:
    """A stop of a train."""

    station: str
    minute: Annotated[int, Meta(ge=0)]
    platform: str | None = None


@dataclass
class Train:
    """One train."""

    number: int
    kind: Literal["slow", "fast"]
    stops: list[Stop]
    seats: dict[str, int] = field(default_factory=dict)


@dataclass
class Timetable:
    """The trains of a day."""

    day: date
    trains: list[Train]


async def get_timetable(day: date = date(2020, 1, 2)) -> Timetable:
    """Return records nested in lists of records as structured content, with an output schema."""
    stops = [Stop("Harbour", 0, "1"), Stop("Market", 12), Stop("Summit", 31, "2a")]
    return Timetable(day, [Train(7, "slow", stops, {"first": 0, "second": 48}), Train(9, "fast", [stops[0], stops[2]])])


async def fail(
    how: Annotated[
        Literal["tool", "protocol", "crash"],
        Meta(
            description="As a tool error for the model, as a protocol error, or by a defect whose message is not sent"
        ),
    ] = "tool",
) -> str:
    """Fail in one of three ways."""
    if how == "tool":
        raise ToolError("This tool fails on purpose; the model may read why.")
    if how == "protocol":
        raise RequestFailed("This request fails on purpose.", code=-32050, data={"why": "asked for"})
    raise RuntimeError("the message of a defect, which callers do not receive")


def _seat_schema() -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"seat": {"type": "array", "prefixItems": [{"type": "integer", "minimum": 1}, {"enum": ["A", "B"]}]}},
        "properties": {
            "seat": {"$ref": "#/$defs/seat", "minItems": 2, "unevaluatedItems": False},
            "kind": {"enum": ["adult", "child"]},
            "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 18},
            "phone": {"type": "string", "pattern": "^[0-9 +]{3,20}$"},
            "email": {"type": "string", "maxLength": 200},
        },
        "required": ["seat"],
        "dependentRequired": {"age": ["kind"]},
        "anyOf": [{"required": ["phone"]}, {"required": ["email"]}],
        "if": {"properties": {"kind": {"const": "child"}}, "required": ["kind"]},
        "then": {"required": ["age"]},
        "unevaluatedProperties": False,
    }


async def book_seat(**booking: Any) -> str:
    """Accept arguments under a schema with keywords that only JSON Schema 2020-12 has."""
    row, letter = booking["seat"]
    return f"Seat {row}{letter} is booked for one {booking.get('kind', 'adult')}."


async def get_region(
    region: Annotated[
        str,
        Meta(
            description="A name that HTTP also sends in a header",
            max_length=64,
            extra_json_schema={"x-mcp-header": "Region"},
        ),
    ],
) -> str:
    """Accept an argument that HTTP clients also send in the header Mcp-Param-Region."""
    return f"Region: {region}"
