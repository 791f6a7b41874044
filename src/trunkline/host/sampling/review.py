"""What a person is shown of a server's sampling request and of the model's answer, and what they say to it."""

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
    #: The server's whole command or URL, secrets left out.
    command: str
    #: The request, whole, as it stands now.
    request: t.CreateMessageRequestParams
    #: The model that would answer, and why it is this one.
    model: str
    why: tuple[str, ...]
    #: The models that may be chosen instead.
    models: tuple[str, ...]
    #: The most tokens that the answer may have.
    max_tokens: int
    #: The size of the request in tokens, estimated, and what it can cost at most in US dollars; None: not known.
    input_tokens: int
    most_cost: float | None
    #: What the server has left: requests in this minute, tokens in this hour.
    requests_left: int
    tokens_left: int
    #: What the policy says.
    decision: Decision
    #: What differs from what the server asked for, and what else there is to know; a sentence each.
    notes: tuple[str, ...] = ()
    #: The server's own results of this session that go along if the person says so; empty if it asked for none.
    context: str = ""
    #: The answer, in the second review.
    response: t.CreateMessageResult | None = None
    usage: Usage | None = None
    cost: float | None = None


class SamplingDecision(Struct, frozen=True, kw_only=True):
    """What the person says."""

    allow: bool
    #: Whether requests, or answers, of this server are reviewed again in this session.
    remember: Literal["once", "session"] = "once"
    #: The request as the person changed it; None if they did not.
    request: t.CreateMessageRequestParams | None = None
    #: Another model, of those that may be chosen.
    model: str | None = None
    #: The server's own results may go along.
    context: bool = False
    #: The answer as the person changed it; None if they did not.
    response: t.CreateMessageResult | None = None


#: Puts a review before a person; None: they did not answer. It is cancelled when the question is withdrawn.
SamplingFace: TypeAlias = Callable[[SamplingReview], Awaitable["SamplingDecision | None"]]
