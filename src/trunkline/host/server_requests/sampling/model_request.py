"""A sampling request of a server, validated and prepared for a model, and the model's answer converted back.

No I/O. A request that breaks the protocol (tool results without a call, or mixed with other content) is invalid; one
that the model cannot take fails with a message that names the model. The tools are those of the request and no
others. A plan names the model, holds the request in its terms, cut to the server's limits, and notes for the reviewer
on what differs from the server's wishes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.errors import ConfigError, InvalidParams, RequestFailed
from trunkline.host.chat.history import block_tokens
from trunkline.host.chat.tool_schemas import UnsupportedTool, schema_dialect, to_tool_spec
from trunkline.host.models.interface import (
    AudioBlock,
    Block,
    Finished,
    ImageBlock,
    Model,
    ModelMessage,
    ModelRequest,
    StopReason,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    Traits,
)
from trunkline.host.models.selection import traits_of
from trunkline.host.server_requests.sampling.limits import SamplingLimitExceeded, SamplingLimits
from trunkline.host.upstreams.catalog.items import estimate_tokens
from trunkline.host.upstreams.catalog.names import NamingScheme, wire_name

__all__ = [
    "ModelChoice",
    "ModelRequirements",
    "SamplingModels",
    "SamplingPlan",
    "ToolNames",
    "check_messages",
    "choose_model",
    "match_names",
    "plan_sampling",
    "preferences_text",
    "to_model_messages",
    "to_sampling_result",
    "to_tool_specs",
    "tool_rounds",
]


class ModelChoice(Struct, frozen=True):
    """The chosen model, and the reasons, a sentence each."""

    name: str
    why: tuple[str, ...]


def choose_model(models: Mapping[str, Traits], preferences: t.ModelPreferences | None) -> ModelChoice:
    """Choose one of the models, which are in the user's order; there is at least one."""
    names, why = list(models), []
    if len(names) == 1:
        return ModelChoice(names[0], ("it is the only one that may answer",))
    hints = [hint.name for hint in (preferences.hints if preferences else None) or () if hint.name]
    for hint in hints:
        fitting = [name for name in names if hint.lower() in name.lower()]
        if fitting:
            names = fitting
            why.append(f"the hint {hint!r} is in its name")
            break
        why.append(f"the hint {hint!r} is in no name")
    weights = _weights(preferences)
    if len(names) > 1 and weights:
        scores = _scores({name: models[name] for name in names}, weights)
        best = max(names, key=lambda name: scores[name])
        said = ", ".join(f"{word} {weight:g}" for word, weight in weights.items())
        return ModelChoice(best, (*why, f"it fits the priorities best ({said})"))
    if len(names) > 1 or not why:
        why.append("it is the first in the user's order")
    return ModelChoice(names[0], tuple(why))


def preferences_text(preferences: t.ModelPreferences | None) -> str:
    """Describe a server's preferences for people."""
    hints = [hint.name for hint in (preferences.hints if preferences else None) or () if hint.name]
    said = [f"{word} {weight:g}" for word, weight in _weights(preferences).items()]
    return "; ".join(part for part in (f"hints: {', '.join(hints)}" if hints else "", ", ".join(said)) if part)


def _weights(preferences: t.ModelPreferences | None) -> dict[str, float]:
    if preferences is None:
        return {}
    given = {
        "cost": preferences.cost_priority,
        "speed": preferences.speed_priority,
        "intelligence": preferences.intelligence_priority,
    }
    return {word: min(1.0, float(weight)) for word, weight in given.items() if weight is not None and weight > 0}


def _scores(models: Mapping[str, Traits], weights: Mapping[str, float]) -> dict[str, float]:
    prices = {name: _price(traits) for name, traits in models.items()}
    dearest = max((price for price in prices.values() if price is not None), default=0.0)
    scores = {}
    for name, traits in models.items():
        price = prices[name]
        # A model with an unknown price is not considered cheap.
        cheap = 0.0 if price is None else 1.0 if not dearest else 1.0 - price / dearest
        known = {"cost": cheap, "speed": traits.speed, "intelligence": traits.intelligence}
        scores[name] = sum(weight * known[word] for word, weight in weights.items())
    return scores


def _price(traits: Traits) -> float | None:
    if traits.input_price is None or traits.output_price is None:
        return None
    return traits.input_price + traits.output_price


def match_names(names: Sequence[str], globs: Sequence[str]) -> list[str]:
    """Return the names that match a glob, in the order of the globs."""
    from fnmatch import fnmatchcase

    return list(dict.fromkeys(name for glob in globs for name in names if fnmatchcase(name, glob)))


class SamplingModels:
    """Models by name, in the user's order."""

    def __init__(self, *models: Model, names: Sequence[str] = (), opener: Callable[[str], Model] | None = None) -> None:
        """Use open models, which the caller closes, and names that ``opener`` opens when needed."""
        self._given = {model.name: model for model in models}
        self._opened: dict[str, Model] = {}
        self._opener = opener
        #: The models for servers whose entries name none.
        self.names: tuple[str, ...] = tuple(dict.fromkeys((*self._given, *(names if opener is not None else ()))))

    def allowed(self, globs: Sequence[str] | None) -> list[str]:
        """Return the names of the models that a server may use; a literal name in ``globs`` need not be known yet."""
        if globs is None:
            return list(self.names)
        plain = [glob for glob in globs if self._opener is not None and ":" in glob and not set("*?[") & set(glob)]
        return match_names([*self.names, *plain], globs)

    def traits(self, name: str) -> Traits:
        """Return the traits of a model."""
        model = self._given.get(name) or self._opened.get(name)
        return traits_of(name) if model is None else model.traits

    def get(self, name: str) -> Model:
        """Return a model, opened if needed.

        Raises:
            ModelError, ConfigError: it cannot be opened.
        """
        model = self._given.get(name) or self._opened.get(name)
        if model is None:
            assert self._opener is not None
            model = self._opened[name] = self._opener(name)
        return model

    async def aclose(self) -> None:
        """Close the models that were opened here."""
        opened, self._opened = self._opened, {}
        for model in opened.values():
            await model.aclose()


_MOST_MESSAGES = 1000  # Longer conversations do not fit into a context window.
_MOST_TOOLS = 128  # The limit of the large providers.
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


class ModelRequirements(Struct, frozen=True):
    """What a model must support to answer a request."""

    images: bool = False
    audio: bool = False
    tools: bool = False

    @classmethod
    def of(cls, request: t.CreateMessageRequestParams) -> ModelRequirements:
        """Return the requirements of a request."""
        blocks = [block for message in request.messages for block in _nested_blocks(message)]
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


def _nested_blocks(message: t.SamplingMessage) -> Iterable[Any]:
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
        for block in _nested_blocks(message):
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


class ToolNames:
    """The names of a request's tools in the provider's form, and the mapping back."""

    def __init__(self, naming: NamingScheme) -> None:
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


def to_tool_specs(
    request: t.CreateMessageRequestParams, traits: Traits, names: ToolNames
) -> tuple[tuple[ToolSpec, ...], str]:
    """Convert the tools of a request, and return them with the tool choice mode.

    Raises:
        RequestFailed: the model does not support one of them.
    """
    dialect, specs = schema_dialect(traits.schemas), []
    for tool in request.tools or ():
        try:
            specs.append(to_tool_spec(tool, names.offer(tool.name), dialect))
        except UnsupportedTool as problem:
            raise RequestFailed(f"The model cannot be given the tool {tool.name[:80]!r}: {problem}") from problem
    mode = (request.tool_choice and request.tool_choice.mode) or "auto"
    return tuple(specs), _CHOICES[mode] if specs else "auto"


def to_model_messages(request: t.CreateMessageRequestParams, names: ToolNames) -> tuple[ModelMessage, ...]:
    """Convert the messages of a request; that the model supports them is checked before."""
    return tuple(
        ModelMessage(message.role, tuple(made for block in _blocks(message) for made in _block(block, names)))
        for message in request.messages
    )


def _block(block: Any, names: ToolNames) -> list[Block]:
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


def to_sampling_result(finished: Finished, names: ToolNames) -> t.CreateMessageResult:
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


_MOST_STOPS = 16  # Providers accept 4 to 16.
_REJECTED = -1  # 2025-11-25, client/sampling: the code for a request that the user rejected.


class SamplingPlan(Struct, frozen=True, kw_only=True):
    """A sampling request that is ready for a model."""

    request: t.CreateMessageRequestParams
    choice: ModelChoice
    #: All models that can answer it.
    models: tuple[str, ...]
    traits: Traits
    prepared: ModelRequest
    names: ToolNames
    #: The estimated size of the request.
    input_tokens: int
    notes: tuple[str, ...]
    #: Earlier results of the server that may be included; empty if it asked for none.
    context: str


def plan_sampling(
    request: t.CreateMessageRequestParams,
    models: SamplingModels,
    *,
    limits: SamplingLimits,
    tokens_left: int,
    results: str = "",
    model: str | None = None,
) -> SamplingPlan:
    """Plan a request; ``results`` are earlier results of the server, ``model`` is the user's choice, if any.

    Raises:
        InvalidParams: it breaks the protocol.
        SamplingLimitExceeded: it exceeds the server's limits.
        RequestFailed: no model can take it.
        ConfigError: no available model is allowed for the server.
    """
    check_messages(request)
    if tool_rounds(request) > limits.rounds:
        raise SamplingLimitExceeded(
            f"The model has called tools {limits.rounds} times, which is the limit", code=_REJECTED
        )
    fitting = _fitting(request, models, limits)
    choice = choose_model({name: models.traits(name) for name in fitting}, request.model_preferences)
    if model is not None and model in fitting and model != choice.name:
        choice = ModelChoice(model, ("the user chose it",))
    traits = models.traits(choice.name)
    prepared, names = _prepared(request, traits)
    size = _size(prepared)
    most = _max_output_tokens(request, traits, size, limits=limits, tokens_left=tokens_left)
    context = "" if request.include_context in (None, "none") else results
    return SamplingPlan(
        request=request,
        choice=choice,
        models=tuple(fitting),
        traits=traits,
        prepared=replace(prepared, max_tokens=most),
        names=names,
        input_tokens=size,
        notes=tuple(_notes(request, most, traits, context=bool(context))),
        context=context,
    )


def _fitting(request: t.CreateMessageRequestParams, models: SamplingModels, limits: SamplingLimits) -> list[str]:
    """Return the models that the server may use and that can take the request."""
    allowed = models.allowed(limits.models)
    if not allowed:
        raise ConfigError("no available model is allowed for it")
    wants = ModelRequirements.of(request)
    fitting = [name for name in allowed if not wants.missing(models.traits(name))]
    if not fitting:
        missing = wants.missing(models.traits(allowed[0]))
        raise RequestFailed(f"The model {allowed[0]} does not support {' or '.join(missing)}")
    return fitting


def _prepared(request: t.CreateMessageRequestParams, traits: Traits) -> tuple[ModelRequest, ToolNames]:
    names = ToolNames(schema_dialect(traits.schemas).naming)
    tools, tool_choice = to_tool_specs(request, traits, names)
    prepared = ModelRequest(
        messages=to_model_messages(request, names),
        system=request.system_prompt or None,
        tools=tools,
        temperature=request.temperature if traits.temperature else None,
        stop_sequences=tuple(request.stop_sequences or ())[:_MOST_STOPS],
        tool_choice=tool_choice,
    )
    return prepared, names


def _size(request: ModelRequest) -> int:
    """Estimate the tokens of a request."""
    blocks = sum(block_tokens(block) for message in request.messages for block in message.content)
    return blocks + estimate_tokens(request.system or "") + sum(estimate_tokens(tool) for tool in request.tools)


def _max_output_tokens(
    request: t.CreateMessageRequestParams, traits: Traits, size: int, *, limits: SamplingLimits, tokens_left: int
) -> int:
    """Return the maximum number of tokens of the answer."""
    most = min(request.max_tokens, limits.max_tokens, traits.output_tokens, traits.window_tokens - size)
    if traits.window_tokens <= size:
        raise RequestFailed(f"The request is too long for the model: about {size} tokens")
    if tokens_left <= size or most < 1:
        raise SamplingLimitExceeded("The hourly token limit of this server is used up", code=_REJECTED)
    return min(most, tokens_left - size)


def _notes(request: t.CreateMessageRequestParams, most: int, traits: Traits, *, context: bool) -> Iterator[str]:
    """Yield notes on what differs from what the server asked for."""
    if most < request.max_tokens:
        yield f"it asked for {request.max_tokens} tokens, and gets {most} at most"
    if request.temperature is not None and not traits.temperature:
        yield "the model does not support a temperature, so its default is used"
    if len(request.stop_sequences or ()) > _MOST_STOPS:
        yield f"only the first {_MOST_STOPS} stop sequences are used"
    if request.metadata:
        yield "its metadata is not forwarded"
    if request.include_context == "allServers":
        yield "it asked for the context of all servers, which is treated as thisServer: no other is ever included"
    if request.include_context in ("thisServer", "allServers"):
        yield (
            "its own earlier results in this session are included only if you say so"
            if context
            else "it asked for context, and there is none of its own in this session"
        )
