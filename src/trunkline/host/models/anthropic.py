"""Anthropic's models, through its own SDK: the Messages API both ways.

Reasoning ("thinking") blocks are never shown. They come with a signature and go back unchanged with the results of
the calls that they led to; see ``reasoning``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from trunkline.host.models.interface import (
    Block,
    Finished,
    ImageBlock,
    ModelError,
    ModelEvent,
    ModelMessage,
    ModelRequest,
    StopReason,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUseBegun,
    ToolUseBlock,
    Traits,
    Usage,
    as_object,
    check_media,
    encode_json,
    parse_tool_call,
    result_blocks,
    sent_arguments,
)
from trunkline.host.models.provider import Provider, SDKClient, SDKOptions, load_sdk, missing_key_error, with_retries
from trunkline.host.models.reasoning import ConversationDigest, ReasoningStore, RequestFormat, build_request

__all__ = ["AnthropicModel", "MessagesAccumulator", "messages_body"]

_CHOICES: Mapping[str, str] = MappingProxyType({"auto": "auto", "any": "any", "none": "none"})
_STOPS: Mapping[str, StopReason] = MappingProxyType(
    {
        "end_turn": "end",
        "pause_turn": "end",
        "tool_use": "tools",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "stop_sequence": "stop_sequence",
        "refusal": "refusal",
    }
)
_THOUGHTS = ("thinking", "redacted_thinking")


# --- the request -----------------------------------------------------------------------------------------------------


def messages_body(
    request: ModelRequest, *, model: str, traits: Traits, reasoning: ReasoningStore, cache: bool
) -> tuple[dict[str, Any], ConversationDigest]:
    """Build the request body, and the digest under which its answer is remembered."""
    body, digest = build_request(request, _FORMAT, model=model, traits=traits, reasoning=reasoning)
    if request.stop_sequences:
        body["stop_sequences"] = list(request.stop_sequences)
    if cache and (request.tools or len(request.messages) > 1):
        body["cache_control"] = {"type": "ephemeral"}
    return body, digest


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}


def _choice(choice: str) -> dict[str, str]:
    if choice in _CHOICES:
        return {"type": _CHOICES[choice]}
    return {"type": "tool", "name": choice}


def _message(message: ModelMessage, own: list[Any] | None, traits: Traits) -> Iterator[dict[str, Any]]:
    content = own
    if content is None:
        content = [each for block in _in_order(message) for each in _block(block, traits)]
    if content:
        yield {"role": message.role, "content": content}


_FORMAT = RequestFormat(
    messages="messages",
    system="system",
    limit="max_tokens",
    least_tokens=1,
    write_tool=_tool,
    write_choice=_choice,
    write_message=_message,
    most_temperature=1.0,
)


def _in_order(message: ModelMessage) -> list[Block]:
    """Return the blocks with tool results first, where the API requires them."""
    return sorted(message.content, key=lambda block: not isinstance(block, ToolResultBlock))


def _block(block: Block, traits: Traits) -> Iterator[dict[str, Any]]:
    match block:
        # An empty text is rejected, and one of nothing but white space too.
        case TextBlock() if block.text.strip():
            yield {"type": "text", "text": block.text}
        case ImageBlock():
            yield _image(block)
        case ToolUseBlock():
            yield {"type": "tool_use", "id": block.id, "name": block.name, "input": sent_arguments(block)}
        case ToolResultBlock():
            shown = [part for each in result_blocks(block, traits) for part in _block(each, traits)]
            yield {
                "type": "tool_result",
                "tool_use_id": block.id,
                "content": shown or [{"type": "text", "text": "(nothing)"}],
                "is_error": block.is_error,
            }
        case _:
            return


def _image(block: ImageBlock) -> dict[str, Any]:
    source = {"type": "base64", "media_type": block.mime_type.lower(), "data": block.data}
    return {"type": "image", "source": source}


# --- the answer ------------------------------------------------------------------------------------------------------


class _OpenBlock(Struct):
    """A content block that is still being received."""

    kind: str
    head: dict[str, Any]
    pieces: list[str]
    signature: str = ""


class MessagesAccumulator:
    """Accumulates an answer: feed it the events of the stream, then call ``finished``."""

    def __init__(self) -> None:
        """Start empty."""
        self._blocks: dict[int, _OpenBlock] = {}
        self._stop: str | None = None
        self._counts: dict[str, int] = {}
        self._model = ""
        #: Whether the provider marked the answer as complete.
        self.done = False

    def feed(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Process an event of the stream; yield the events that it means to us."""
        match event.get("type"):
            case "message_start":
                message = as_object(event.get("message"))
                self._model = str(message.get("model") or "")
                self._count(message.get("usage"))
            case "content_block_start":
                yield from self._begin(event)
            case "content_block_delta":
                yield from self._add(event)
            case "message_delta":
                self._stop = as_object(event.get("delta")).get("stop_reason") or self._stop
                self._count(event.get("usage"))
            case "message_stop":
                self.done = True

    def _begin(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        head = dict(as_object(event.get("content_block")))
        kind = str(head.get("type"))
        begun = _OpenBlock(kind, head, [])
        self._blocks[event.get("index", len(self._blocks))] = begun
        if kind == "tool_use":
            yield ToolUseBegun(str(head.get("name", "")))
        elif kind == "text" and head.get("text"):
            begun.pieces.append(head["text"])
            yield TextDelta(head["text"])

    def _add(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        block = self._blocks.get(event.get("index", -1))
        delta = as_object(event.get("delta"))
        if block is None:
            return
        match delta.get("type"):
            case "text_delta":
                block.pieces.append(str(delta.get("text", "")))
                yield TextDelta(block.pieces[-1])
            case "input_json_delta":
                block.pieces.append(str(delta.get("partial_json", "")))
            case "thinking_delta":
                block.pieces.append(str(delta.get("thinking", "")))
            case "signature_delta":
                block.signature += str(delta.get("signature", ""))

    def _count(self, usage: Any) -> None:
        # The counts of a later event are totals of the whole answer.
        self._counts.update({name: count for name, count in as_object(usage).items() if isinstance(count, int)})

    def finished(self) -> Finished:
        """Return the complete answer."""
        content = tuple(found for _, block in sorted(self._blocks.items()) if (found := _read(block)) is not None)
        message = ModelMessage("assistant", content)
        read, written = self._counted("cache_read_input_tokens"), self._counted("cache_creation_input_tokens")
        usage = Usage(self._counted("input_tokens") + read + written, self._counted("output_tokens"), read, written)
        stop: StopReason = _STOPS.get(self._stop or "", "end")
        return Finished(message, "tools" if stop == "end" and message.tool_uses else stop, usage, self._model)

    def _counted(self, name: str) -> int:
        return self._counts.get(name, 0)

    def provider_form(self) -> list[Any] | None:
        """Return the answer in the provider's own form, if it contains reasoning to be returned later."""
        blocks = [block for _, block in sorted(self._blocks.items())]
        thoughts = [block for block in blocks if block.kind in _THOUGHTS]
        if not thoughts or not all(_signed(block) for block in thoughts):
            return None
        return [written for block in blocks if (written := _echoed(block)) is not None]


def _read(block: _OpenBlock) -> TextBlock | ToolUseBlock | None:
    if block.kind == "text":
        text = "".join(block.pieces)
        return TextBlock(text) if text else None
    if block.kind == "tool_use":
        return parse_tool_call(str(block.head.get("id", "")), str(block.head.get("name", "")), _arguments(block))
    return None


def _arguments(block: _OpenBlock) -> str:
    written = "".join(block.pieces)
    given = block.head.get("input")
    # Some servers put all the arguments into the start of the block.
    return written if written or not given else encode_json(given).decode()


def _signed(block: _OpenBlock) -> bool:
    return bool(block.head.get("data")) if block.kind == "redacted_thinking" else bool(_signature(block))


def _signature(block: _OpenBlock) -> str:
    return block.signature or str(block.head.get("signature") or "")


def _echoed(block: _OpenBlock) -> dict[str, Any] | None:
    match block.kind:
        case "thinking":
            thought = str(block.head.get("thinking") or "") + "".join(block.pieces)
            return {"type": "thinking", "thinking": thought, "signature": _signature(block)}
        case "redacted_thinking":
            return {"type": "redacted_thinking", "data": block.head["data"]}
        case _:
            found = _read(block)
            if found is None:
                return None
            if isinstance(found, TextBlock):
                return {"type": "text", "text": found.text} if found.text.strip() else None
            return {"type": "tool_use", "id": found.id, "name": found.name, "input": sent_arguments(found)}


_URL = "https://api.anthropic.com"
# Parameters that the SDK lacks in one release or another.
_EXTRA = ("cache_control", "temperature")


class AnthropicModel:
    """A model of Anthropic."""

    def __init__(self, model: str, options: SDKOptions, *, traits: Traits) -> None:
        """Create the client; nothing is sent yet.

        Raises:
            ConfigError: the SDK is not installed.
            ModelError: there is no key.
        """
        self.name = f"anthropic:{model}"
        self.traits = traits
        provider = Provider(
            label="Anthropic",
            model=self.name,
            variable="ANTHROPIC_API_KEY",
            keys_at="https://platform.claude.com/settings/keys",
            key=options.key,
            missing_model="its models are listed at https://platform.claude.com/docs/en/about-claude/models",
        )
        if not options.key:
            raise missing_key_error(provider)
        sdk = load_sdk("anthropic")
        client = sdk.AsyncAnthropic(
            api_key=options.key,
            base_url=options.url or _URL,
            max_retries=0,
            timeout=sdk.Timeout(options.pace.idle_seconds, connect=options.pace.connect_seconds),
        )
        self._model = model
        self._cache = options.cache
        self._client = SDKClient(sdk, client, provider=provider, pace=options.pace)
        self._reasoning = ReasoningStore()

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Run a turn; closing the iterator stops it at the provider.

        Raises (while iterating):
            ModelError: there is no answer, or it is incomplete.
        """
        return with_retries(lambda: self._attempt(request), self._client.pace)

    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        check_media(request.messages, name=self.name, traits=self.traits)
        body, digest = messages_body(
            request, model=self._model, traits=self.traits, reasoning=self._reasoning, cache=self._cache
        )
        extra = {name: body.pop(name) for name in _EXTRA if name in body}

        async def opening(client: Any) -> Any:
            return await client.messages.create(**body, stream=True, extra_body=extra)

        answer = MessagesAccumulator()
        try:
            async with aclosing(self._client.read(opening, answer)) as events:
                async for event in events:
                    yield event
        except ModelError as error:
            self._distrust(error)
            raise
        finished = answer.finished()
        provider_form = answer.provider_form()
        if provider_form is not None:
            self._reasoning.keep(digest.key(finished.message.content), provider_form)
        yield finished

    def _distrust(self, error: ModelError) -> None:
        """Stop returning reasoning blocks if they were what was rejected: the conversation goes on without them."""
        if error.fault == "refused" and len(self._reasoning) and "thinking" in str(error):
            self._reasoning.forget()
            error.transient = True

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
