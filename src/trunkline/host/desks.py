"""Who answers a server's question on the host's side: a person, a model, a configuration.

A desk stands where the gateway's client would: it is asked by ``LocalFront`` when a program, a chat or the command line
uses the host. What the policy forbids does not reach it.
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

#: Is told, in a sentence for the user, what was refused or could not be done, and what to do about it.
Notice: TypeAlias = Callable[[str], object]


class Desk(Protocol):
    """Answers what servers ask."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What can be asked here, as a client declares it."""

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        """Answer a question of a server's with the result, encoded.

        Raises:
            RequestFailed: it is refused.
        """


class CallbackDesk:
    """Answers by functions that the user gave; they are not told which server asks."""

    def __init__(self, answers: Answers) -> None:
        """Take the functions as a client has them."""
        self._answers = answers

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the functions can answer."""
        return self._answers.capabilities

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        """Call the function for a question."""
        return Raw(msgspec.json.encode(await self._answers.answer(method, params)))


class HostDesk:
    """Answers by a model that is reviewed, and by a person who is shown forms and pages; the rest by another desk."""

    def __init__(
        self,
        *,
        sampling: SamplingDesk | None = None,
        elicitation: ElicitationDesk | None = None,
        rest: Desk | None = None,
    ) -> None:
        """Take the parts; what a part cannot be asked, ``rest`` is."""
        self._sampling = sampling
        self._elicitation = elicitation
        self._rest = rest

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the parts can answer together; a part stands before the other desk."""
        declared: dict[str, Any] = {} if self._rest is None else dict(self._rest.capabilities)
        for part in (self._sampling, self._elicitation):
            if part is not None:
                declared |= part.capabilities
        return declared

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        """Have the part answer that a question is for."""
        kind = method.partition("/")[0]
        if kind == "sampling" and self._sampling is not None and self._sampling.capabilities:
            return Raw(msgspec.json.encode(await self._sampling.answer(entry, params, session)))
        if kind == "elicitation" and self._elicitation is not None and self._elicitation.capabilities:
            return Raw(msgspec.json.encode(await self._elicitation.answer(entry, params, session)))
        if self._rest is None or kind not in self._rest.capabilities:
            raise MethodNotFound(f"Nobody is here to be asked: {method} was not declared")
        return await self._rest.answer(entry, method, params, session)

    async def aclose(self) -> None:
        """Let go what the parts opened."""
        if self._sampling is not None:
            await self._sampling.aclose()


# --- what came of it -------------------------------------------------------------------------------------------------


class Reviewed(Struct, frozen=True, kw_only=True):
    """What came of a server's question: whether it was answered, on whose word, and what there is to say."""

    act: Act
    allowed: bool
    #: ``policy``, ``grant:<id>``, ``user``, ``deadline`` or ``budget``.
    by: str
    note: str | None = None


#: Is told what came of each question.
Tell: TypeAlias = Callable[[Reviewed], object]


def question_act(entry: ServerEntry, method: str, params: Any, session: HostSession) -> Act:
    """Give a server's question as the policy sees it."""
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
    """Give what writes down in the trail, and tells as an event, what came of a question; not what was asked."""

    def tell(reviewed: Reviewed) -> None:
        act = reviewed.act
        if audit is not None:
            outcome = "ok" if reviewed.allowed else "denied"
            audit.record(note_of(act, by=reviewed.by, outcome=outcome, note=reviewed.note))
        if events is not None:
            events.tell(Asked(act.server, act.name, reviewed.allowed, reviewed.by))

    return tell
