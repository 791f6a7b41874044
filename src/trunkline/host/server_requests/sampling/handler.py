"""Answers sampling requests of servers: reviewed by a person, within limits, with the user's models.

Both directions are reviewed: the request before a model sees it, and the answer before the server does. A person may
edit either, or deny it; without a reviewer it is denied unless a rule of the policy allows it. A request goes to the
model as the server wrote it: nothing of the conversation, of the host or of other servers is added, and no tool but the
request's own is offered. Earlier results of the same server in this session are included only if a person says so.

A denial tells the server no more than it needs to know; the user gets the reason as a notice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.errors import ConfigError, RequestFailed
from trunkline.host.authorization.authorizer import act_for_server_request
from trunkline.host.authorization.denial_messages import allow_rule_advice
from trunkline.host.authorization.grants import make_grant
from trunkline.host.authorization.policy.decisions import Act, Decision
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.config.model import ServerEntry
from trunkline.host.models.interface import Finished, Model, ModelError, ModelRequest, Usage
from trunkline.host.server_requests.handlers import OnReviewed, ReviewOutcome, UserNotice
from trunkline.host.server_requests.sampling.limits import (
    SamplingLimitExceeded,
    SamplingLimits,
    SamplingUsage,
    limits_for,
)
from trunkline.host.server_requests.sampling.model_request import (
    SamplingModels,
    SamplingPlan,
    plan_sampling,
    to_sampling_result,
)
from trunkline.host.upstreams.catalog.items import estimate_tokens

__all__ = ["SamplingDecision", "SamplingHandler", "SamplingOptions", "SamplingPrompter", "SamplingReview"]


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
SamplingPrompter: TypeAlias = Callable[[SamplingReview], Awaitable["SamplingDecision | None"]]


if TYPE_CHECKING:
    from trunkline.host.session import HostSession


log = logging.getLogger("trunkline.host")

_METHOD = "sampling/createMessage"
# The name under which a session-wide yes to answers is stored as a grant.
_ANSWERS = "sampling/createMessage answers"
# The error code of the specification for a rejection by the user.
_REJECTED = -1
_CONTEXT_HEADING = "What this server answered earlier:"


class SamplingOptions(Struct, frozen=True, kw_only=True):
    """The options of a sampling handler besides its models and the policy."""

    #: Shows requests and answers to a person; None if there is no one to ask.
    review: SamplingPrompter | None = None
    #: The limits of servers whose entries set none.
    limits: SamplingLimits = SamplingLimits()
    #: Returns the earlier results of a server in a session, for requests that ask for context; None: there are none.
    results: Callable[[HostSession, str], str] | None = None
    #: Timeouts in seconds of a review, and of the model.
    review_seconds: float = 300.0
    model_seconds: float = 300.0
    #: Called with what was denied and why, as a sentence for the user.
    notice: UserNotice | None = None
    #: Called with the outcome of each request.
    tell: OnReviewed | None = None
    clock: Callable[[], float] = time.monotonic


class SamplingHandler:
    """Answers sampling requests with the user's models, under review."""

    def __init__(self, models: SamplingModels, policy: Policy, options: SamplingOptions | None = None) -> None:
        """Use these models and this policy."""
        self.models = models
        self.policy = policy
        self.options: SamplingOptions = options or SamplingOptions()
        self._accounts: dict[str, SamplingUsage] = {}

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities to declare: none without a model, or if every request would be denied."""
        by_rule = any(rule.effect == "allow" and "sampling" in rule.kinds for rule in self.policy.rules)
        if not self.models.names or (self.options.review is None and not by_rule):
            return {}
        return {"sampling": {"tools": {}}}

    async def answer(
        self, entry: ServerEntry, question: t.CreateMessageRequestParams, session: HostSession
    ) -> t.CreateMessageResult:
        """Answer a server's request.

        Raises:
            RequestFailed: it is denied, cannot be answered, or breaks the protocol.
        """
        account = self._accounts.setdefault(entry.name, SamplingUsage(self.options.clock))
        case = _SamplingRun(self, entry, session, account)
        try:
            result = await case.run(question)
        except _Denied as refusal:
            case.refused(question, refusal.by, refusal.why)
            raise RequestFailed("User rejected sampling request", code=_REJECTED) from refusal
        except ConfigError as problem:
            case.refused(question, "policy", str(problem))
            raise RequestFailed("Sampling is not set up for this server", code=_REJECTED) from problem
        except RequestFailed as failure:
            case.refused(
                question, "budget" if isinstance(failure, SamplingLimitExceeded) else "policy", failure.message
            )
            raise
        case.tell(question, case.by, case.note, allowed=True)
        return result

    async def aclose(self) -> None:
        """Close the models that were opened here."""
        await self.models.aclose()


class _Denied(Exception):
    """The request or its answer was denied."""

    def __init__(self, by: str, why: str) -> None:
        super().__init__(why)
        self.by = by
        self.why = why


class _SamplingRun:
    """The handling of one request."""

    def __init__(
        self, handler: SamplingHandler, entry: ServerEntry, session: HostSession, account: SamplingUsage
    ) -> None:
        self._handler = handler
        self._options = handler.options
        self._entry = entry
        self._session = session
        self._account = account
        self._limits = handler.options.limits
        #: Who allowed it, and a note on the outcome.
        self.by = "policy"
        self.note: str | None = None

    async def run(self, question: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        """Review the request, call the model, and review its answer."""
        self._limits = limits_for(self._entry, self._options.limits)
        with self._account.request(self._limits):
            decision = self._judged(question)
            plan = self._planned(question)
            if decision.effect == "ask" and not self._granted(question, _METHOD):
                plan = await self._request_reviewed(plan, decision)
            else:
                plan = replace(plan, context="")
            finished = await self._asked(plan)
            result = to_sampling_result(finished, plan.names)
            if decision.effect == "ask" and not self._granted(question, _ANSWERS):
                result = await self._answer_reviewed(result, finished, plan, decision)
            return result

    # --- reporting ---------------------------------------------------------------------------------------------------

    def refused(self, question: t.CreateMessageRequestParams, by: str, why: str) -> None:
        """Report a denial to the user and to the audit callback."""
        log.info("sampling for %s was denied: %s", self._entry.name, why)
        self._notify(f"A sampling request of {self._entry.name} was denied: {why}")
        self.tell(question, by, why, allowed=False)

    def tell(self, question: t.CreateMessageRequestParams, by: str, note: str | None, *, allowed: bool) -> None:
        """Report the outcome to the audit callback."""
        if self._options.tell is not None:
            self._options.tell(ReviewOutcome(act=self._act(question), allowed=allowed, by=by, note=note))

    def _notify(self, text: str) -> None:
        if self._options.notice is not None:
            self._options.notice(text)

    # --- the request -------------------------------------------------------------------------------------------------

    def _act(self, question: t.CreateMessageRequestParams, name: str = _METHOD) -> Act:
        return act_for_server_request(self._entry, _METHOD, question, self._session, name=name)

    def _judged(self, question: t.CreateMessageRequestParams) -> Decision:
        act = self._act(question)
        decision = self._handler.policy.decide(act, now=time.time())
        if decision.effect == "deny":
            raise _Denied("policy", f"{decision.reason} ({decision.rule})")
        if decision.effect == "ask" and self._options.review is None:
            raise _Denied(
                "policy",
                "there is no terminal or client to review it. To have it answered without a review, "
                f"{allow_rule_advice(act)}",
            )
        return decision

    def _granted(self, question: t.CreateMessageRequestParams, name: str) -> bool:
        """Return True if the person has allowed this for the session."""
        grants = self._session.grants
        found = grants.find(self._act(question, name), time.time())
        if found is None or not grants.use(found):
            return False
        self.by = f"grant:{found.id}"
        return True

    def _remember(self, question: t.CreateMessageRequestParams, name: str) -> None:
        self._session.grants.add(make_grant(self._act(question, name), "session", now=time.time()))

    def _planned(self, question: t.CreateMessageRequestParams, model: str | None = None) -> SamplingPlan:
        kept = self._options.results
        return plan_sampling(
            question,
            self._handler.models,
            limits=self._limits,
            tokens_left=self._account.tokens_left(self._limits),
            results="" if kept is None else kept(self._session, self._entry.name),
            model=model,
        )

    async def _request_reviewed(self, plan: SamplingPlan, decision: Decision) -> SamplingPlan:
        """Show the request to a person; return the plan with their edits."""
        said = await self._put(self._review(plan, decision))
        self.by = "user"
        if said.model is not None and said.model not in plan.models:
            raise _Denied("user", f"the model {said.model!r} is not one of those it may use")
        if said.request is not None or said.model is not None:
            changed = said.request or plan.request
            self._judged(changed)
            # The context is what the person saw, even if the server has answered more since.
            plan = replace(self._planned(changed, said.model or plan.choice.name), context=plan.context)
        if said.remember == "session":
            self._remember(plan.request, _METHOD)
        return plan if said.context else replace(plan, context="")

    # --- the model ---------------------------------------------------------------------------------------------------

    async def _asked(self, plan: SamplingPlan) -> Finished:
        """Call the model, and count the tokens used."""
        prepared, size = plan.prepared, plan.input_tokens
        if plan.context:
            system = "\n\n".join(filter(None, (prepared.system, _CONTEXT_HEADING, plan.context)))
            prepared = replace(prepared, system=system)
            size += estimate_tokens(plan.context)
        settle = self._account.reserve(size + prepared.max_tokens)
        used = size
        try:
            async with asyncio.timeout(self._options.model_seconds):
                finished = await _complete(self._handler.models.get(plan.choice.name), prepared)
            usage = finished.usage
            used = usage.input_tokens + usage.output_tokens
            self.note = f"{plan.choice.name}: {usage.input_tokens} tokens in, {usage.output_tokens} out"
            return finished
        except TimeoutError as late:
            raise RequestFailed("The model did not answer in time") from late
        except (ModelError, ConfigError) as failure:
            # Which key is missing or which provider is down is not for the server to know.
            self._notify(f"{plan.choice.name} did not answer: {failure}")
            why = failure.fault if isinstance(failure, ModelError) else "not set up"
            raise RequestFailed(f"The model did not answer ({why})") from failure
        finally:
            settle(used)

    # --- the answer --------------------------------------------------------------------------------------------------

    async def _answer_reviewed(
        self, result: t.CreateMessageResult, finished: Finished, plan: SamplingPlan, decision: Decision
    ) -> t.CreateMessageResult:
        """Show the answer to a person; return it with their edits."""
        cost = plan.traits.cost(finished.usage)
        review = self._review(plan, decision)
        review = replace(review, stage="response", response=result, usage=finished.usage, cost=cost)
        said = await self._put(review)
        self.by = "user"
        if said.remember == "session":
            self._remember(plan.request, _ANSWERS)
        return result if said.response is None else said.response

    # --- the reviewer ------------------------------------------------------------------------------------------------

    def _review(self, plan: SamplingPlan, decision: Decision) -> SamplingReview:
        return SamplingReview(
            stage="request",
            server=self._entry.name,
            command=self._entry.shown,
            request=plan.request,
            model=plan.choice.name,
            why=plan.choice.why,
            models=plan.models,
            max_tokens=plan.prepared.max_tokens,
            input_tokens=plan.input_tokens,
            most_cost=plan.traits.cost(Usage(plan.input_tokens, plan.prepared.max_tokens)),
            requests_left=self._account.requests_left(self._limits),
            tokens_left=self._account.tokens_left(self._limits),
            decision=decision,
            notes=plan.notes,
            context=plan.context,
        )

    async def _put(self, review: SamplingReview) -> SamplingDecision:
        """Show a review to a person; anything but a clear yes is a denial."""
        prompter, seconds = self._options.review, self._options.review_seconds
        assert prompter is not None
        try:
            async with asyncio.timeout(seconds) as timeout:
                said = await prompter(review)
        except TimeoutError:
            late = timeout.expired()
            why = (
                f"the review was not answered within {seconds:g} s"
                if late
                else "the review could not be shown: TimeoutError"
            )
            raise _Denied("deadline" if late else "policy", why) from None
        except Exception as error:
            log.exception("the review of a sampling request failed")
            raise _Denied("policy", f"the review could not be shown: {type(error).__name__}") from error
        if said is None:
            raise _Denied("user", "the user did not answer")
        if not isinstance(said, SamplingDecision) or said.allow is not True:
            raise _Denied("user", f"the user denied the {review.stage}")
        return said


async def _complete(model: Model, request: ModelRequest) -> Finished:
    """Return the complete answer of a model; cancelling this stops it at the provider."""
    stream = model.stream(request)
    try:
        async for event in stream:
            if isinstance(event, Finished):
                return event
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
    raise ModelError(f"{model.name} ended without an answer; try again.", fault="cut off", transient=True)
