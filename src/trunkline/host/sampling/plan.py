"""Plans a sampling request: which model answers it, in the model's terms, cut to the server's limits.

No model is called here. Differences from what the server asked for become notes for the reviewer.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.errors import ConfigError, RequestFailed
from trunkline.host.catalog.items import estimate_tokens
from trunkline.host.chat.history import block_tokens
from trunkline.host.chat.projection import dialect_of
from trunkline.host.models.interface import ModelRequest, Traits
from trunkline.host.sampling.choice import Choice, choose_by_wishes
from trunkline.host.sampling.limits import OverBudget, SamplingLimits
from trunkline.host.sampling.models import SamplingModels
from trunkline.host.sampling.wire import Names, Wants, check_messages, messages_for, tool_rounds, tools_for

__all__ = ["Plan", "make_plan"]

_MOST_STOPS = 16
_REJECTED = -1


class Plan(Struct, frozen=True, kw_only=True):
    """A sampling request that is ready for a model."""

    request: t.CreateMessageRequestParams
    choice: Choice
    #: All models that can answer it.
    models: tuple[str, ...]
    traits: Traits
    prepared: ModelRequest
    names: Names
    #: The estimated size of the request.
    input_tokens: int
    notes: tuple[str, ...]
    #: Earlier results of the server that may be included; empty if it asked for none.
    context: str


def make_plan(
    request: t.CreateMessageRequestParams,
    models: SamplingModels,
    *,
    limits: SamplingLimits,
    tokens_left: int,
    results: str = "",
    model: str | None = None,
) -> Plan:
    """Plan a request; ``results`` are earlier results of the server, ``model`` is the user's choice, if any.

    Raises:
        InvalidParams: it breaks the protocol.
        SamplingLimitExceeded: it exceeds the server's limits.
        RequestFailed: no model can take it.
        ConfigError: no available model is allowed for the server.
    """
    check_messages(request)
    if tool_rounds(request) > limits.rounds:
        raise OverBudget(f"The model has called tools {limits.rounds} times, which is the limit", code=_REJECTED)
    fitting = _fitting(request, models, limits)
    choice = choose_by_wishes({name: models.traits(name) for name in fitting}, request.model_preferences)
    if model is not None and model in fitting and model != choice.name:
        choice = Choice(model, ("the user chose it",))
    traits = models.traits(choice.name)
    prepared, names = _prepared(request, traits)
    size = _size(prepared)
    most = _most(request, traits, size, limits=limits, tokens_left=tokens_left)
    context = "" if request.include_context in (None, "none") else results
    return Plan(
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
    wants = Wants.of(request)
    fitting = [name for name in allowed if not wants.missing(models.traits(name))]
    if not fitting:
        missing = wants.missing(models.traits(allowed[0]))
        raise RequestFailed(f"The model {allowed[0]} does not support {' or '.join(missing)}")
    return fitting


def _prepared(request: t.CreateMessageRequestParams, traits: Traits) -> tuple[ModelRequest, Names]:
    names = Names(dialect_of(traits.schemas).naming)
    tools, tool_choice = tools_for(request, traits, names)
    prepared = ModelRequest(
        messages=messages_for(request, names),
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


def _most(
    request: t.CreateMessageRequestParams, traits: Traits, size: int, *, limits: SamplingLimits, tokens_left: int
) -> int:
    """Return the maximum number of tokens of the answer."""
    most = min(request.max_tokens, limits.max_tokens, traits.output_tokens, traits.window_tokens - size)
    if traits.window_tokens <= size:
        raise RequestFailed(f"The request is too long for the model: about {size} tokens")
    if tokens_left <= size or most < 1:
        raise OverBudget("The hourly token limit of this server is used up", code=_REJECTED)
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
