"""Resources, resource templates and prompts with the completions of their arguments, and the content they share.

The shared content: a PNG, a WAV, resources generated from a number, the documents about this server and its
instructions.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta

from trunkline import AssistantMessage, Audio, Context, Image, Message, PromptError, Server, ToolError, UserMessage
from trunkline.errors import ResourceNotFound
from trunkline.types import Annotations, Completion, Icon, ResourceContents

__all__ = [
    "BLOB_URI_TEMPLATE",
    "DOCUMENTS",
    "INSTRUCTIONS",
    "LIBRARY_URI_TEMPLATE",
    "TEXT_URI_TEMPLATE",
    "ResourceKind",
    "add_extra_prompts",
    "add_extra_resources",
    "add_prompts",
    "add_resources",
    "complete_prefix",
    "dynamic_resource",
    "dynamic_uri",
    "format_number",
    "parse_resource_id",
    "parse_resource_id_text",
    "sample_icon",
    "sample_png",
    "sample_wav",
]

_SIDE = 20
_RATE = 8000
_RULE, _PAPER = b"\x1f\x4e\x79", b"\xf2\xf5\xf9"


@cache
def sample_png() -> bytes:
    """Return a PNG: three rails on a light background."""
    rows = (b"\0" + (_RULE if line % 7 in (3, 4) else _PAPER) * _SIDE for line in range(_SIDE))
    header = struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


@cache
def sample_wav() -> bytes:
    """Return a WAV: a twentieth of a second of a square wave, mono, 8 bits."""
    samples = bytes(160 if step // 10 % 2 else 96 for step in range(_RATE // 20))
    form = struct.pack("<HHIIHH", 1, 1, _RATE, _RATE, 1, 8)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


def sample_icon() -> Icon:
    """Return the image as an icon with a data URI."""
    source = "data:image/png;base64," + b64encode(sample_png()).decode()
    return Icon(src=source, mime_type="image/png", sizes=[f"{_SIDE}x{_SIDE}"])


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


ResourceKind = Literal["Text", "Blob"]
TEXT_URI_TEMPLATE = "demo://resource/dynamic/text/{resourceId}"
BLOB_URI_TEMPLATE = "demo://resource/dynamic/blob/{resourceId}"


def dynamic_uri(kind: ResourceKind, number: int) -> str:
    """Return the URI of a generated resource."""
    return (TEXT_URI_TEMPLATE if kind == "Text" else BLOB_URI_TEMPLATE).replace("{resourceId}", str(number))


def dynamic_resource(kind: ResourceKind, number: int) -> ResourceContents:
    """Generate a resource."""
    now = datetime.now()
    time = f"{now.hour % 12 or 12}:{now:%M:%S} {'AM' if now.hour < 12 else 'PM'}"
    if kind == "Text":
        text = f"Resource {number}: This is a plaintext resource created at {time}"
        return ResourceContents(uri=dynamic_uri(kind, number), mime_type="text/plain", text=text)
    blob = f"Resource {number}: This is a base64 blob created at {time}"
    return ResourceContents(
        uri=dynamic_uri(kind, number), mime_type="text/plain", blob=b64encode(blob.encode()).decode()
    )


def parse_resource_id(value: float) -> int:
    """Parse the number of a resource.

    Raises:
        ToolError: it is not a positive integer.
    """
    if not 1 <= value < 2**53 or value != int(value):
        raise ToolError(f"Invalid resourceId: {format_number(value)}. Must be a finite positive integer.")
    return int(value)


def parse_resource_id_text(value: str) -> int | None:
    """Parse the number of a resource from text; None if it is invalid."""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 16 and int(value) > 0 else None


def complete_prefix(words: Iterable[str], typed: str) -> Completion:
    """Return the words with the typed prefix as a complete completion."""
    values = [word for word in words if word.startswith(typed)]
    return Completion(values=values, total=len(values), has_more=False)


def format_number(value: float) -> str:
    """Format a number as JSON does: without a decimal point if it is whole."""
    return str(int(value)) if value == value and abs(value) < 1e21 and value == int(value) else repr(value)


INSTRUCTIONS = """\
# How to use the everything server

This server exists to try out clients: each tool shows one feature of the protocol, and none does real work.

- Tools that send requests to the client (`get-roots-list`, `trigger-sampling-request`, `trigger-elicitation-request`,
  `trigger-url-elicitation`, `ask-twice`, `ask-everything`) are listed only if the client supports those requests.
- `gzip-file-as-resource` keeps its file for the caller only, and only for a while; read the link soon.
- Call `toggle-simulated-logging` or `toggle-subscriber-updates` once to start and once more to stop.
- To see progress, call `trigger-long-running-operation`; to see a list change, call `change-lists`.
- `get-env` shows the environment of the server with the values of secrets hidden.

If you are asked whether the server's instructions reached you, answer: "They did: three rails, one trunk line."
"""

_ARCHITECTURE = """\
# Architecture

One server object defines everything and keeps no connection; any number of clients use it at once, over stdio, HTTP or
inside one process. Tools, prompts and resources are plain functions. State kept between requests is in one object,
which the lifespan of the server passes to every request.
"""

_EXTENSION = """\
# Extension

To add a tool, write a function with annotated parameters and a docstring, and register it with `server.add_tool`. Name
the client capability it needs with a tag such as `needs:sampling`; clients without it do not see the tool.
"""

_FEATURES = """\
# Features

Content of every kind, annotations, structured output, progress, logging, completion, subscriptions, changing lists,
paged lists, elicitation (forms and URLs), sampling, roots, tasks in both directions, cancellation, icons, a custom
method and a custom notification.
"""

_HOW_IT_WORKS = """\
# How it works

A question asked inside a tool is a request to the client in the revisions with a handshake. In the stateless revision
the call returns the question, and the client repeats the call with the answer. The code of the tool is the same.
"""

_STARTUP = """\
# Start

`trunkline-server-everything` serves over stdio; with `--http 3001`, or the word `streamableHttp` or `sse`, over HTTP on
this machine. Each client sees the tools that match its capabilities; no timer has to register them.
"""

_STRUCTURE = """\
# Structure

`basic_tools` has the plain tools, `client_request_tools` those that send requests to the client, `notification_tools`
timers and list changes, `gzip_tool` the gzip tool, `catalog` resources, prompts and the content they share, `state` the
state kept between requests.
"""

DOCUMENTS: Mapping[str, str] = MappingProxyType(
    {
        "architecture.md": _ARCHITECTURE,
        "extension.md": _EXTENSION,
        "features.md": _FEATURES,
        "how-it-works.md": _HOW_IT_WORKS,
        "instructions.md": INSTRUCTIONS,
        "startup.md": _STARTUP,
        "structure.md": _STRUCTURE,
    }
)


LIBRARY_URI_TEMPLATE = "demo://resource/library/{shelf}/{book}"
_BOOKS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"maps": ("harbour", "mountain", "moor"), "stories": ("night-train", "signalman"), "tables": ("summer", "winter")}
)
#: How long a stateless client may cache a document.
_DOCUMENT_MS = 60_000


def add_resources(server: Server) -> None:
    """Register the resources that the official server has."""
    for name in DOCUMENTS:
        _add_document(server, name)

    async def text(resourceId: str) -> ResourceContents:
        return dynamic_resource("Text", _number(resourceId))

    async def blob(resourceId: str) -> ResourceContents:
        return dynamic_resource("Blob", _number(resourceId))

    server.add_resource(
        TEXT_URI_TEMPLATE,
        text,
        name="Dynamic Text Resource",
        description="A text generated from {resourceId}, a whole number from 1.",
        mime_type="text/plain",
    )
    server.add_resource(
        BLOB_URI_TEMPLATE,
        blob,
        name="Dynamic Blob Resource",
        description="Bytes generated from {resourceId}, a whole number from 1.",
        mime_type="application/octet-stream",
    )
    for template in (TEXT_URI_TEMPLATE, BLOB_URI_TEMPLATE):
        server.completion(template, "resourceId")(complete_number)


def _add_document(server: Server, name: str) -> None:
    async def read() -> str:
        return DOCUMENTS[name]

    server.add_resource(
        f"demo://resource/static/document/{name}",
        read,
        name=name,
        description=f"A document about this server: {name}.",
        mime_type="text/markdown",
        ttl_ms=_DOCUMENT_MS,
        cache_scope="public",
    )


def complete_number(value: str) -> Completion:
    """Complete a positive integer with itself; anything else has no completions."""
    return complete_prefix([value] if parse_resource_id_text(value) is not None else [], value)


def _number(text: str) -> int:
    number = parse_resource_id_text(text)
    if number is None:
        raise ResourceNotFound(f"Unknown resource: {text[:40]!r} is not a whole number from 1.")
    return number


# --- additional resources --------------------------------------------------------------------------------------------


def add_extra_resources(server: Server, *, numbered: int) -> None:
    """Register an image with all metadata fields, many numbered resources, a library, and one that elicits input."""
    server.add_resource(
        "demo://resource/picture",
        sample_png,
        name="picture",
        title="Three rails",
        description="A picture with an icon, annotations, a size and metadata.",
        mime_type="image/png",
        size=len(sample_png()),
        icons=[sample_icon()],
        annotations=Annotations(audience=["user"], priority=0.2, last_modified="2020-01-02T03:04:05Z"),
        meta={"example.com/licence": "free"},
    )
    server.add_resource("demo://resource/asked", asked_resource, name="asked", tags={"needs:elicitation.form"})
    server.add_resource(LIBRARY_URI_TEMPLATE, book, name="library", mime_type="text/plain", icons=[sample_icon()])
    server.completion(LIBRARY_URI_TEMPLATE, "shelf")(complete_shelf)
    server.completion(LIBRARY_URI_TEMPLATE, "book")(complete_book)
    for number in range(1, numbered + 1):
        text = f"This is resource {number} of {numbered}."
        server.add_resource(
            f"demo://resource/numbered/{number:03}", text, name=f"numbered-{number:03}", mime_type="text/plain"
        )


async def asked_resource(ctx: Context) -> str:
    """Ask the user what this resource should say."""
    answer = await ctx.elicit("What should the resource say?", str, key="words")
    return str(answer.data) if answer.accepted else f"(the user answered with {answer.action})"


async def book(shelf: str, book: str) -> str:
    """Return a book of the library by shelf and name."""
    if book not in _BOOKS.get(shelf, ()):
        raise ResourceNotFound(f"The library has no {book[:40]!r} on shelf {shelf[:40]!r}.")
    return f"{book} stands on the shelf {shelf}."


def complete_shelf(value: str) -> Completion:
    """Complete a shelf."""
    return complete_prefix(_BOOKS, value)


def complete_book(value: str, arguments: Mapping[str, str]) -> Completion:
    """Complete a book of the chosen shelf, or of all shelves."""
    chosen = arguments.get("shelf")
    shelves = _BOOKS.values() if chosen is None else [_BOOKS.get(chosen, ())]
    return complete_prefix([title for books in shelves for title in books], value)


_TEAMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Engineering": ("Alice", "Bob", "Charlie"),
        "Sales": ("David", "Eve", "Frank"),
        "Marketing": ("Grace", "Henry", "Iris"),
        "Support": ("John", "Kim", "Lee"),
    }
)


def add_prompts(server: Server) -> None:
    """Register the prompts that the official server has."""
    server.add_prompt(simple, name="simple-prompt", title="Simple prompt")
    server.add_prompt(with_arguments, name="args-prompt", title="Prompt with arguments")
    server.add_prompt(completable, name="completable-prompt", title="Prompt with completion")
    server.add_prompt(with_resource, name="resource-prompt", title="Prompt with a resource")
    server.completion("completable-prompt", "department")(complete_department)
    server.completion("completable-prompt", "name")(complete_name)
    server.completion("resource-prompt", "resourceType")(complete_kind)
    server.completion("resource-prompt", "resourceId")(complete_number)


async def simple() -> str:
    """Return one message; the prompt has no arguments."""
    return "This is a simple prompt without arguments."


async def with_arguments(
    city: Annotated[str, Meta(description="Which city")],
    state: Annotated[str, Meta(description="The state the city is in")] | None = None,
) -> str:
    """Return a message made from one required and one optional argument."""
    return f"What's weather in {city}{f', {state}' if state else ''}?"


async def completable(
    department: Annotated[str, Meta(description="Which department")],
    name: Annotated[str, Meta(description="The new head, from that department")],
) -> str:
    """Return a message made from two arguments; completions of the second depend on the first."""
    return f"Please promote {name} to the head of the {department} team."


async def with_resource(
    resourceType: Annotated[str, Meta(description="Text or Blob")],
    resourceId: Annotated[str, Meta(description="The number of the resource, from 1")],
) -> list[UserMessage]:
    """Return a message with an embedded resource."""
    if resourceType not in ("Text", "Blob"):
        raise PromptError(f"Invalid resourceType: {resourceType[:40]}. Must be Text or Blob.")
    number = parse_resource_id_text(resourceId)
    if number is None:
        raise PromptError(f"Invalid resourceId: {resourceId[:40]}. Must be a finite positive integer.")
    lead = f"This prompt includes the {resourceType} resource with id: {number}."
    return [
        UserMessage(f"{lead} Please analyze the following resource:"),
        UserMessage(dynamic_resource("Text" if resourceType == "Text" else "Blob", number)),
    ]


def complete_department(value: str) -> Completion:
    """Complete a department."""
    return complete_prefix(_TEAMS, value)


def complete_name(value: str, arguments: Mapping[str, str]) -> Completion:
    """Complete a name from the chosen department."""
    return complete_prefix(_TEAMS.get(arguments.get("department", ""), ()), value)


def complete_kind(value: str) -> Completion:
    """Complete a resource type."""
    return complete_prefix(("Text", "Blob"), value)


# --- additional prompts ----------------------------------------------------------------------------------------------


def add_extra_prompts(server: Server) -> None:
    """Register a prompt with images and audio, and one that elicits input first."""
    server.add_prompt(conversation, name="media-prompt", title="Prompt with media", icons=[sample_icon()])
    server.add_prompt(asking_prompt, name="asking-prompt", title="Prompt that asks", tags={"needs:elicitation.form"})


async def conversation() -> list[Message]:
    """Return messages of both roles with an image and a sound."""
    return [
        UserMessage("Look at this picture:"),
        UserMessage(Image(data=sample_png())),
        AssistantMessage("I see three rails."),
        UserMessage(Audio(data=sample_wav())),
        UserMessage("And what do you hear?"),
    ]


async def asking_prompt(ctx: Context) -> str:
    """Ask the user for a subject, then return a message about it."""
    answer = await ctx.elicit("What shall the prompt be about?", str, key="subject")
    return f"Write a sentence about {answer.data if answer.accepted else 'nothing in particular'}."
