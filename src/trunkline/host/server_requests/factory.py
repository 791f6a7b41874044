"""Builds a host's handler of server requests from models, prompters and callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from trunkline.host.audit.trail import AuditTrail
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.events import EventBus
from trunkline.host.models.interface import Model
from trunkline.host.server_requests.elicitation import ElicitationHandler, ElicitationPrompter
from trunkline.host.server_requests.handlers import (
    HostRequestHandler,
    ServerRequestHandler,
    UserNotice,
    review_recorder,
)
from trunkline.host.server_requests.sampling.handler import SamplingHandler, SamplingOptions, SamplingPrompter
from trunkline.host.server_requests.sampling.limits import SamplingLimits
from trunkline.host.server_requests.sampling.model_request import SamplingModels

if TYPE_CHECKING:
    from trunkline.host.session import HostSession

__all__ = ["RequestHandlerOptions", "build_request_handler"]


class RequestHandlerOptions(Struct, frozen=True, kw_only=True):
    """The parts of a host's request handler."""

    #: The models that answer sampling requests, in the user's order: open models, or names that are opened on demand.
    models: Sequence[Model | str] = ()
    #: Show sampling requests and answers, forms and pages to a person; None if there is no one.
    review: SamplingPrompter | None = None
    forms: ElicitationPrompter | None = None
    limits: SamplingLimits = SamplingLimits()
    #: Called with messages for the user about what was refused and why.
    notice: UserNotice | None = None
    #: Returns what a server itself answered in a session.
    results: Callable[[HostSession, str], str] | None = None
    #: The environment with the API keys of models; None for that of this process.
    environ: Mapping[str, str] | None = None


def build_request_handler(
    options: RequestHandlerOptions,
    policy: Policy,
    *,
    audit: AuditTrail | None = None,
    events: EventBus | None = None,
    rest: ServerRequestHandler | None = None,
) -> HostRequestHandler:
    """Build a handler; ``rest`` answers what no part of it does. Close it after use."""
    tell = review_recorder(audit, events)
    sampling = None
    if options.models:
        sampling = SamplingHandler(
            _models(options),
            policy,
            SamplingOptions(
                review=options.review,
                limits=options.limits,
                results=options.results,
                notice=options.notice,
                tell=tell,
            ),
        )
    elicitation = None
    if options.forms is not None:
        elicitation = ElicitationHandler(options.forms, notice=options.notice, tell=tell)
    return HostRequestHandler(sampling=sampling, elicitation=elicitation, rest=rest)


def _models(options: RequestHandlerOptions) -> SamplingModels:
    def opener(name: str) -> Model:
        from trunkline.host.models.selection import open_model

        return open_model(name, environ=options.environ)

    opened = [model for model in options.models if not isinstance(model, str)]
    names = [name for name in options.models if isinstance(name, str)]
    return SamplingModels(*opened, names=names, opener=opener)
