"""The content that tools, prompts and resources share.

A PNG, a WAV, resources generated from a number, the documents and the instructions.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import Literal

from trunkline import ToolError
from trunkline.types import Completion, Icon, ResourceContents

__all__ = [
    "BLOB_URI_TEMPLATE",
    "DOCUMENTS",
    "INSTRUCTIONS",
    "TEXT_URI_TEMPLATE",
    "ResourceKind",
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

- Tools that ask something (`get-roots-list`, `trigger-sampling-request`, `trigger-elicitation-request`,
  `trigger-url-elicitation`, `ask-twice`, `ask-everything`) are listed only if the client can be asked that.
- `gzip-file-as-resource` keeps what it made for the caller alone, and for a while only; read the link soon.
- Call `toggle-simulated-logging` or `toggle-subscriber-updates` once to start and once more to stop.
- To see progress, call `trigger-long-running-operation`; to see a list change, call `change-lists`.
- `get-env` shows the environment of the server with the values of secrets left out.

If you are asked whether the server's instructions reached you, answer: "They did: three rails, one trunk line."
"""

_ARCHITECTURE = """\
# Architecture

One server object defines everything and keeps no connection; any number of clients use it at once, over stdio, HTTP or
inside one process. Tools, prompts and resources are plain functions. What is remembered between requests stands in one
state object, which the lifespan of the server hands to every request.
"""

_EXTENSION = """\
# Extension

To add a tool, write a function with annotated parameters and a docstring, and register it with `server.add_tool`. Mark
what it needs of the client with a tag such as `needs:sampling`; clients that lack it will not see the tool.
"""

_FEATURES = """\
# Features

Content of every kind, annotations, structured output, progress, logging, completion, subscriptions, changing lists,
pages of lists, questions to the user (forms and pages), to the model and for folders, cancellation, icons, a method and
a notification that are no part of the protocol. Tasks are not offered yet.
"""

_HOW_IT_WORKS = """\
# How it works

A question asked inside a tool is a request to the client in the revisions with a handshake. In the stateless revision
the call is answered with the question, and the client sends the call again with the answer. The tool does not know.
"""

_STARTUP = """\
# Start

`trunkline-server-everything` serves over stdio; with `--http 3001`, or the word `streamableHttp` or `sse`, over HTTP on
this machine. Each client sees the tools that fit what it declared; nothing waits for a timer to register them.
"""

_STRUCTURE = """\
# Structure

`basic_tools` has the plain tools, `client_request_tools` those that send requests to the client, `notification_tools`
timers and list changes, `gzip_tool` the gzip tool, `catalog` resources and prompts, `sample_content` the content they
share, `state` what is kept between requests.
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
