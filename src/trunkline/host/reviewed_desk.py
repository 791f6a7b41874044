"""Builds a host's handler of server requests from models, prompters and callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from trunkline.host.audit.trail import AuditTrail
from trunkline.host.desks import Desk, HostDesk, Notice, recorder
from trunkline.host.elicitation.answering import ElicitationDesk, ElicitationFace
from trunkline.host.events import Events
from trunkline.host.models.interface import Model
from trunkline.host.policy.policy import Policy
from trunkline.host.sampling.answering import SamplingDesk, SamplingOptions
from trunkline.host.sampling.limits import SamplingLimits
from trunkline.host.sampling.models import SamplingModels
from trunkline.host.sampling.review import SamplingFace

if TYPE_CHECKING:
    from trunkline.host.session import HostSession

__all__ = ["DeskOptions", "open_desk"]


class DeskOptions(Struct, frozen=True, kw_only=True):
    """The parts of a host's request handler."""

    #: The models that answer sampling requests, in the user's order: open models, or names that are opened on demand.
    models: Sequence[Model | str] = ()
    #: Show sampling requests and answers, forms and pages to a person; None if there is no one.
    review: SamplingFace | None = None
    forms: ElicitationFace | None = None
    limits: SamplingLimits = SamplingLimits()
    #: Called with messages for the user about what was refused and why.
    notice: Notice | None = None
    #: Returns what a server itself answered in a session.
    results: Callable[[HostSession, str], str] | None = None
    #: The environment with the API keys of models; None for that of this process.
    environ: Mapping[str, str] | None = None


def open_desk(
    options: DeskOptions,
    policy: Policy,
    *,
    audit: AuditTrail | None = None,
    events: Events | None = None,
    rest: Desk | None = None,
) -> HostDesk:
    """Build a handler; ``rest`` answers what no part of it does. Close it after use."""
    tell = recorder(audit, events)
    sampling = None
    if options.models:
        sampling = SamplingDesk(
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
        elicitation = ElicitationDesk(options.forms, notice=options.notice, tell=tell)
    return HostDesk(sampling=sampling, elicitation=elicitation, rest=rest)


def _models(options: DeskOptions) -> SamplingModels:
    def opener(name: str) -> Model:
        from trunkline.host.models.choosing import open_model

        return open_model(name, environ=options.environ)

    opened = [model for model in options.models if not isinstance(model, str)]
    names = [name for name in options.models if isinstance(name, str)]
    return SamplingModels(*opened, names=names, opener=opener)
