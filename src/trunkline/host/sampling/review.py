"""The review of a sampling request and of the model's answer: what a person is shown, and their decision."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from msgspec import Struct

import trunkline.types as t
from trunkline.host.models.interface import Usage
from trunkline.host.policy.acts import Decision

__all__ = ["SamplingDecision", "SamplingFace", "SamplingReview"]


class SamplingReview(Struct, frozen=True, kw_only=True):
    """A request before it goes to a model, or the model's answer before it goes to the server."""

    stage: Literal["request", "response"]
    server: str
    #: The server's whole command or URL, without secrets.
    command: str
    #: The whole request, with edits so far.
    request: t.CreateMessageRequestParams
    #: The chosen model, and the reasons.
    model: str
    why: tuple[str, ...]
    #: The models that may be chosen instead.
    models: tuple[str, ...]
    #: The maximum number of tokens of the answer.
    max_tokens: int
    #: The estimated size of the request in tokens, and the maximum cost in US dollars; None: not known.
    input_tokens: int
    most_cost: float | None
    #: What the server has left: requests in this minute, tokens in this hour.
    requests_left: int
    tokens_left: int
    #: The policy's decision.
    decision: Decision
    #: Differences from what the server asked for, and other notes; a sentence each.
    notes: tuple[str, ...] = ()
    #: Earlier results of the server, included only if the person says so; empty if it asked for none.
    context: str = ""
    #: The answer, in the second review.
    response: t.CreateMessageResult | None = None
    usage: Usage | None = None
    cost: float | None = None


class SamplingDecision(Struct, frozen=True, kw_only=True):
    """The person's decision."""

    allow: bool
    #: ``session``: requests, or answers, of this server are not reviewed again in this session.
    remember: Literal["once", "session"] = "once"
    #: The request as edited by the person; None if unchanged.
    request: t.CreateMessageRequestParams | None = None
    #: Another model from ``models``.
    model: str | None = None
    #: Include the server's earlier results.
    context: bool = False
    #: The answer as edited by the person; None if unchanged.
    response: t.CreateMessageResult | None = None


#: Shows a review to a person; None: no answer. It is cancelled when the request is withdrawn.
SamplingFace: TypeAlias = Callable[[SamplingReview], Awaitable["SamplingDecision | None"]]
