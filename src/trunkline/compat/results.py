"""What handlers of both frameworks return, beside plain values: results, messages and contents as objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pydantic_core
from pydantic import BaseModel

import trunkline.types as t
from trunkline.compat.types import model_class, to_model, to_plain
from trunkline.server.results import Message as OwnMessage
from trunkline.server.results import ResourceContent as OwnContent
from trunkline.server.results import ToolResult as OwnToolResult
from trunkline.server.results import to_contents, to_messages, to_tool_result

__all__ = [
    "AssistantMessage",
    "Message",
    "PromptResult",
    "ReadResourceContents",
    "ResourceContent",
    "ResourceResult",
    "ToolResult",
    "UserMessage",
    "block_from_dict",
    "to_blocks",
]


def to_blocks(value: Any) -> list[Any]:
    """Return content as models, from anything a tool may return."""
    if value is None:
        return []
    items = value if isinstance(value, list | tuple) else [value]
    return [
        item if isinstance(item, BaseModel) and hasattr(item, "type") else to_model(to_tool_result(item).content)[0]
        for item in items
    ]


def block_from_dict(value: Mapping[str, Any]) -> Any:
    """Return a content block that was written as a dictionary as a model."""
    return to_model(msgspec.convert(pydantic_core.to_jsonable_python(dict(value)), t.ContentBlock))


class ToolResult(OwnToolResult):
    """A tool's whole answer, with its content as models."""

    __slots__ = ()

    def __init__(
        self,
        content: Any = None,
        structured_content: Any = None,
        meta: Mapping[str, Any] | None = None,
        is_error: bool = False,
    ) -> None:
        """Initialize with content, a structured value, or both."""
        if content is None and structured_content is None:
            raise ValueError("Either content or structured_content must be provided")
        structured = msgspec.UNSET
        if structured_content is not None:
            structured = to_plain(structured_content)
            if not isinstance(structured, dict):
                raise ValueError(
                    f"structured_content must be a dict or None. Got {type(structured_content).__name__}: "
                    f"{structured_content!r}. Tools should wrap non-dict values based on their output_schema."
                )
        blocks = to_blocks(structured_content if content is None else content)
        super().__init__(blocks, structured, meta, is_error)

    def __getattribute__(self, name: str) -> Any:
        """Return None for a structured value that is absent."""
        value = super().__getattribute__(name)
        return None if value is msgspec.UNSET else value

    def __repr__(self) -> str:
        """Show the parts."""
        return f"{type(self).__name__}(content={self.content!r}, structured_content={self.structured_content!r})"

    @classmethod
    def from_mcp_result(cls, result: Any) -> ToolResult:
        """Make one from the protocol's result."""
        made = cls.__new__(cls)
        structured = to_plain(result.structured_content)
        made.content = list(result.content)
        made.structured_content = msgspec.UNSET if structured is None else structured
        made.meta = result.meta
        made.is_error = bool(result.is_error)
        return made

    def to_mcp_result(self) -> Any:
        """Return the result as the protocol has it, or only the content where there is nothing else."""
        if self.structured_content is None and not self.meta and not self.is_error:
            return self.content
        if not self.meta and not self.is_error:
            return self.content, self.structured_content
        return model_class("CallToolResult")(
            content=self.content, structured_content=self.structured_content, is_error=self.is_error, meta=self.meta
        )

    def to_struct(self) -> t.CallToolResult:
        """Return the result as ours."""
        structured: Any = self.structured_content
        return t.CallToolResult(
            content=[msgspec.convert(to_plain(block), t.ContentBlock) for block in self.content],  # type: ignore[attr-defined]
            structured_content=msgspec.UNSET if structured is None else to_plain(structured),
            is_error=self.is_error or None,
            meta=None if self.meta is None else dict(self.meta),
        )


def _text_block(content: Any) -> Any:
    from trunkline.compat.fast_functions import fast_content

    blocks = fast_content(content)
    return blocks[0] if len(blocks) == 1 else to_blocks(msgspec.json.encode(to_plain(content)).decode())[0]


class Message(OwnMessage):
    """One message of a prompt."""

    __slots__ = ()

    def __init__(self, content: Any, role: Any = "user") -> None:
        """Initialize with the content, as text, a model or a value."""
        block = content if isinstance(content, BaseModel) and hasattr(content, "type") else _text_block(content)
        super().__init__(block, role)

    def to_mcp_prompt_message(self) -> Any:
        """Return the message as the protocol has it."""
        return to_model(to_messages(self))[0]

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return the members."""
        return {"role": self.role, "content": to_plain(self.content)}

    def __eq__(self, other: object) -> bool:
        """Compare role and content."""
        return isinstance(other, Message) and (self.role, self.content) == (other.role, other.content)

    def __hash__(self) -> int:
        """Identify the object."""
        return id(self)

    def __repr__(self) -> str:
        """Show role and content."""
        return f"{type(self).__name__}(role={self.role!r}, content={self.content!r})"


class UserMessage(Message):
    """A message of the user's."""

    __slots__ = ()

    def __init__(self, content: Any, role: Any = "user") -> None:
        """Initialize with the content."""
        super().__init__(content, "user")


class AssistantMessage(Message):
    """A message of the model's."""

    __slots__ = ()

    def __init__(self, content: Any, role: Any = "assistant") -> None:
        """Initialize with the content."""
        super().__init__(content, "assistant")


class PromptResult:
    """A rendered prompt."""

    def __repr__(self) -> str:
        """Show the messages."""
        return f"{type(self).__name__}(messages={[each.content for each in self.messages]!r})"

    def __init__(self, messages: Any, description: str | None = None, meta: Mapping[str, Any] | None = None) -> None:
        """Initialize with messages, or one text."""
        if isinstance(messages, Message) or not isinstance(messages, str | Sequence):
            raise TypeError("messages must be str or list[Message]")
        items = [messages] if isinstance(messages, str) else messages
        self.messages = [
            item
            if isinstance(item, OwnMessage)
            else Message(getattr(item, "content", item), getattr(item, "role", "user"))
            for item in items
        ]
        self.description = description
        self.meta = None if meta is None else dict(meta)

    def to_mcp_prompt_result(self) -> Any:
        """Return it as the protocol has it."""
        return to_model(self.to_struct())

    def __protocol_result__(self, uri: str = "") -> t.GetPromptResult:
        """Return it as ours."""
        return self.to_struct()

    def to_struct(self) -> t.GetPromptResult:
        """Return it as ours."""
        return t.GetPromptResult(messages=to_messages(self.messages), description=self.description, meta=self.meta)


class ResourceContent(OwnContent):
    """One of the contents of a resource: text, bytes, or a value that becomes JSON."""

    __slots__ = ()

    def __init__(self, content: Any, mime_type: str | None = None, meta: Mapping[str, Any] | None = None) -> None:
        """Initialize with the content."""
        if not isinstance(content, str | bytes):
            from trunkline.server.results import encode_json

            content, mime_type = encode_json(content).decode(), mime_type or "application/json"
        default = "text/plain" if isinstance(content, str) else "application/octet-stream"
        super().__init__(content, mime_type or default, meta)

    def __repr__(self) -> str:
        """Show the content and its MIME type."""
        return f"{type(self).__name__}(content={self.content!r}, mime_type={self.mime_type!r}, meta={self.meta!r})"

    def to_mcp_resource_contents(self, uri: Any) -> Any:
        """Return it as the protocol has it."""
        return to_model(to_contents(self, str(uri)))[0]

    def __eq__(self, other: object) -> bool:
        """Compare the members."""
        return isinstance(other, OwnContent) and (self.content, self.mime_type) == (other.content, other.mime_type)

    def __hash__(self) -> int:
        """Identify the object."""
        return id(self)


#: Version 1 of the official SDK calls the same thing so.
ReadResourceContents = ResourceContent


def _with_meta(content: Any, meta: Mapping[str, Any] | None) -> Any:
    if not meta:
        return content
    return ResourceContent(content.content, content.mime_type, {**meta, **(content.meta or {})})


class ResourceResult:
    """The contents of a resource."""

    def __init__(self, contents: Any, meta: Mapping[str, Any] | None = None) -> None:
        """Initialize with text, bytes, JSON, or a list of ``ResourceContent``."""
        if isinstance(contents, str | bytes):
            contents = [ResourceContent(contents)]
        elif isinstance(contents, Mapping):
            contents = [ResourceContent(dict(contents), "text/plain")]
        if not isinstance(contents, list):
            raise TypeError(f"contents must be str, bytes, or list[ResourceContent], got {type(contents).__name__}")
        for index, each in enumerate(contents):
            if not isinstance(each, OwnContent):
                raise TypeError(
                    f"contents[{index}] must be ResourceContent, got {type(each).__name__}; "
                    "wrap it in ResourceContent(...)"
                )
        self.contents: list[Any] = contents
        self.meta = None if meta is None else dict(meta)

    def __eq__(self, other: object) -> bool:
        """Compare the contents."""
        return isinstance(other, ResourceResult) and (self.contents, self.meta) == (other.contents, other.meta)

    def __hash__(self) -> int:
        """Identify the object."""
        return id(self)

    def __repr__(self) -> str:
        """Show the contents."""
        return f"ResourceResult(contents={self.contents!r}, meta={self.meta!r})"

    @classmethod
    def of(cls, value: Any, mime_type: str | None, meta: Mapping[str, Any] | None = None) -> ResourceResult:
        """Make one from what a function returned; ``meta`` is the resource's own, for each content.

        Raises:
            TypeError: it is neither text, bytes, JSON nor contents.
        """
        if isinstance(value, ResourceResult):
            return value
        if isinstance(value, list) and value and all(isinstance(each, OwnContent) for each in value):
            return cls([_with_meta(each, meta) for each in value])
        if isinstance(value, str | bytes):
            return cls([ResourceContent(value, mime_type, meta)])
        if value is None or isinstance(value, dict | list | int | float | bool):
            return cls([ResourceContent(value, mime_type, meta)])
        return cls(value)

    def to_mcp_result(self, uri: Any) -> Any:
        """Return it as the protocol has it."""
        return to_model(self.to_struct(str(uri)))

    def __protocol_result__(self, uri: str = "") -> t.ReadResourceResult:
        """Return it as ours."""
        return self.to_struct(uri)

    def to_struct(self, uri: str) -> t.ReadResourceResult:
        """Return it as ours."""
        return t.ReadResourceResult(contents=to_contents(self.contents, uri), meta=self.meta)
