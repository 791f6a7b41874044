"""Kinds of results and arguments that the official server lacks: audio, every embedded resource, nested values."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Literal

from msgspec import Meta

from trunkline import Audio, Image, RequestFailed, Server, ToolError
from trunkline.servers.everything.basics import READS
from trunkline.servers.everything.media import icon, picture, sound
from trunkline.types import Annotations, EmbeddedResource, ResourceContents, ResourceLink, TextContent

__all__ = ["add_content"]


def add_content(server: Server) -> None:
    """Register the content tools."""
    plain: dict[str, Any] = {"annotations": READS, "output_schema": None}
    server.add_tool(get_audio, name="get-audio", title="Sound", icons=[icon()], **plain)
    server.add_tool(get_every_content, name="get-every-content", title="Every kind of content", **plain)
    server.add_tool(get_timetable, name="get-timetable", title="Timetable", annotations=READS)
    server.add_tool(fail, name="fail", title="Fail", **plain)
    server.add_tool(book_seat, name="book-seat", title="JSON Schema 2020-12", input_schema=_seat_schema(), **plain)
    server.add_tool(get_region, name="get-region", title="Argument in a header", **plain)


async def get_audio() -> list[Any]:
    """Give a short sound."""
    return ["A short tone:", Audio(data=sound())]


async def get_every_content() -> list[Any]:
    """Give a block of every kind there is, resources embedded as text, as JSON and as bytes."""
    blob = b64encode(picture()).decode()
    marked = Annotations(audience=["user"], priority=0.5, last_modified="2020-01-02T03:04:05Z")
    return [
        TextContent(text="Every kind of content:", annotations=marked, meta={"example.com/kind": "text"}),
        Image(data=picture(), annotations=marked),
        Audio(data=sound()),
        ResourceLink(
            uri="demo://resource/shared/note", name="note", mime_type="text/plain", icons=[icon()], annotations=marked
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
    """Where a train stops."""

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
    """Give records inside lists inside records as structured content, with the schema that describes them."""
    stops = [Stop("Harbour", 0, "1"), Stop("Market", 12), Stop("Summit", 31, "2a")]
    return Timetable(day, [Train(7, "slow", stops, {"first": 0, "second": 48}), Train(9, "fast", [stops[0], stops[2]])])


async def fail(
    how: Annotated[
        Literal["tool", "protocol", "crash"],
        Meta(description="As an answer for the model, as an error answer, or by a defect whose text stays here"),
    ] = "tool",
) -> str:
    """Fail in one of three ways."""
    if how == "tool":
        raise ToolError("This tool fails on purpose; the model may read why.")
    if how == "protocol":
        raise RequestFailed("This request is refused on purpose.", code=-32050, data={"why": "asked for"})
    raise RuntimeError("the text of a defect, which callers are not told")


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
    """Take arguments under a schema that uses what only JSON Schema 2020-12 has."""
    row, letter = booking["seat"]
    return f"Seat {row}{letter} is booked for one {booking.get('kind', 'adult')}."


async def get_region(
    region: Annotated[
        str,
        Meta(
            description="A name that HTTP repeats in a header",
            max_length=64,
            extra_json_schema={"x-mcp-header": "Region"},
        ),
    ],
) -> str:
    """Take an argument that over HTTP also travels in the header Mcp-Param-Region."""
    return f"Region: {region}"
