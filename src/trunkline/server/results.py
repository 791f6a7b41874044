"""What handlers return, as the protocol's results: tools, prompts and resources each by one function.

It knows values and wire types, and nothing of revisions or requests: fitting a result to a revision comes later. A tool
with an output schema brings its own encoder; its value is encoded once, and the same bytes serve as structured content
and as text. Everything else goes by the value alone: content stays content, text stays text, other values become JSON.
"""

from __future__ import annotations

import os
import sys
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from trunkline.protocol.downgrade import wrap_structured_content
from trunkline.types import (
    Annotations,
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceContents,
    Role,
    TextContent,
)

if TYPE_CHECKING:
    from trunkline.types.json_values import JsonInput

__all__ = [
    "AssistantMessage",
    "Audio",
    "File",
    "Image",
    "Message",
    "ResourceContent",
    "ResourceValue",
    "ToolResult",
    "UserMessage",
    "encode_json",
    "to_contents",
    "to_messages",
    "to_tool_result",
    "with_structured",
]

# --- Content that handlers make


class _Media:
    """Bytes and their MIME type; read at once, so that a missing file is an error of the handler that named it."""

    __slots__ = ("annotations", "data", "mime_type", "path")

    #: What the type is when nothing tells, and what ``format`` is a kind of.
    _default = "application/octet-stream"
    _family = "application"

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        data: bytes | bytearray | memoryview | None = None,
        format: str | None = None,
        *,
        mime_type: str | None = None,
        annotations: Annotations | None = None,
    ) -> None:
        """Take a file or bytes; the type is given, or told by ``format``, the file's name or the first bytes.

        Raises:
            OSError: the file cannot be read.
            TypeError: ``data`` is not bytes.
            ValueError: there is neither a file nor bytes, or both.
        """
        kind = type(self).__name__
        if (path is None) == (data is None):
            raise ValueError(f"{kind} needs either path or data")
        if path is not None:
            self.path: str | None = os.path.expanduser(path)
            with open(self.path, "rb") as file:
                self.data: bytes = file.read()
        elif isinstance(data, bytes | bytearray | memoryview):
            self.path = None
            self.data = bytes(data)
        else:
            raise TypeError(f"{kind} takes bytes as data, not {type(data).__name__}")
        self.mime_type: str = mime_type or self._named(format) or self._told_by_path() or self._told_by_data()
        self.annotations: Annotations | None = annotations

    def _base64(self) -> str:
        return b2a_base64(self.data, newline=False).decode()

    def _named(self, format: str | None) -> str | None:
        if format is None:
            return None
        name = format.lower().removeprefix(".")
        return _COMMON_TYPES.get(name) or f"{self._family}/{name}"

    def _told_by_path(self) -> str | None:
        if self.path is None:
            return None
        suffix = os.path.splitext(self.path)[1].lower()
        common = _COMMON_TYPES.get(suffix.removeprefix("."))
        if common is not None or not suffix:
            return common
        import mimetypes

        return mimetypes.guess_type(self.path)[0]

    def _told_by_data(self) -> str:
        for start, mark, mime_type in _MARKS:
            if mime_type.startswith(self._family) and self.data[start : start + len(mark)] == mark:
                return mime_type
        return self._default


class Image(_Media):
    """A picture to return from a handler."""

    __slots__ = ()
    _default = "image/png"
    _family = "image"

    def to_image_content(self) -> ImageContent:
        """Give the picture as a content block."""
        return ImageContent(data=self._base64(), mime_type=self.mime_type, annotations=self.annotations)

    to_block = to_image_content


class Audio(_Media):
    """A sound to return from a handler."""

    __slots__ = ()
    _default = "audio/wav"
    _family = "audio"

    def to_audio_content(self) -> AudioContent:
        """Give the sound as a content block."""
        return AudioContent(data=self._base64(), mime_type=self.mime_type, annotations=self.annotations)

    to_block = to_audio_content


class File(_Media):
    """A file to return from a handler; one of a text type travels as text."""

    __slots__ = ("name",)

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        data: bytes | bytearray | memoryview | None = None,
        format: str | None = None,
        *,
        name: str | None = None,
        mime_type: str | None = None,
        annotations: Annotations | None = None,
    ) -> None:
        """Take a file or bytes, and the name to show: the file's own unless another is given."""
        super().__init__(path, data, format, mime_type=mime_type, annotations=annotations)
        self.name: str = name or (os.path.basename(self.path) if self.path else _NAMELESS)

    def to_resource_content(self) -> EmbeddedResource:
        """Give the file as an embedded resource; its URI has the name and no folder of this machine."""
        from urllib.parse import quote

        contents = _media_contents(self, f"file:///{quote(self.name, safe='')}")
        return EmbeddedResource(resource=contents, annotations=self.annotations)

    to_block = to_resource_content


class ToolResult:
    """A tool's whole answer: what the model reads, the structured value, ``_meta``, and whether the tool failed."""

    __slots__ = ("content", "is_error", "meta", "structured_content")

    def __init__(
        self,
        content: object = None,
        structured_content: object = UNSET,
        meta: Mapping[str, object] | None = None,
        is_error: bool = False,
    ) -> None:
        """Take content as a tool may return it; without any, the structured value is also the text."""
        self.content: object = content
        self.structured_content: object = structured_content
        self.meta: Mapping[str, object] | None = meta
        self.is_error: bool = is_error


class Message:
    """One message of a prompt: anything a tool may return as content, and who says it."""

    __slots__ = ("content", "role")

    def __init__(self, content: object, role: Role = "user") -> None:
        """Take the content and the role.

        Raises:
            TypeError: the protocol has no such role.
        """
        if role not in _ROLES:
            raise TypeError(f'The role of a prompt message is "user" or "assistant", not {role!r}')
        self.content: object = content
        self.role = role


class UserMessage(Message):
    """A message the user says."""

    __slots__ = ()

    def __init__(self, content: object) -> None:
        """Take the content."""
        super().__init__(content, "user")


class AssistantMessage(Message):
    """A message the model says."""

    __slots__ = ()

    def __init__(self, content: object) -> None:
        """Take the content."""
        super().__init__(content, "assistant")


class ResourceContent:
    """One of the contents of a resource: text, bytes or a JSON value, with a MIME type of its own."""

    __slots__ = ("content", "meta", "mime_type")

    def __init__(self, content: object, mime_type: str | None = None, meta: Mapping[str, object] | None = None) -> None:
        """Take the content; its URI is that of the resource."""
        self.content: object = content
        self.mime_type: str | None = mime_type
        self.meta: Mapping[str, object] | None = meta


_ResourceItem: TypeAlias = "ResourceContents | ResourceContent | Image | Audio | File"
#: What a resource may be, or its function may return.
ResourceValue: TypeAlias = "JsonInput | bytes | bytearray | _ResourceItem | Sequence[_ResourceItem | bytes]"


# --- Tools


def to_tool_result(
    value: object,
    *,
    encode: Callable[[object], bytes] | None = None,
    finish: Callable[[object, CallToolResult], CallToolResult] | None = None,
    wrap: Callable[[], bool] | None = None,
) -> CallToolResult:
    """Return the result of a tool that returned ``value``.

    ``encode`` is given when the tool has an output schema of its own, ``finish`` when the schema was written by hand.
    ``wrap`` is None where structured content may be any value. Else what is no object goes into ``{"result": …}``,
    and so does an object if ``wrap()`` says that the output schema is not one of objects alone.

    Raises:
        TypeError: the value has no JSON form.
    """
    if encode is None or (type(value) not in _DATA and isinstance(value, _WHOLE_RESULTS)):
        result = _by_value(value)
        if finish is not None:
            result = finish(value, result)
        if wrap is None or result.structured_content is UNSET:
            return result
        return wrap_structured_content(result, (wrap() and not result.is_error) or None)  # type: ignore[no-any-return]
    data = encode(value)
    text = str.__str__(value) if isinstance(value, str) else data.decode()
    structured: Any = Raw(data)
    if wrap is not None and (data[:1] != b"{" or wrap()):
        structured = {"result": structured}
    return CallToolResult(content=[TextContent(text=text)], structured_content=structured)


def _by_value(value: Any) -> CallToolResult:
    if value is None:
        return CallToolResult()
    if _is_one_of(_WHOLE_RESULTS, value):
        return value if isinstance(value, CallToolResult) else _from_tool_result(value)
    if isinstance(value, str | list | tuple) or _is_one_of(_CONTENT, value):
        return CallToolResult(content=_blocks(value))
    data = encode_json(value)
    structured = Raw(data) if data.startswith(b"{") else UNSET
    return CallToolResult(content=[TextContent(text=data.decode())], structured_content=structured)


def with_structured(value: object, result: CallToolResult) -> CallToolResult:
    """Return a result with the returned value as its structured content, unless the value is content."""
    items = value if isinstance(value, list | tuple) else (value,)
    if any(_is_one_of((*_WHOLE_RESULTS, *_CONTENT), item) for item in items):
        return result
    return replace(result, structured_content=Raw(encode_json(value)))


def _from_tool_result(value: ToolResult) -> CallToolResult:
    content, structured = value.content, value.structured_content
    if structured is not UNSET:
        structured = Raw(encode_json(structured))
        if content is None:
            content = bytes(structured).decode()
    return CallToolResult(
        # An empty list is meant as no content here; returned by a tool itself it is a value, shown as such.
        content=[] if content is None or content == [] else _blocks(content),
        structured_content=structured,
        meta=None if value.meta is None else dict(value.meta),
        is_error=value.is_error or None,
    )


def _blocks(value: object) -> list[ContentBlock]:
    """Give a value as content: a list that holds content item by item, any other list as one JSON text."""
    if isinstance(value, list | tuple) and any(_is_one_of(_CONTENT, item) for item in value):
        return [_block(item) for item in value]
    return [_block(value)]


def _block(value: Any) -> ContentBlock:
    if isinstance(value, str):
        return TextContent(text=str.__str__(value))
    if not _is_one_of(_CONTENT, value):
        return TextContent(text=encode_json(value).decode())
    if isinstance(value, Image | Audio | File):
        return value.to_block()
    if isinstance(value, ResourceContents):
        return EmbeddedResource(resource=value)
    if isinstance(value, bytes | bytearray):
        return File(data=bytes(value)).to_block()
    block: ContentBlock = value
    return block


def _is_one_of(kinds: tuple[type, ...], value: object) -> bool:
    return type(value) not in _DATA and isinstance(value, kinds)


# --- Prompts


def to_messages(value: object) -> list[PromptMessage]:
    """Give what a prompt returned as messages; what names no role is said by the user.

    Raises:
        TypeError: there is nothing, something without a JSON form, or a role the protocol does not have.
    """
    return list(_messages(value))


def _messages(value: object) -> Iterator[PromptMessage]:
    if value is None:
        raise TypeError("A prompt must return messages, not None")
    if isinstance(value, PromptMessage):
        yield value
    elif isinstance(value, Message):
        yield from (PromptMessage(role=value.role, content=block) for block in _blocks(value.content))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _messages(item)
    elif isinstance(value, Mapping) and value.keys() == {"role", "content"}:
        yield from _messages(Message(_read_block(value["content"]), value["role"]))
    else:
        yield PromptMessage(role="user", content=_block(value))


def _read_block(value: object) -> Any:
    """Read a content block that was written as a dictionary; anything else is left as it is."""
    if not isinstance(value, Mapping) or "type" not in value:
        return value
    try:
        return msgspec.convert(dict(value), ContentBlock)
    except msgspec.ValidationError as error:
        raise TypeError(f"The content of a prompt message is no content block: {error}") from error


# --- Resources


def to_contents(value: object, uri: str, mime_type: str | None = None) -> list[ResourceContents]:
    """Give what a resource returned as contents: text, base64 for bytes, JSON for other values.

    Raises:
        TypeError: there is nothing, or something without a JSON form.
    """
    if isinstance(value, list | tuple) and any(_is_one_of(_CONTENTS, item) for item in value):
        return [_contents(item, uri, mime_type) for item in value]
    return [_contents(value, uri, mime_type)]


def _contents(value: object, uri: str, mime_type: str | None) -> ResourceContents:
    if value is None:
        raise TypeError(f"The resource {uri} must return its contents, not None")
    if isinstance(value, ResourceContents):
        return value
    if isinstance(value, ResourceContent):
        inner = _contents(value.content, uri, value.mime_type or mime_type)
        return msgspec.structs.replace(inner, meta=None if value.meta is None else dict(value.meta))
    if isinstance(value, _Media):
        return _media_contents(value, uri)
    if isinstance(value, str):
        return ResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=str.__str__(value))
    if isinstance(value, bytes | bytearray):
        blob = b2a_base64(value, newline=False).decode()
        return ResourceContents(uri=uri, mime_type=mime_type or "application/octet-stream", blob=blob)
    return ResourceContents(uri=uri, mime_type=mime_type or "application/json", text=encode_json(value).decode())


def _media_contents(media: _Media, uri: str) -> ResourceContents:
    if media.mime_type.startswith("text/") or media.mime_type == "application/json":
        try:
            return ResourceContents(uri=uri, mime_type=media.mime_type, text=media.data.decode())
        except UnicodeDecodeError:
            pass  # Text in another encoding: its bytes are still right.
    return ResourceContents(uri=uri, mime_type=media.mime_type, blob=media._base64())


# --- JSON


def encode_json(value: object) -> bytes:
    """Encode a value of any type that has a JSON form; pydantic's models are known once the program has imported it.

    Raises:
        TypeError: it has none; the message names the type.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_as_json)
    except _NoJson as error:
        raise TypeError(str(error)) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"A value of type {_type_name(value)} has no JSON form: {error}") from error


class _NoJson(Exception):
    """A value inside another has no JSON form."""


def _as_json(value: object) -> Any:
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return Raw(value.model_dump_json(by_alias=True).encode())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | Set):
        return list(value)
    raise _NoJson(
        f"A value of type {_type_name(value)} has no JSON form: return text, bytes, content, "
        "or something made of dictionaries, lists and records"
    )


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# --- Tables

_ROLES = get_args(Role)
_NAMELESS = "resource"
_WHOLE_RESULTS = (CallToolResult, ToolResult)
#: What makes a list of these content rather than data.
_CONTENT = (*get_args(ContentBlock), Image, Audio, File, ResourceContents, bytes, bytearray)
_CONTENTS = (ResourceContents, ResourceContent, _Media, bytes, bytearray)
#: What is none of these for certain: asking whether a value is a struct costs more than encoding it.
_DATA = frozenset({str, int, float, bool, dict, list, tuple, type(None)})

#: By format or suffix: what handlers return most, without loading the tables of `mimetypes`, which differ by machine.
_COMMON_TYPES = MappingProxyType(
    {
        "png": "image/png",
        "jpg": "image/jpeg",
        "jpeg": "image/jpeg",
        "gif": "image/gif",
        "webp": "image/webp",
        "svg": "image/svg+xml",
        "wav": "audio/wav",
        "mp3": "audio/mpeg",
        "ogg": "audio/ogg",
        "m4a": "audio/mp4",
        "flac": "audio/flac",
        "txt": "text/plain",
        "text": "text/plain",
        "plain": "text/plain",
        "md": "text/markdown",
        "csv": "text/csv",
        "html": "text/html",
        "json": "application/json",
        "pdf": "application/pdf",
    }
)

#: Where a mark stands in the data, the mark, and the type it tells.
_MARKS = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"%PDF-", "application/pdf"),
)
