"""OpenAI's models, through its own SDK and the Responses API.

Its current models refuse tools in chat completions unless reasoning is turned off. Audio models exist only in chat
completions and are called there. Nothing is stored at the provider: each request has the whole conversation, and the
model's reasoning comes encrypted and goes back with the results of the calls that it led to; see ``reasoning``. The API
has no stop sequences, so the text is cut here, and the rest of the stream is not awaited.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any

from trunkline.errors import ConfigError
from trunkline.host.models.chat_completions import ChatAccumulator, chat_body, data_url
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
    as_count,
    as_object,
    check_media,
    encode_json,
    parse_tool_call,
    result_blocks,
    sent_arguments,
)
from trunkline.host.models.provider import (
    ModelLimits,
    Provider,
    ProviderErrorInfo,
    SDKClient,
    SDKOptions,
    error_text,
    load_sdk,
    missing_key_error,
    refusal_error,
    truncated_error,
    with_retries,
)
from trunkline.host.models.reasoning import ConversationDigest, ReasoningStore, RequestFormat, build_request

__all__ = ["OpenAIModel", "ResponsesAccumulator", "responses_body"]

_CHOICES: Mapping[str, str] = MappingProxyType({"auto": "auto", "any": "required", "none": "none"})
_UNFINISHED: Mapping[str, StopReason] = MappingProxyType({"max_output_tokens": "length", "content_filter": "refusal"})


# --- the request -----------------------------------------------------------------------------------------------------


def responses_body(
    request: ModelRequest, *, model: str, traits: Traits, reasoning: ReasoningStore, thinks: bool
) -> tuple[dict[str, Any], ConversationDigest]:
    """Build the request body, and the digest under which its answer is remembered."""
    body, digest = build_request(request, _FORMAT, model=model, traits=traits, reasoning=reasoning)
    body |= {"store": False, "stream": True}
    if thinks:
        body["include"] = ["reasoning.encrypted_content"]
    return body, digest


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        "strict": False,
    }


def _choice(choice: str) -> Any:
    return _CHOICES.get(choice) or {"type": "function", "name": choice}


def _message(message: ModelMessage, own: list[Any] | None, traits: Traits) -> Iterable[dict[str, Any]]:
    if own is not None:
        return own
    return _assistant(message) if message.role == "assistant" else _user(message, traits)


_FORMAT = RequestFormat(
    messages="input",
    system="instructions",
    limit="max_output_tokens",
    least_tokens=16,
    write_tool=_tool,
    write_choice=_choice,
    write_message=_message,
)


def _assistant(message: ModelMessage) -> Iterator[dict[str, Any]]:
    if message.text:
        yield {"role": "assistant", "content": [{"type": "output_text", "text": message.text}]}
    for use in message.tool_uses:
        arguments = encode_json(sent_arguments(use)).decode()
        yield {"type": "function_call", "call_id": use.id, "name": use.name, "arguments": arguments}


def _user(message: ModelMessage, traits: Traits) -> Iterator[dict[str, Any]]:
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            yield {"type": "function_call_output", "call_id": block.id, "output": _output(block, traits)}
    parts = [part for block in message.content if (part := _part(block)) is not None]
    if parts:
        yield {"role": "user", "content": parts}


def _output(block: ToolResultBlock, traits: Traits) -> Any:
    """Return a tool result: a string if it is only text."""
    shown = list(result_blocks(block, traits))
    if block.is_error:
        shown.insert(0, TextBlock("The call failed:"))
    if all(isinstance(each, TextBlock) for each in shown):
        return "\n".join(each.text for each in shown if isinstance(each, TextBlock)) or "(nothing)"
    return [part for each in shown if (part := _part(each)) is not None]


def _part(block: Block) -> dict[str, Any] | None:
    match block:
        case TextBlock() if block.text:
            return {"type": "input_text", "text": block.text}
        case ImageBlock():
            return {"type": "input_image", "image_url": data_url(block), "detail": "auto"}
        case _:
            return None


# --- the answer ------------------------------------------------------------------------------------------------------


class ResponsesAccumulator:
    """Accumulates an answer: feed it the events of the stream, then call ``finished``."""

    def __init__(self, stop_sequences: tuple[str, ...] = ()) -> None:
        """Start empty."""
        self._cut = _StopSequenceFilter(stop_sequences)
        self._items: dict[int, Mapping[str, Any]] = {}
        self._stop: StopReason = "end"
        self._usage = Usage()
        self._model = ""
        self._texts: list[str] = []
        #: The provider's error, in its own form.
        self.failure: Mapping[str, Any] | None = None
        #: Whether the answer is complete.
        self.done = False

    def feed(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Process an event of the stream; yield the events that it means to us."""
        match event.get("type"):
            case "response.output_text.delta":
                yield from self._say(str(event.get("delta", "")))
            case "response.refusal.delta":
                self._stop = "refusal"
                yield from self._say(str(event.get("delta", "")))
            case "response.output_item.added" if as_object(event.get("item")).get("type") == "function_call":
                yield ToolUseBegun(str(event["item"].get("name", "")))
            case "response.output_item.done":
                self._items[event.get("output_index", len(self._items))] = as_object(event.get("item"))
            case "response.completed" | "response.incomplete":
                yield from self._end(as_object(event.get("response")))
            case "response.failed":
                self.failure = as_object(as_object(event.get("response")).get("error"))
            case "error":
                self.failure = event

    def _say(self, text: str) -> Iterator[ModelEvent]:
        shown = self._cut.feed(text)
        if self._cut.hit and not self.done:
            self._stop = "stop_sequence"
            self.done = True
        if shown:
            self._texts.append(shown)
            yield TextDelta(shown)

    def _end(self, response: Mapping[str, Any]) -> Iterator[ModelEvent]:
        self._model = str(response.get("model") or "")
        self._usage = _usage(as_object(response.get("usage")))
        if self.done:
            return
        rest = self._cut.rest()
        if rest:
            self._texts.append(rest)
            yield TextDelta(rest)
        if response.get("status") == "incomplete":
            reason = str(as_object(response.get("incomplete_details")).get("reason"))
            self._stop = _UNFINISHED.get(reason, "length")
        self.done = True

    def finished(self) -> Finished:
        """Return the complete answer."""
        text = "".join(self._texts)
        blocks: list[Block] = [TextBlock(text)] if text else []
        blocks += self._calls()
        message = ModelMessage("assistant", tuple(blocks))
        stop: StopReason = "tools" if self._stop == "end" and message.tool_uses else self._stop
        return Finished(message, stop, self._usage, self._model)

    def _calls(self) -> Iterator[ToolUseBlock]:
        if self._stop == "stop_sequence":
            return
        for _, item in sorted(self._items.items()):
            if item.get("type") == "function_call":
                call_id, name = str(item.get("call_id", "")), str(item.get("name", ""))
                yield parse_tool_call(call_id, name, str(item.get("arguments") or ""))

    def provider_form(self) -> list[Any] | None:
        """Return the answer in the provider's own form, if it contains reasoning to be returned later."""
        items = [dict(item) for _, item in sorted(self._items.items())]
        thoughts = [item for item in items if item.get("type") == "reasoning"]
        whole = self._stop in ("end", "tools") and all(item.get("encrypted_content") for item in thoughts)
        if not thoughts or not whole or any(use.arguments is None for use in self._calls()):
            return None
        # Null members of a response are rejected in a request.
        return [{name: value for name, value in item.items() if value is not None} for item in items]


class _StopSequenceFilter:
    """Ends a text at the first of several stop sequences, however the text is chunked."""

    def __init__(self, sequences: tuple[str, ...]) -> None:
        self._sequences = tuple(each for each in sequences if each)
        self._held = ""
        #: Whether a sequence was found.
        self.hit = False

    def feed(self, text: str) -> str:
        """Feed text; return the part that can be shown."""
        if self.hit:
            return ""
        if not self._sequences:
            return text
        text = self._held + text
        ends = [at for each in self._sequences if (at := text.find(each)) >= 0]
        if ends:
            self.hit = True
            return text[: min(ends)]
        keep = max(_overlap(text, each) for each in self._sequences)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> str:
        """Return the text that was held back, since it did not become a sequence."""
        held, self._held = self._held, ""
        return "" if self.hit else held


def _overlap(text: str, sequence: str) -> int:
    """Return the length of the text's end that is a beginning of the sequence."""
    for size in range(min(len(text), len(sequence) - 1), 0, -1):
        if text.endswith(sequence[:size]):
            return size
    return 0


def _usage(usage: Mapping[str, Any]) -> Usage:
    details = as_object(usage.get("input_tokens_details"))
    return Usage(
        as_count(usage.get("input_tokens")),
        as_count(usage.get("output_tokens")),
        as_count(details.get("cached_tokens")),
        as_count(details.get("cache_write_tokens")),
    )


_URL = "https://api.openai.com/v1"
_APIS = ("responses", "chat")
# These have no reasoning to return, and reject requests for it.
_THOUGHTLESS = ("gpt-3", "gpt-4", "chatgpt-")


class OpenAIModel:
    """A model of OpenAI."""

    def __init__(self, model: str, options: SDKOptions, *, traits: Traits) -> None:
        """Create the client; nothing is sent yet.

        Raises:
            ConfigError: the SDK is not installed, or the API is unknown.
            ModelError: there is no key.
        """
        self.name = f"openai:{model}"
        self.traits = traits
        if options.api is not None and options.api not in _APIS:
            raise ConfigError(f"model.api is {options.api!r}; it can be {' or '.join(map(repr, _APIS))}")
        provider = Provider(
            label="OpenAI",
            model=self.name,
            variable="OPENAI_API_KEY",
            keys_at="https://platform.openai.com/api-keys",
            key=options.key,
            missing_model="its models are listed at https://developers.openai.com/api/docs/models",
        )
        if not options.key:
            raise missing_key_error(provider)
        self._model = model
        self._api = options.api or ("chat" if traits.audio else "responses")
        self._thinks = not model.startswith(_THOUGHTLESS)
        self._client = _client(options, provider)
        self._reasoning = ReasoningStore()

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Run a turn; closing the iterator stops it at the provider.

        Raises (while iterating):
            ModelError: there is no answer, or it is incomplete.
        """
        attempt = self._by_chat if self._api == "chat" else self._by_responses
        return with_retries(lambda: attempt(request), self._client.pace)

    async def _by_chat(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        check_media(request.messages, name=self.name, traits=self.traits)
        body = chat_body(request, model=self._model, traits=self.traits, limit_member="max_completion_tokens")

        async def opening(client: Any) -> Any:
            return await client.chat.completions.create(**body)

        answer = ChatAccumulator()
        async with aclosing(self._client.read(opening, answer)) as events:
            async for event in events:
                yield event
        yield answer.finished()

    async def _by_responses(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        check_media(request.messages, name=self.name, traits=self.traits)
        body, digest = responses_body(
            request, model=self._model, traits=self.traits, reasoning=self._reasoning, thinks=self._thinks
        )

        async def opening(client: Any) -> Any:
            return await client.responses.create(**body)

        answer = ResponsesAccumulator(request.stop_sequences)
        begun = False
        try:
            async with aclosing(self._client.read(opening, answer)) as events:
                async for event in events:
                    begun = True
                    yield event
        except ModelError as error:
            raise self._better(error, answer, begun=begun) from None
        finished = answer.finished()
        provider_form = answer.provider_form()
        if provider_form is not None:
            self._reasoning.keep(digest.key(finished.message.content), provider_form)
        yield finished

    def _better(self, error: ModelError, answer: ResponsesAccumulator, *, begun: bool) -> ModelError:
        """Return a better error for a stream that ended early, if the stream contained one."""
        if answer.failure is not None:
            words, kind = error_text(answer.failure)
            failure = refusal_error(self._client.provider, ProviderErrorInfo(status=200, words=words, kind=kind))
            return truncated_error(self._client.provider, words) if begun and failure.fault == "down" else failure
        if error.fault == "refused" and len(self._reasoning) and "reasoning" in str(error):
            # The conversation goes on without the reasoning.
            self._reasoning.forget()
            error.transient = True
        return error

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _client(options: SDKOptions, provider: Provider) -> SDKClient:
    sdk = load_sdk("openai")
    pace: ModelLimits = options.pace
    client = sdk.AsyncOpenAI(
        api_key=options.key,
        base_url=options.url or _URL,
        max_retries=0,
        timeout=sdk.Timeout(pace.idle_seconds, connect=pace.connect_seconds),
    )
    return SDKClient(sdk, client, provider=provider, pace=pace)
