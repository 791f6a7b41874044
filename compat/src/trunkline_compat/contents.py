"""What handlers of both frameworks return beside plain values: pictures, whole results, messages and contents."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pydantic_core
from pydantic import BaseModel, ConfigDict

import trunkline.types as t
from trunkline.server import results as own
from trunkline_compat.types import Model, model_class, to_model, to_plain, to_struct

__all__ = [
    "AssistantMessage",
    "Audio",
    "File",
    "Image",
    "Message",
    "PromptResult",
    "ReadResourceContents",
    "ResourceContent",
    "ResourceResult",
    "ToolResult",
    "UserMessage",
    "blocks_of",
    "failed_call",
    "json_text",
    "to_prompt_result",
]


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON text; what has no JSON form is written with ``str``."""
    return pydantic_core.to_json(value, fallback=str, indent=indent).decode()


class Image(own.Image):
    """An image to return from a handler."""

    __slots__ = ()

    def to_image_content(self, mime_type: str | None = None, annotations: Any = None) -> Any:
        """Return the image as a content block."""
        return _block(own.Image.to_block(self), mime_type, annotations)

    def to_data_uri(self, mime_type: str | None = None) -> str:
        """Return the image as a URI that holds it."""
        return f"data:{mime_type or self.mime_type};base64,{b64encode(self.data).decode()}"


class Audio(own.Audio):
    """A sound to return from a handler."""

    __slots__ = ()

    def to_audio_content(self, mime_type: str | None = None, annotations: Any = None) -> Any:
        """Return the sound as a content block."""
        return _block(own.Audio.to_block(self), mime_type, annotations)


class File(own.File):
    """A file to return from a handler, as an embedded resource."""

    __slots__ = ("_name",)

    def __init__(
        self,
        path: Any = None,
        data: bytes | None = None,
        format: str | None = None,
        name: str | None = None,
        annotations: Any = None,
    ) -> None:
        """Initialize with a path or bytes; the name becomes part of the URI."""
        super().__init__(
            path, data, format, annotations=None if annotations is None else to_struct(annotations, t.Annotations)
        )
        self._name = name

    def to_resource_content(self, mime_type: str | None = None, annotations: Any = None) -> Any:
        """Return the file as a content block."""
        return _block(own.File.to_block(self), mime_type, annotations)


def _block(struct: Any, mime_type: str | None, annotations: Any) -> Any:
    block = to_model(struct)
    if mime_type is not None:
        block.mime_type = mime_type
    if annotations is not None:
        block.annotations = annotations
    return block


def is_content(value: Any) -> bool:
    """Return whether a value is a content block, or becomes one: a picture, a sound, a file."""
    return isinstance(value, own.Image | own.Audio | own.File) or (isinstance(value, Model) and hasattr(value, "type"))


def blocks_of(value: Any) -> list[Any]:
    """Return text and content as a list of one block; nothing for any other value."""
    if isinstance(value, str):
        return [model_class("TextContent")(type="text", text=value)]
    if isinstance(value, own.Image | own.Audio | own.File):
        return [to_model(value.to_block())]
    return [value] if is_content(value) else []


class ToolResult:
    """The whole answer of a tool: content, a structured value, or both."""

    def __init__(
        self,
        content: Any = None,
        structured_content: Any = None,
        meta: Mapping[str, Any] | None = None,
        is_error: bool = False,
    ) -> None:
        """Initialize with the parts; without content the structured value is sent as text too.

        Raises:
            ValueError: neither is given, or the structured value is no object.
        """
        if content is None and structured_content is None:
            raise ValueError("ToolResult needs content or structured_content")
        if structured_content is not None:
            structured_content = pydantic_core.to_jsonable_python(structured_content)
            if not isinstance(structured_content, dict):
                raise ValueError(f"structured_content is an object, not a {type(structured_content).__name__}")
        if content is None:
            content = json_text(structured_content)
        items = content if isinstance(content, list | tuple) else [content]
        self.content: list[Any] = [block for item in items for block in (blocks_of(item) or blocks_of(json_text(item)))]
        self.structured_content: dict[str, Any] | None = structured_content
        self.meta = None if meta is None else dict(meta)
        self.is_error = is_error

    @classmethod
    def of(cls, result: Any) -> ToolResult:
        """Return the protocol's result as this class."""
        structured = getattr(result, "structured_content", None)
        return cls(list(result.content), structured, result.meta, bool(result.is_error))

    def to_mcp_result(self) -> Any:
        """Return the result as the protocol has it."""
        return model_class("CallToolResult")(
            content=self.content, structured_content=self.structured_content, is_error=self.is_error, meta=self.meta
        )

    def to_struct(self) -> t.CallToolResult:
        """Return the result as our server sends it."""
        return t.CallToolResult(
            content=[_block_struct(block) for block in self.content],
            structured_content=msgspec.UNSET if self.structured_content is None else self.structured_content,
            is_error=self.is_error,
            meta=self.meta,
        )

    def __repr__(self) -> str:
        """Show the parts."""
        return f"ToolResult(content={self.content!r}, structured_content={self.structured_content!r})"


def failed_call(text: str) -> t.CallToolResult:
    """Return the result of a tool that failed."""
    return t.CallToolResult(content=[t.TextContent(text=text)], is_error=True)


def _block_struct(block: Any) -> Any:
    if block.type == "text" and block.annotations is None and block.meta is None:
        return t.TextContent(text=block.text)
    return msgspec.convert(to_plain(block), t.ContentBlock)


# --- prompts ---------------------------------------------------------------------------------------------------------


class Message(BaseModel):
    """One message of a prompt."""

    model_config = ConfigDict(defer_build=True)

    role: Any = "user"
    content: Any

    def __init__(self, content: Any = None, role: Any = None, **members: Any) -> None:
        """Initialize with the content as text, a block or a value that becomes JSON."""
        if not is_content(content):
            content = blocks_of(content if isinstance(content, str) else json_text(content))[0]
        super().__init__(content=content, role=role or type(self).model_fields["role"].default)

    def to_struct(self) -> t.PromptMessage:
        """Return the message as our server sends it."""
        return t.PromptMessage(role=self.role, content=_block_struct(self.content))

    def to_mcp_prompt_message(self) -> Any:
        """Return the message as the protocol has it."""
        return to_model(self.to_struct())


class UserMessage(Message):
    """A message of the user's."""


class AssistantMessage(Message):
    """A message of the model's."""

    role: Any = "assistant"


class PromptResult:
    """A rendered prompt."""

    def __init__(self, messages: Any, description: str | None = None, meta: Mapping[str, Any] | None = None) -> None:
        """Initialize with one text, or several messages."""
        items = messages if isinstance(messages, Sequence) and not isinstance(messages, str) else [messages]
        self.messages = [_message(item) for item in items]
        self.description = description
        self.meta = None if meta is None else dict(meta)

    def to_mcp_prompt_result(self) -> Any:
        """Return it as the protocol has it."""
        return to_model(self.to_struct())

    def to_struct(self) -> t.GetPromptResult:
        """Return it as our server sends it."""
        messages = [each.to_struct() for each in self.messages]
        return t.GetPromptResult(messages=messages, description=self.description, meta=self.meta)


def _message(value: Any) -> Message:
    if isinstance(value, Message):
        return value
    if isinstance(value, Mapping) and "role" in value:
        content = value["content"]
        if isinstance(content, Mapping) and "type" in content:
            content = to_model(msgspec.convert(to_plain(content), t.ContentBlock))
        return Message(content, value["role"])
    if hasattr(value, "role"):
        return Message(value.content, value.role)
    # A block that is no message is sent as its JSON.
    return Message(value.model_dump_json(by_alias=True) if isinstance(value, Model) else value)


def to_prompt_result(value: Any, description: str | None, meta: Mapping[str, Any] | None = None) -> t.GetPromptResult:
    """Return what a prompt function returned as our server sends it."""
    if isinstance(value, model_class("GetPromptResult")):
        return to_struct(value, t.GetPromptResult)
    result = value if isinstance(value, PromptResult) else PromptResult(value)
    struct = result.to_struct()
    changes = {"description": struct.description or description, "meta": struct.meta or meta or None}
    return msgspec.structs.replace(struct, **changes)


# --- resources -------------------------------------------------------------------------------------------------------


class ResourceContent:
    """One of the contents of a resource: text, bytes, or a value that becomes JSON."""

    def __init__(self, content: Any, mime_type: str | None = None, meta: Mapping[str, Any] | None = None) -> None:
        """Initialize with the content."""
        if not isinstance(content, str | bytes):
            content, mime_type = json_text(content), mime_type or "application/json"
        self.content: str | bytes = content
        self.mime_type = mime_type or ("text/plain" if isinstance(content, str) else "application/octet-stream")
        self.meta = None if meta is None else dict(meta)

    @classmethod
    def of(cls, contents: t.ResourceContents) -> ResourceContent:
        """Return contents of ours as this class."""
        value = contents.text if contents.blob is None else b64decode(contents.blob)
        return cls(value, contents.mime_type, contents.meta)

    def to_struct(self, uri: str) -> t.ResourceContents:
        """Return it as our server sends it."""
        contents = t.ResourceContents(uri=uri, mime_type=self.mime_type, meta=self.meta)
        if isinstance(self.content, str):
            return msgspec.structs.replace(contents, text=self.content)
        return msgspec.structs.replace(contents, blob=b64encode(self.content).decode())

    def to_mcp_resource_contents(self, uri: Any) -> Any:
        """Return it as the protocol has it."""
        return to_model(self.to_struct(str(uri)))

    def __repr__(self) -> str:
        """Show the content and its MIME type."""
        return f"{type(self).__name__}(content={self.content!r}, mime_type={self.mime_type!r})"


#: The name of the same thing in the official SDK.
ReadResourceContents = ResourceContent


class ResourceResult:
    """The contents of a resource."""

    def __init__(self, contents: Any, meta: Mapping[str, Any] | None = None) -> None:
        """Initialize with text, bytes, a value that becomes JSON, or a list of ``ResourceContent``."""
        is_list = isinstance(contents, list) and all(isinstance(each, ResourceContent) for each in contents)
        self.contents: list[ResourceContent] = contents if is_list else [ResourceContent(contents)]
        self.meta = None if meta is None else dict(meta)

    @classmethod
    def of(cls, value: Any, mime_type: str | None, *, official: bool, meta: Any = None) -> ResourceResult:
        """Return what a resource function returned, with the MIME type and metadata of the resource."""
        if isinstance(value, ResourceResult):
            return value
        if isinstance(value, list) and value and all(isinstance(each, ResourceContent) for each in value):
            return cls(value)
        if not isinstance(value, str | bytes):
            plain = pydantic_core.to_jsonable_python(value, fallback=str)
            value = json_text(value, indent=2) if official else json.dumps(plain)
        return cls([ResourceContent(value, mime_type, meta)])

    def to_struct(self, uri: str) -> t.ReadResourceResult:
        """Return it as our server sends it."""
        return t.ReadResourceResult(contents=[each.to_struct(uri) for each in self.contents], meta=self.meta)
