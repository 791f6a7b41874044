"""Converting the return values of handlers to results, with one function each for tools, prompts and resources.

It knows values and wire types, but neither revisions nor requests: results are adapted to a revision later. A tool with
an output schema has its own encoder; its value is encoded once, and the same bytes are used as structured content and
as text. Otherwise only the value counts: content stays content, strings become text, other values become JSON.
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
    "with_text_keys",
]

# --- content for handlers to return


class _Media:
    """Bytes and their MIME type; a file is read at once, so that its absence raises in the handler."""

    __slots__ = ("annotations", "data", "mime_type", "path")

    #: The MIME type if nothing determines it, and the family that ``format`` belongs to.
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
        """Create content from a file or bytes.

        Without ``mime_type``, the type is determined by ``format``, the file's name or the first bytes.

        Raises:
            OSError: the file cannot be read.
            TypeError: ``data`` is not bytes.
            ValueError: neither or both of ``path`` and ``data`` are given.
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
            raise TypeError(f"{kind} needs bytes as data, not {type(data).__name__}")
        self.mime_type: str = mime_type or self._type_of_format(format) or self._type_of_path() or self._type_of_data()
        self.annotations: Annotations | None = annotations

    def _base64(self) -> str:
        return b2a_base64(self.data, newline=False).decode()

    def _type_of_format(self, format: str | None) -> str | None:
        if format is None:
            return None
        name = format.lower().removeprefix(".")
        return _COMMON_TYPES.get(name) or f"{self._family}/{name}"

    def _type_of_path(self) -> str | None:
        if self.path is None:
            return None
        suffix = os.path.splitext(self.path)[1].lower()
        common = _COMMON_TYPES.get(suffix.removeprefix("."))
        if common is not None or not suffix:
            return common
        import mimetypes

        return mimetypes.guess_type(self.path)[0]

    def _type_of_data(self) -> str:
        for start, magic, mime_type in _MAGIC_NUMBERS:
            if mime_type.startswith(self._family) and self.data[start : start + len(magic)] == magic:
                return mime_type
        return self._default


class Image(_Media):
    """An image to return from a handler."""

    __slots__ = ()
    _default = "image/png"
    _family = "image"

    def to_block(self) -> ImageContent:
        """Return the image as a content block."""
        return ImageContent(data=self._base64(), mime_type=self.mime_type, annotations=self.annotations)


class Audio(_Media):
    """Audio to return from a handler."""

    __slots__ = ()
    _default = "audio/wav"
    _family = "audio"

    def to_block(self) -> AudioContent:
        """Return the audio as a content block."""
        return AudioContent(data=self._base64(), mime_type=self.mime_type, annotations=self.annotations)


class File(_Media):
    """A file to return from a handler; a file of a text type is sent as text."""

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
        """Create content from a file or bytes; ``name`` is the name to show, by default the file's own."""
        super().__init__(path, data, format, mime_type=mime_type, annotations=annotations)
        self.name: str = name or (os.path.basename(self.path) if self.path else _NAMELESS)

    def to_block(self) -> EmbeddedResource:
        """Return the file as an embedded resource; its URI has the name, but no folder of this machine."""
        from urllib.parse import quote

        contents = _media_contents(self, f"file:///{quote(self.name, safe='')}")
        return EmbeddedResource(resource=contents, annotations=self.annotations)


class ToolResult:
    """The whole result of a tool: content for the model, structured content, ``_meta``, and whether it failed."""

    __slots__ = ("content", "is_error", "meta", "structured_content")

    def __init__(
        self,
        content: object = None,
        structured_content: object = UNSET,
        meta: Mapping[str, object] | None = None,
        is_error: bool = False,
    ) -> None:
        """Create a result; ``content`` may be anything that a tool may return.

        Without ``content``, the structured content is also sent as text.
        """
        self.content: object = content
        self.structured_content: object = structured_content
        self.meta: Mapping[str, object] | None = meta
        self.is_error: bool = is_error


class Message:
    """One message of a prompt: its role, and anything that a tool may return as content."""

    __slots__ = ("content", "role")

    def __init__(self, content: object, role: Role = "user") -> None:
        """Create a message.

        Raises:
            TypeError: the protocol has no such role.
        """
        if role not in _ROLES:
            raise TypeError(f'the role of a prompt message must be "user" or "assistant", not {role!r}')
        self.content: object = content
        self.role = role


class UserMessage(Message):
    """A message with the role ``user``."""

    __slots__ = ()

    def __init__(self, content: object) -> None:
        """Create a message."""
        super().__init__(content, "user")


class AssistantMessage(Message):
    """A message with the role ``assistant``."""

    __slots__ = ()

    def __init__(self, content: object) -> None:
        """Create a message."""
        super().__init__(content, "assistant")


class ResourceContent:
    """One of the contents of a resource: text, bytes or a JSON value, with its own MIME type."""

    __slots__ = ("content", "meta", "mime_type")

    def __init__(self, content: object, mime_type: str | None = None, meta: Mapping[str, object] | None = None) -> None:
        """Create the content; its URI is that of the resource."""
        self.content: object = content
        self.mime_type: str | None = mime_type
        self.meta: Mapping[str, object] | None = meta


_ResourceItem: TypeAlias = "ResourceContents | ResourceContent | Image | Audio | File"
#: The value of a resource, or the return value of its function; a list has several contents.
ResourceValue: TypeAlias = "JsonInput | bytes | bytearray | _ResourceItem | Sequence[_ResourceItem | bytes]"


# --- tools


def to_tool_result(
    value: object,
    encode: Callable[[object], bytes] | None = None,
    finish: Callable[[object, CallToolResult], CallToolResult] | None = None,
    wrap: Callable[[], bool] | None = None,
) -> CallToolResult:
    """Return the result of a tool that returned ``value``.

    ``encode`` is given if the return annotation has an output schema, ``finish`` if the output schema was given by the
    user. ``wrap`` is None if structured content may be any value. Otherwise a value that is not an object is sent as
    ``{"result": …}``, and so is an object if ``wrap()`` returns True: the output schema does not only allow objects.

    Raises:
        TypeError: the value has no JSON form.
    """
    if type(value) not in _DATA:
        value = _recognised(value)
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
    if wrap is not None and (data[0] != _BRACE or wrap()):
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
    items = [_recognised(item) for item in value] if isinstance(value, list | tuple) else (value,)
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
        # Here an empty list means no content; returned directly by a tool, it is a value and sent as JSON.
        content=[] if content is None or content == [] else _blocks(content),
        structured_content=structured,
        meta=None if value.meta is None else dict(value.meta),
        is_error=value.is_error or None,
    )


def _blocks(value: object) -> list[ContentBlock]:
    """Return a value as content blocks: a list with content item by item, any other list as one JSON text."""
    if isinstance(value, list | tuple):
        items = [item if type(item) in _DATA else _recognised(item) for item in value]
        if any(_is_one_of(_CONTENT, item) for item in items):
            return [_block(item) for item in items]
    return [_block(value)]


def _recognised(value: Any) -> Any:
    """Return a value made of another package's protocol types as ours."""
    if not hasattr(value, "model_dump") and not hasattr(value, "__protocol_result__"):
        return value
    from trunkline.server.foreign_types import recognise

    return recognise(value)


def _block(value: Any) -> ContentBlock:
    if isinstance(value, str):
        return TextContent(text=str.__str__(value))
    if type(value) not in _DATA:
        value = _recognised(value)
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


# --- prompts


def to_messages(value: object) -> list[PromptMessage]:
    """Return the value of a prompt as messages; the default role is ``user``.

    Raises:
        TypeError: the value is None, has no JSON form, or has an unknown role.
    """
    return list(_messages(value))


def _messages(value: object) -> Iterator[PromptMessage]:
    if value is None:
        raise TypeError("a prompt must return messages, not None")
    if type(value) not in _DATA:
        value = _recognised(value)
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
    """Convert a dictionary to a content block; anything else is returned unchanged."""
    if not isinstance(value, Mapping) or "type" not in value:
        return value
    try:
        return msgspec.convert(dict(value), ContentBlock)
    except msgspec.ValidationError as error:
        raise TypeError(f"the content of a prompt message is not a valid content block: {error}") from error


# --- resources


def to_contents(value: object, uri: str, mime_type: str | None = None) -> list[ResourceContents]:
    """Return the value of a resource as contents: text for strings, base64 for bytes, JSON for other values.

    Raises:
        TypeError: the value is None or has no JSON form.
    """
    if isinstance(value, list | tuple):
        items = [item if type(item) in _DATA else _recognised(item) for item in value]
        if any(_is_one_of(_CONTENTS, item) for item in items):
            return [_contents(item, uri, mime_type) for item in items]
    return [_contents(value, uri, mime_type)]


def _contents(value: object, uri: str, mime_type: str | None) -> ResourceContents:
    if value is None:
        raise TypeError(f"the resource {uri} must return its contents, not None")
    if type(value) not in _DATA:
        value = _recognised(value)
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
            pass  # Text in another encoding is sent as bytes.
    return ResourceContents(uri=uri, mime_type=media.mime_type, blob=media._base64())


# --- JSON


def encode_json(value: object) -> bytes:
    """Encode a value of any type that has a JSON form, including pydantic models.

    Raises:
        TypeError: it has no JSON form; the message names the type.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_as_json)
    except _NoJson as error:
        raise TypeError(str(error)) from None
    except (TypeError, ValueError, RecursionError) as error:
        keyed = with_text_keys(value)
        if keyed is not None:
            return encode_json(keyed)
        raise TypeError(f"a value of type {_type_name(value)} has no JSON form: {error}") from error


def with_text_keys(value: object) -> Any | None:
    """Return a value whose keys are all text, or None if they are already: other keys are joined or written as text."""
    changed = False

    def text(key: object) -> str:
        nonlocal changed
        if isinstance(key, str):
            return str.__str__(key)
        changed = True
        return ",".join(map(str, key)) if isinstance(key, tuple) else str(key)

    def walk(part: object) -> Any:
        if isinstance(part, dict):
            return {text(key): walk(each) for key, each in part.items()}
        return [walk(each) for each in part] if type(part) in (list, tuple) else part  # type: ignore[attr-defined]

    try:
        made = walk(value)
    except RecursionError:
        return None
    return made if changed else None


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
    if not _has_own_text(value):
        raise _NoJson(
            f"a value of type {_type_name(value)} has no JSON form: return text, bytes, content, "
            "or something made of dictionaries, lists and records"
        )
    return str(value)


def _has_own_text(value: object) -> bool:
    """Return True if a class says what its objects read like; else the text would be a name and an address."""
    kind = type(value)
    if callable(value) or any(hasattr(value, name) for name in ("__await__", "__next__", "__anext__", "model_dump")):
        return False
    return kind.__str__ is not object.__str__ or kind.__repr__ is not object.__repr__


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# --- tables

_ROLES = get_args(Role)
_NAMELESS = "resource"
_WHOLE_RESULTS = (CallToolResult, ToolResult)
#: A list with one of these is content, not data.
_CONTENT = (*get_args(ContentBlock), Image, Audio, File, ResourceContents, bytes, bytearray)
_CONTENTS = (ResourceContents, ResourceContent, _Media, bytes, bytearray)
#: Types that are certainly none of these: an isinstance check for structs costs more than encoding the value.
_DATA = frozenset({str, int, float, bool, dict, list, tuple, type(None)})
_BRACE = ord("{")

#: Common types by format or suffix; `mimetypes` is slower to load, and its tables differ between machines.
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

#: The offset of a magic number in the data, the number, and the MIME type that it indicates.
_MAGIC_NUMBERS = (
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
