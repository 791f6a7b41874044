"""Conversion of a sampling request for a model, and of the model's answer for the server; no I/O.

A request that breaks the protocol (tool results without a call, or mixed with other content) is invalid; one that the
model cannot take fails with a message that names the model. The tools are those of the request and no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import UNSET, Struct

import trunkline.types as t
from trunkline.errors import InvalidParams, RequestFailed
from trunkline.host.catalog.names import Naming, wire_name
from trunkline.host.chat.projection import Unfit, dialect_of, project
from trunkline.host.models.interface import (
    AudioBlock,
    Block,
    Finished,
    ImageBlock,
    Message,
    StopReason,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    Traits,
)

__all__ = ["Names", "Wants", "check_messages", "messages_for", "result_from", "tool_rounds", "tools_for"]

_MOST_MESSAGES = 1000
_MOST_TOOLS = 128
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_STOPS: Mapping[StopReason, str] = MappingProxyType(
    {
        "end": "endTurn",
        "tools": "toolUse",
        "length": "maxTokens",
        "stop_sequence": "stopSequence",
        "refusal": "refusal",
    }
)
_CHOICES: Mapping[str, str] = MappingProxyType({"auto": "auto", "required": "any", "none": "none"})


class Wants(Struct, frozen=True):
    """What a model must support to answer a request."""

    images: bool = False
    audio: bool = False
    tools: bool = False

    @classmethod
    def of(cls, request: t.CreateMessageRequestParams) -> Wants:
        """Return the requirements of a request."""
        blocks = [block for message in request.messages for block in _every(message)]
        return cls(
            images=any(isinstance(block, t.ImageContent) for block in blocks),
            audio=any(isinstance(block, t.AudioContent) for block in blocks),
            tools=bool(request.tools) or any(isinstance(block, t.ToolUseContent) for block in blocks),
        )

    def missing(self, traits: Traits) -> tuple[str, ...]:
        """Return what a model does not support."""
        lacks = {
            "images": self.images and not traits.images,
            "audio": self.audio and not traits.audio,
            "tools": self.tools and not traits.tools,
        }
        return tuple(word for word, lacking in lacks.items() if lacking)


def _blocks(message: t.SamplingMessage) -> list[t.SamplingMessageContentBlock]:
    return message.content if isinstance(message.content, list) else [message.content]


def _every(message: t.SamplingMessage) -> Iterable[Any]:
    """Yield the blocks of a message and those inside tool results."""
    for block in _blocks(message):
        yield block
        if isinstance(block, t.ToolResultContent):
            yield from block.content


# --- validation ------------------------------------------------------------------------------------------------------


def check_messages(request: t.CreateMessageRequestParams) -> None:
    """Validate the messages and tools of a request.

    Raises:
        InvalidParams: it breaks the protocol.
    """
    if not request.messages:
        raise InvalidParams("Invalid params: there are no messages")
    if len(request.messages) > _MOST_MESSAGES:
        raise InvalidParams(f"Invalid params: more than {_MOST_MESSAGES} messages")
    if request.max_tokens < 1:
        raise InvalidParams("Invalid params: maxTokens must be at least 1")
    waiting: set[str] = set()
    for message in request.messages:
        waiting = _check_message(message, waiting)
    if waiting:
        raise InvalidParams("Tool result missing in request")
    _check_data(request)
    _check_tools(request.tools or ())


def _check_message(message: t.SamplingMessage, waiting: set[str]) -> set[str]:
    """Validate one message against the calls that wait for results; return the calls that now wait."""
    blocks = _blocks(message)
    results = [block for block in blocks if isinstance(block, t.ToolResultContent)]
    uses = [block for block in blocks if isinstance(block, t.ToolUseContent)]
    if results and (len(results) < len(blocks) or message.role != "user"):
        raise InvalidParams("Tool results mixed with other content")
    if uses and message.role != "assistant":
        raise InvalidParams("Invalid params: tool calls belong in assistant messages")
    answered = {block.tool_use_id for block in results}
    if waiting - answered:
        raise InvalidParams("Tool result missing in request")
    if answered - waiting or len(answered) < len(results):
        raise InvalidParams("Invalid params: a tool result has no matching call, or a call has two results")
    if len({block.id for block in uses}) < len(uses):
        raise InvalidParams("Invalid params: two tool calls have the same id")
    return {block.id for block in uses}


def _check_data(request: t.CreateMessageRequestParams) -> None:
    for message in request.messages:
        for block in _every(message):
            if isinstance(block, t.ImageContent | t.AudioContent) and not _BASE64.fullmatch(block.data):
                raise InvalidParams("Invalid params: image or audio data is not valid base64")


def _check_tools(tools: Iterable[t.Tool]) -> None:
    names = [tool.name for tool in tools]
    if len(names) > _MOST_TOOLS:
        raise InvalidParams(f"Invalid params: more than {_MOST_TOOLS} tools")
    if len(set(names)) < len(names):
        raise InvalidParams("Invalid params: two tools have the same name")


def tool_rounds(request: t.CreateMessageRequestParams) -> int:
    """Return how often the model called tools in the conversation of a request."""
    return sum(any(isinstance(block, t.ToolUseContent) for block in _blocks(each)) for each in request.messages)


# --- to the model ----------------------------------------------------------------------------------------------------


class Names:
    """The names of a request's tools in the provider's form, and the mapping back."""

    def __init__(self, naming: Naming) -> None:
        """Start with none."""
        self._naming = naming
        self._own: dict[str, str] = {}

    def wire(self, own: str) -> str:
        """Return the provider's name of a tool."""
        return own if self._naming.is_legal(own) else wire_name("", own, self._naming)

    def offer(self, own: str) -> str:
        """Register a tool that the model may call, and return the provider's name of it."""
        name = self.wire(own)
        self._own[name] = own
        return name

    def own(self, wire: str) -> str | None:
        """Return the server's name of a registered tool; None if there is none."""
        return self._own.get(wire)


def tools_for(request: t.CreateMessageRequestParams, traits: Traits, names: Names) -> tuple[tuple[ToolSpec, ...], str]:
    """Convert the tools of a request, and return them with the tool choice mode.

    Raises:
        RequestFailed: the model does not support one of them.
    """
    dialect, specs = dialect_of(traits.schemas), []
    for tool in request.tools or ():
        try:
            specs.append(project(tool, names.offer(tool.name), dialect))
        except Unfit as problem:
            raise RequestFailed(f"The model cannot be given the tool {tool.name[:80]!r}: {problem}") from problem
    mode = (request.tool_choice and request.tool_choice.mode) or "auto"
    return tuple(specs), _CHOICES[mode] if specs else "auto"


def messages_for(request: t.CreateMessageRequestParams, names: Names) -> tuple[Message, ...]:
    """Convert the messages of a request; that the model supports them is checked before."""
    return tuple(
        Message(message.role, tuple(made for block in _blocks(message) for made in _block(block, names)))
        for message in request.messages
    )


def _block(block: Any, names: Names) -> list[Block]:
    if isinstance(block, t.ToolUseContent):
        return [ToolUseBlock(block.id, names.wire(block.name), block.input)]
    if isinstance(block, t.ToolResultContent):
        content = [made for each in block.content for made in _plain(each)]
        if not content and block.structured_content is not UNSET and block.structured_content is not None:
            content = [TextBlock(msgspec.json.encode(block.structured_content).decode())]
        return [ToolResultBlock(block.tool_use_id, tuple(content), bool(block.is_error))]
    return list(_plain(block))


def _plain(block: Any) -> list[TextBlock | ImageBlock | AudioBlock]:
    match block:
        case t.TextContent():
            return [TextBlock(block.text)] if block.text else []
        case t.ImageContent():
            return [ImageBlock(block.data, block.mime_type)]
        case t.AudioContent():
            return [AudioBlock(block.data, block.mime_type)]
        case t.EmbeddedResource() if block.resource.text is not None:
            return [TextBlock(f"[resource {block.resource.uri}]\n{block.resource.text}")]
        case t.EmbeddedResource():
            return [TextBlock(f"[resource {block.resource.uri}: not text]")]
        case _:
            return [TextBlock(f"[resource {getattr(block, 'uri', '')}]")]


# --- back to the server ----------------------------------------------------------------------------------------------


def result_from(finished: Finished, names: Names) -> t.CreateMessageResult:
    """Convert the model's answer to a sampling result.

    Raises:
        RequestFailed: the model calls a tool that is not in the request, or its arguments are invalid.
    """
    content: list[t.SamplingMessageContentBlock] = []
    if finished.message.text or not finished.message.tool_uses:
        content.append(t.TextContent(text=finished.message.text))
    for use in finished.message.tool_uses:
        own = names.own(use.name)
        if own is None:
            raise RequestFailed("The model called a tool that the request does not have")
        if use.arguments is None:
            raise RequestFailed(f"The model wrote arguments for {own[:80]!r} that are not a JSON object")
        content.append(t.ToolUseContent(id=use.id, name=own, input=use.arguments))
    return t.CreateMessageResult(
        role="assistant",
        content=content[0] if len(content) == 1 else content,
        model=finished.model,
        stop_reason=_STOPS[finished.stop_reason],
    )
