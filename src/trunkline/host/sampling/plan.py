"""Makes a server's sampling request ready for a model: which one, in its terms, cut to what the server may have.

Nothing is asked or spent here. What differs from the server's wishes is written down as notes, for whoever reviews it.
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
    """A request that is ready for a model."""

    request: t.CreateMessageRequestParams
    choice: Choice
    #: All models that could answer it.
    models: tuple[str, ...]
    traits: Traits
    prepared: ModelRequest
    names: Names
    #: The size of the request, estimated.
    input_tokens: int
    notes: tuple[str, ...]
    #: The server's own results that may go along; empty if it asked for none.
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
    """Make a request ready; ``results`` is what the server answered before, ``model`` the one that the user chose.

    Raises:
        InvalidParams: it breaks the protocol.
        OverBudget: it is more than the server may have.
        RequestFailed: no model can take it.
        ConfigError: the server may have no model that is there.
    """
    check_messages(request)
    if tool_rounds(request) > limits.rounds:
        raise OverBudget(f"The model called tools {limits.rounds} times already: that is the limit", code=_REJECTED)
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
    """Name the models that the server may have and that can take the request."""
    allowed = models.allowed(limits.models)
    if not allowed:
        raise ConfigError("no model is there that it may have")
    wants = Wants.of(request)
    fitting = [name for name in allowed if not wants.missing(models.traits(name))]
    if not fitting:
        missing = wants.missing(models.traits(allowed[0]))
        raise RequestFailed(f"The model {allowed[0]} does not take {' or '.join(missing)}")
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
    """Say how many tokens the answer may have."""
    most = min(request.max_tokens, limits.max_tokens, traits.output_tokens, traits.window_tokens - size)
    if traits.window_tokens <= size:
        raise RequestFailed(f"The request is too long for the model: about {size} tokens")
    if tokens_left <= size or most < 1:
        raise OverBudget("The tokens that this server may have in an hour are used up", code=_REJECTED)
    return min(most, tokens_left - size)


def _notes(request: t.CreateMessageRequestParams, most: int, traits: Traits, *, context: bool) -> Iterator[str]:
    """Say what differs from what the server asked for."""
    if most < request.max_tokens:
        yield f"it asked for {request.max_tokens} tokens, and gets {most} at most"
    if request.temperature is not None and not traits.temperature:
        yield "the model takes no temperature, so its own is used"
    if len(request.stop_sequences or ()) > _MOST_STOPS:
        yield f"only the first {_MOST_STOPS} stop sequences are used"
    if request.metadata:
        yield "its metadata is not passed on"
    if request.include_context == "allServers":
        yield "it asked for the context of all servers, which is treated as thisServer: no other's is ever given"
    if request.include_context in ("thisServer", "allServers"):
        yield (
            "what it answered itself in this session goes along only if you say so"
            if context
            else "it asked for context, and there is none of its own in this session"
        )
