"""Handlers that answer servers' requests on the host's side: by a person, a model or a callback.

A handler takes the place of the gateway's client: ``LocalChannel`` calls it when a program, a chat or the command line
uses the host. Requests that the policy denies do not reach it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
from msgspec import Raw, Struct

from trunkline.client.answers import Answers
from trunkline.errors import MethodNotFound
from trunkline.host.audit.notes import note_of
from trunkline.host.audit.trail import AuditTrail
from trunkline.host.entries import ServerEntry
from trunkline.host.events import Asked, Events
from trunkline.host.policy.acts import Act

if TYPE_CHECKING:
    from trunkline.host.elicitation.answering import ElicitationDesk
    from trunkline.host.sampling.answering import SamplingDesk
    from trunkline.host.session import HostSession

__all__ = ["CallbackDesk", "Desk", "HostDesk", "Notice", "Reviewed", "Tell", "question_act", "recorder"]

#: Called with a message for the user: what was refused or failed, and what to do about it.
Notice: TypeAlias = Callable[[str], object]


class Desk(Protocol):
    """Answers requests of servers."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The client capabilities that this handler provides."""

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        """Answer a request of a server with an encoded result.

        Raises:
            RequestFailed: the request is refused.
        """


class CallbackDesk:
    """Answers with callbacks of the user, which do not learn which server asks."""

    def __init__(self, answers: Answers) -> None:
        """Set the callbacks, in the form that a client has them."""
        self._answers = answers

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the callbacks provide."""
        return self._answers.capabilities

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        """Call the callback for a request."""
        return Raw(msgspec.json.encode(await self._answers.answer(method, params)))


class HostDesk:
    """Answers sampling with a reviewed model and elicitation with forms and pages; the rest with another handler."""

    def __init__(
        self,
        *,
        sampling: SamplingDesk | None = None,
        elicitation: ElicitationDesk | None = None,
        rest: Desk | None = None,
    ) -> None:
        """Set the parts; ``rest`` answers what no part does."""
        self._sampling = sampling
        self._elicitation = elicitation
        self._rest = rest

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities of all parts; those of a part override those of ``rest``."""
        declared: dict[str, Any] = {} if self._rest is None else dict(self._rest.capabilities)
        for part in (self._sampling, self._elicitation):
            if part is not None:
                declared |= part.capabilities
        return declared

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        """Dispatch to the handler for this kind of request."""
        kind = method.partition("/")[0]
        if kind == "sampling" and self._sampling is not None and self._sampling.capabilities:
            return Raw(msgspec.json.encode(await self._sampling.answer(entry, params, session)))
        if kind == "elicitation" and self._elicitation is not None and self._elicitation.capabilities:
            return Raw(msgspec.json.encode(await self._elicitation.answer(entry, params, session)))
        if self._rest is None or kind not in self._rest.capabilities:
            raise MethodNotFound(f"{method} cannot be answered here: it was not declared")
        return await self._rest.answer(entry, method, params, session)

    async def aclose(self) -> None:
        """Close what the parts opened."""
        if self._sampling is not None:
            await self._sampling.aclose()


# --- outcomes --------------------------------------------------------------------------------------------------------


class Reviewed(Struct, frozen=True, kw_only=True):
    """The outcome of a server request: whether it was allowed, by what, and a note."""

    act: Act
    allowed: bool
    #: ``policy``, ``grant:<id>``, ``user``, ``deadline`` or ``budget``.
    by: str
    note: str | None = None


#: Called with the outcome of each request.
Tell: TypeAlias = Callable[[Reviewed], object]


def question_act(entry: ServerEntry, method: str, params: Any, session: HostSession) -> Act:
    """Return a server request as the act that the policy decides about."""
    kind: Any = method.partition("/")[0]
    return Act(
        kind=kind,
        server=entry.name,
        name=method,
        arguments=msgspec.to_builtins(params),
        trusted=entry.settings.trusted,
        tainted=session.taint.reaches(entry.name, method),
        caller="server",
        principal=session.subject,
        session=session.id,
        profile=session.profile,
    )


def recorder(audit: AuditTrail | None, events: Events | None) -> Tell:
    """Return a callback that records outcomes in the audit trail and publishes them as events, without the content."""

    def tell(reviewed: Reviewed) -> None:
        act = reviewed.act
        if audit is not None:
            outcome = "ok" if reviewed.allowed else "denied"
            audit.record(note_of(act, by=reviewed.by, outcome=outcome, note=reviewed.note))
        if events is not None:
            events.tell(Asked(act.server, act.name, reviewed.allowed, reviewed.by))

    return tell
