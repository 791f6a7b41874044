"""Reading files and listing folders, and the tools that read files. Every read is bounded."""

from __future__ import annotations

import base64
import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta, Struct

from trunkline.errors import ToolError
from trunkline.server import Context, Server, ToolResult
from trunkline.types import AudioContent, EmbeddedResource, ImageContent, ResourceContents
from trunkline_servers.filesystem.path_resolver import Location, PathDenied, PathResolver, birth_seconds, displayable
from trunkline_servers.filesystem.worker import (
    CONTENT_SCHEMA,
    READ_HINTS,
    FileBudget,
    FileLimits,
    FileWorker,
    describe_os_error,
    format_size,
    text_result,
)

__all__ = [
    "FolderEntry",
    "add_reading_tools",
    "decode_utf8",
    "entries_of",
    "file_info",
    "head_lines",
    "list_folder",
    "list_folder_with_sizes",
    "open_for_reading",
    "read_bytes",
    "tail_lines",
]

_BLOCK = 64 * 1024
#: The collation order of characters other than letters.
_SIGNS = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789"


class FolderEntry(Struct, frozen=True):
    """One entry of a folder; a link is not a folder, whatever it points to."""

    name: str
    is_folder: bool
    is_link: bool


@contextmanager
def open_for_reading(location: Location) -> Iterator[int]:
    """Open a regular file for reading."""
    descriptor = location.open_file()
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_bytes(location: Location, most: int) -> bytes:
    """Read a whole file.

    Raises:
        ToolError: it is larger than allowed.
    """
    descriptor, said = location.open_sized()
    try:
        _check_size(said, most)
        blocks, size = [], 0
        # One byte more than expected: if it is missing, the file has ended.
        while block := os.read(descriptor, said - size + 1 if size < said else _BLOCK):
            size += len(block)
            # The reported size may be outdated, or meaningless.
            _check_size(size, most)
            blocks.append(block)
            if size == said:
                break
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)
    finally:
        os.close(descriptor)


def decode_utf8(data: bytes) -> str:
    """Decode bytes as UTF-8; invalid bytes become U+FFFD."""
    return data.decode("utf-8", "replace")


def head_lines(location: Location, count: int, *, most: int) -> str:
    """Return the first lines of a file, reading no more than needed."""
    data, seen = bytearray(), 0
    with open_for_reading(location) as descriptor:
        while seen < count and (block := os.read(descriptor, _BLOCK)):
            seen += block.count(b"\n")
            data += block
            _check_lines(len(data), most)
    lines = bytes(data).split(b"\n")
    if not lines[-1]:
        lines.pop()
    return decode_utf8(b"\n".join(lines[:count]))


def tail_lines(location: Location, count: int, *, most: int) -> str:
    """Return the last lines of a file, with plain newlines, reading no more than needed."""
    blocks: list[bytes] = []
    with open_for_reading(location) as descriptor:
        start, seen, size = os.fstat(descriptor).st_size, 0, 0
        # One more newline than lines: the last line ends with one.
        while start > 0 and seen <= count:
            length = min(_BLOCK, start)
            start -= length
            block = os.pread(descriptor, length, start)
            seen, size = seen + block.count(b"\n"), size + len(block)
            blocks.append(block)
            _check_lines(size, most)
    text = b"".join(reversed(blocks)).replace(b"\r\n", b"\n")
    return decode_utf8(b"\n".join(text.removesuffix(b"\n").split(b"\n")[-count:]))


def entries_of(directory: int, most: int) -> tuple[list[FolderEntry], bool]:
    """Return the entries of an open folder by name, and whether there are more."""
    found: list[FolderEntry] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if len(found) >= most:
                return _sorted(found), True
            found.append(FolderEntry(entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()))
    return _sorted(found), False


def list_folder(location: Location, limits: FileLimits) -> str:
    """List a folder, one entry per line."""
    with _folder(location) as directory:
        found, more = entries_of(directory, limits.entries)
    return "\n".join([f"{_mark(each)} {displayable(each.name)}" for each in found] + _and_more(more, limits))


def list_folder_with_sizes(resolver: PathResolver, location: Location, *, by_size: bool, limits: FileLimits) -> str:
    """List a folder with sizes and totals."""
    with _folder(location) as directory:
        found, more = entries_of(directory, limits.entries)
        sized = [(each, _size(resolver, location, each, directory)) for each in found]
    sized.sort(key=(lambda each: -each[1]) if by_size else (lambda each: _collation_key(each[0].name)))
    files = [size for each, size in sized if not each.is_folder]
    rows = [
        f"{_mark(each)} {displayable(each.name).ljust(30)} {'' if each.is_folder else format_size(size).rjust(10)}"
        for each, size in sized
    ]
    total = f"Total: {len(files)} files, {len(sized) - len(files)} directories"
    return "\n".join([*rows, *_and_more(more, limits), "", total, f"Combined size: {format_size(sum(files))}"])


def file_info(location: Location) -> str:
    """Return the metadata of an entry, one fact per line."""
    flags = getattr(os, "O_PATH", os.O_RDONLY)
    descriptor = location.open(flags)
    try:
        found, born = os.fstat(descriptor), birth_seconds(descriptor)
    finally:
        os.close(descriptor)
    facts = {
        "size": str(found.st_size),
        "created": _shown_time(found.st_ctime if born is None else born),
        "modified": _shown_time(found.st_mtime),
        "accessed": _shown_time(found.st_atime),
        "isDirectory": str(stat.S_ISDIR(found.st_mode)).lower(),
        "isFile": str(stat.S_ISREG(found.st_mode)).lower(),
        "permissions": f"{found.st_mode:o}"[-3:],
    }
    return "\n".join(f"{name}: {value}" for name, value in facts.items())


@contextmanager
def _folder(location: Location) -> Iterator[int]:
    directory = location.open(os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield directory
    finally:
        os.close(directory)


def _size(resolver: PathResolver, location: Location, entry: FolderEntry, directory: int) -> int:
    """Return the size of an entry; for a link, that of its target if the target is allowed."""
    try:
        if entry.is_link:
            found = resolver.use(os.path.join(location.path, entry.name), lambda target: target.status())
        else:
            found = os.stat(entry.name, dir_fd=directory, follow_symlinks=False)
    except (PathDenied, OSError):
        return 0
    return 0 if found is None else found.st_size


def _mark(entry: FolderEntry) -> str:
    return "[DIR]" if entry.is_folder else "[FILE]"


def _and_more(more: bool, limits: FileLimits) -> list[str]:
    return [f"(There are more than {limits.entries} entries; these are only some of them.)"] if more else []


def _sorted(entries: list[FolderEntry]) -> list[FolderEntry]:
    """Sort entries by the bytes of their names; for ASCII names that is the order of the characters."""
    plain = all([entry.name.isascii() for entry in entries])  # noqa: C419
    return sorted(entries, key=_name if plain else _bytes)


def _name(entry: FolderEntry) -> str:
    return entry.name


def _bytes(entry: FolderEntry) -> bytes:
    return os.fsencode(entry.name)


def _collation_key(name: str) -> tuple[Sequence[int], str]:
    """Return a sort key for human readers: punctuation, digits, letters, lower case before upper case."""
    location: Callable[[str], int] = _SIGNS.find
    folded = [location(each) if location(each) >= 0 else len(_SIGNS) + ord(each) for each in name.casefold()]
    return folded, name.swapcase()


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise ToolError(
            f"The file is larger than {format_size(most)}, the most that is read at once: read its first or last lines "
            "with head or tail, or start the server with a larger --max-file-bytes."
        )


def _check_lines(size: int, most: int) -> None:
    # Up to one block is read beyond the limit.
    if size > most + _BLOCK:
        raise ToolError(
            f"These lines are longer than {format_size(most)}, the most that is read at once: ask for fewer."
        )


def _shown_time(seconds: float) -> str:
    try:
        moment = datetime.fromtimestamp(seconds).astimezone()
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f} s since 1970"
    zone = moment.tzname()
    return f"{moment:%a %b %d %Y %H:%M:%S GMT%z} ({'Coordinated Universal Time' if zone == 'UTC' else zone})"


Tail = Annotated[float | None, Meta(description="Return only this many lines, counted from the end")]
Head = Annotated[float | None, Meta(description="Return only this many lines, counted from the beginning")]
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


def add_reading_tools(server: Server, worker: FileWorker) -> None:
    """Add the tools that read files."""
    options: dict[str, Any] = {"annotations": READ_HINTS, "output_schema": dict(CONTENT_SCHEMA)}

    async def read_text(ctx: Context, path: str, tail: float | None, head: float | None) -> ToolResult:
        first, last = _count(head, "head"), _count(tail, "tail")
        if first and last:
            raise ToolError("Give head or tail, not both.")
        return text_result(await worker.at(ctx, path, lambda location: _text(location, first, last, worker.limits)))

    @server.tool(title="Read File (Deprecated)", **options)
    async def read_file(ctx: Context, path: str, tail: Tail = None, head: Head = None) -> ToolResult:
        """Read a file as text. Deprecated: use read_text_file, which does the same."""
        return await read_text(ctx, path, tail, head)

    @server.tool(title="Read Text File", **options)
    async def read_text_file(ctx: Context, path: str, tail: Tail = None, head: Head = None) -> ToolResult:
        """Read a file as UTF-8 text, whatever its extension: all of it, its first lines (head) or its last (tail).

        A path may be relative to an allowed folder. If a file is too large to read completely, request lines.
        """
        return await read_text(ctx, path, tail, head)

    @server.tool(title="Read Media File", annotations=READ_HINTS, output_schema=_media_schema())
    async def read_media_file(ctx: Context, path: str) -> ToolResult:
        """Read a file as base64 with its MIME type: images and audio as such, anything else as a resource."""
        return await worker.at(ctx, path, lambda location: _media(location, worker.limits))

    @server.tool(title="Read Multiple Files", **options)
    async def read_multiple_files(ctx: Context, paths: Paths) -> ToolResult:
        """Read several files as text in one call; each path is followed by its text or by an error."""
        budget = FileBudget(worker.limits)
        work = partial(_several, paths=paths, budget=budget, most=worker.limits.file_bytes)
        return text_result(await worker.do(ctx, paths[0], work, budget=budget))


def _count(given: float | None, what: str) -> int:
    count = math.ceil(given or 0)
    if count < 0:
        raise ToolError(f"{what} is a number of lines, not {given:g}.")
    return count


def _text(location: Location, first: int, last: int, limits: FileLimits) -> str:
    if first:
        return head_lines(location, first, most=limits.file_bytes)
    if last:
        return tail_lines(location, last, most=limits.file_bytes)
    return decode_utf8(read_bytes(location, limits.file_bytes))


def _several(resolver: PathResolver, paths: list[str], budget: FileBudget, most: int) -> str:
    found, left = [], most
    for path in paths:
        try:
            budget.check_time()
            data = resolver.use(path, lambda location, left=left: _one_of_several(location, left, most))  # type: ignore[misc]
            left -= len(data)
            found.append(f"{path}:\n{decode_utf8(data)}\n")
        except ToolError as error:
            found.append(f"{path}: Error - {error}")
        except OSError as error:
            found.append(f"{path}: Error - {describe_os_error(error, path)}")
    return "\n---\n".join(found)


def _one_of_several(location: Location, left: int, most: int) -> bytes:
    try:
        return read_bytes(location, left)
    except ToolError:
        size = getattr(location.status(), "st_size", 0)
        if size > most:
            raise
        raise ToolError(f"The files together have more than {format_size(most)}; read it alone.") from None


def _media(location: Location, limits: FileLimits) -> ToolResult:
    kind = _MEDIA.get(os.path.splitext(location.name)[1].lower(), "application/octet-stream")
    data = base64.b64encode(read_bytes(location, limits.file_bytes)).decode()
    plain: dict[str, Any]
    block: ImageContent | AudioContent | EmbeddedResource
    if kind.startswith("image/"):
        block, plain = ImageContent(data=data, mime_type=kind), {"type": "image", "data": data, "mimeType": kind}
    elif kind.startswith("audio/"):
        block, plain = AudioContent(data=data, mime_type=kind), {"type": "audio", "data": data, "mimeType": kind}
    else:
        uri = PurePosixPath(location.path).as_uri()
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
