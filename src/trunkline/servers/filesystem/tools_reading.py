"""The tools that read files."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Mapping
from functools import partial
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta

from trunkline.errors import ToolError
from trunkline.server import Context, Server, ToolResult
from trunkline.servers.filesystem.desk import CONTENT, READS, Desk, answer, in_words
from trunkline.servers.filesystem.limits import Budget, FileLimits, shown_size
from trunkline.servers.filesystem.reading import head_lines, read_bytes, tail_lines, text_of
from trunkline.servers.filesystem.walking import Ground, Place
from trunkline.types import AudioContent, EmbeddedResource, ImageContent, ResourceContents

__all__ = ["add_reading_tools"]

Tail = Annotated[float | None, Meta(description="Give only this many lines, counted from the end")]
Head = Annotated[float | None, Meta(description="Give only this many lines, counted from the beginning")]
Paths = Annotated[list[str], Meta(min_length=1, description="The paths of the files, each in an allowed folder")]

_MEDIA: Mapping[str, str] = MappingProxyType(
    {
        ".png": "image/png",
        ".jpg": "image/jpeg",
        ".jpeg": "image/jpeg",
        ".gif": "image/gif",
        ".webp": "image/webp",
        ".bmp": "image/bmp",
        ".svg": "image/svg+xml",
        ".mp3": "audio/mpeg",
        ".wav": "audio/wav",
        ".ogg": "audio/ogg",
        ".flac": "audio/flac",
    }
)


def add_reading_tools(server: Server, desk: Desk) -> None:
    """Add the tools that read files."""
    options: dict[str, Any] = {"annotations": READS, "output_schema": dict(CONTENT)}

    async def read_text(ctx: Context, path: str, tail: float | None, head: float | None) -> ToolResult:
        first, last = _count(head, "head"), _count(tail, "tail")
        if first and last:
            raise ToolError("Give head or tail, not both.")
        return answer(await desk.at(ctx, path, lambda place: _text(place, first, last, desk.limits)))

    @server.tool(title="Read File (Deprecated)", **options)
    async def read_file(ctx: Context, path: str, tail: Tail = None, head: Head = None) -> ToolResult:
        """Read a file as text. The older name of read_text_file, which does the same: prefer that."""
        return await read_text(ctx, path, tail, head)

    @server.tool(title="Read Text File", **options)
    async def read_text_file(ctx: Context, path: str, tail: Tail = None, head: Head = None) -> ToolResult:
        """Read a file as UTF-8 text, whatever its extension: all of it, its first lines (head) or its last (tail).

        A path may be relative to an allowed folder. Of a file that is too large to read whole, ask for lines.
        """
        return await read_text(ctx, path, tail, head)

    @server.tool(title="Read Media File", annotations=READS, output_schema=_media_schema())
    async def read_media_file(ctx: Context, path: str) -> ToolResult:
        """Read a file as base64 with its MIME type: pictures and sound as such, anything else as a resource."""
        return await desk.at(ctx, path, lambda place: _media(place, desk.limits))

    @server.tool(title="Read Multiple Files", **options)
    async def read_multiple_files(ctx: Context, paths: Paths) -> ToolResult:
        """Read several files as text in one call: each path with its text, or with the reason why it has none."""
        budget = Budget(desk.limits)
        work = partial(_several, paths=paths, budget=budget, most=desk.limits.file_bytes)
        return answer(await desk.do(ctx, paths[0], work, budget=budget))


def _count(given: float | None, what: str) -> int:
    count = math.ceil(given or 0)
    if count < 0:
        raise ToolError(f"{what} is a number of lines, not {given:g}.")
    return count


def _text(place: Place, first: int, last: int, limits: FileLimits) -> str:
    if first:
        return head_lines(place, first, most=limits.file_bytes)
    if last:
        return tail_lines(place, last, most=limits.file_bytes)
    return text_of(read_bytes(place, limits.file_bytes))


def _several(ground: Ground, paths: list[str], budget: Budget, most: int) -> str:
    found, left = [], most
    for path in paths:
        try:
            budget.check_time()
            data = ground.use(path, lambda place, left=left: _one_of_several(place, left, most))  # type: ignore[misc]
            left -= len(data)
            found.append(f"{path}:\n{text_of(data)}\n")
        except ToolError as error:
            found.append(f"{path}: Error - {error}")
        except OSError as error:
            found.append(f"{path}: Error - {in_words(error, path)}")
    return "\n---\n".join(found)


def _one_of_several(place: Place, left: int, most: int) -> bytes:
    try:
        return read_bytes(place, left)
    except ToolError:
        size = getattr(place.status(), "st_size", 0)
        if size > most:
            raise
        raise ToolError(f"The files together have more than {shown_size(most)}; read it alone.") from None


def _media(place: Place, limits: FileLimits) -> ToolResult:
    kind = _MEDIA.get(os.path.splitext(place.name)[1].lower(), "application/octet-stream")
    data = base64.b64encode(read_bytes(place, limits.file_bytes)).decode()
    plain: dict[str, Any]
    block: ImageContent | AudioContent | EmbeddedResource
    if kind.startswith("image/"):
        block, plain = ImageContent(data=data, mime_type=kind), {"type": "image", "data": data, "mimeType": kind}
    elif kind.startswith("audio/"):
        block, plain = AudioContent(data=data, mime_type=kind), {"type": "audio", "data": data, "mimeType": kind}
    else:
        uri = PurePosixPath(place.path).as_uri()
        block = EmbeddedResource(resource=ResourceContents(uri=uri, mime_type=kind, blob=data))
        plain = {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "blob": data}}
    return ToolResult([block], {"content": [plain]})


def _media_schema() -> dict[str, Any]:
    text = {"type": "string"}
    media = {
        "type": "object",
        "properties": {"type": {"type": "string", "enum": ["image", "audio"]}, "data": text, "mimeType": text},
        "required": ["type", "data", "mimeType"],
        "additionalProperties": False,
    }
    contents = {
        "type": "object",
        "properties": {"uri": text, "mimeType": text, "blob": text},
        "required": ["uri", "blob"],
        "additionalProperties": False,
    }
    resource = {
        "type": "object",
        "properties": {"type": {"type": "string", "const": "resource"}, "resource": contents},
        "required": ["type", "resource"],
        "additionalProperties": False,
    }
    blocks = {"type": "array", "items": {"anyOf": [media, resource]}}
    return {"type": "object", "properties": {"content": blocks}, "required": ["content"]}
