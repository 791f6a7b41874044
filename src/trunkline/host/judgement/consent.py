"""Settles what the policy wants asked: by what the user allowed earlier, else by asking whoever is there, else no.

A face is a function that puts a question before a person and gives the answer: a terminal, a page, a client that can
be asked. It is asked one question at a time; those who wait take turns by session, so that one that asks a lot does
not keep the others waiting. Everything but a clear yes is a no: silence beyond the deadline, a face that fails, an
answer that does not fit the question. What the policy denies is not asked about, and no answer undoes it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import ConfigError
from trunkline.host.judgement.grants import Grant, GrantBook, SessionGrants, alike, make_grant
from trunkline.host.judgement.refusals import needs_approval
from trunkline.host.policy.acts import Act, Decision

__all__ = ["Answer", "Consent", "Face", "Question", "Remember", "Ruling", "can_remember"]

#: How long an answer holds: this once, for the session, for arguments like these, or always.
Remember: TypeAlias = Literal["once", "session", "alike", "always"]

_MOST_WAITING = 64


class Question(Struct, frozen=True, kw_only=True):
    """What a person is asked, with all that they need to know."""

    act: Act
    decision: Decision
    #: The server's own words; they may say anything.
    title: str | None = None
    description: str | None = None
    #: The server's whole command or URL, secrets left out.
    command: str = ""
    arguments: Mapping[str, Any] | None = None
    #: The definition that the act's pin is of, whole; None if it is not known.
    definition: Any = None
    #: The arguments may be changed.
    editable: bool = False
    #: Where the untrusted words in the conversation came from; None if there are none that matter here.
    tainted_by: str | None = None
    #: What the scan found in the definition.
    warnings: tuple[str, ...] = ()
    #: How long a yes may hold, besides this once; ``Consent`` takes away what the question does not show.
    can_remember: tuple[Remember, ...] = ("session", "alike", "always")


class Answer(Struct, frozen=True, kw_only=True):
    """What the person said."""

    allow: bool
    remember: Remember = "once"
    #: For arguments like these: a pointer to the one that may differ, and the glob it must fit.
    vary: str | None = None
    like: str | None = None
    #: The arguments as the person changed them; None if they did not.
    arguments: dict[str, Any] | None = None
    #: Until when it is remembered, in seconds since the epoch; None: as long as is usual.
    expires: float | None = None
    #: How often it may be used, besides now; None: any number of times.
    uses: int | None = None


#: Puts a question before a person; None: they did not answer. It is cancelled when the question is withdrawn.
Face: TypeAlias = Callable[[Question], Awaitable[Answer | None]]


class Ruling(Struct, frozen=True, kw_only=True):
    """What came of it: whether the act may be done, and on whose word."""

    allowed: bool
    #: ``policy``, ``grant:<id>``, ``client``, ``user`` or ``deadline``.
    by: str
    rule: str
    reason: str
    #: The arguments to use instead; None: those that were judged.
    arguments: dict[str, Any] | None = None
    #: What was remembered by this answer.
    grant: Grant | None = None


def can_remember(act: Act, definition: Any) -> tuple[Remember, ...]:
    """Say how long a yes may hold: no longer than for what the question shows whole.

    Without a pin nothing fixes what a tool is. Without the definition nobody saw what any other arguments would do.
    """
    if act.kind == "tool" and act.pin is None:
        return ()
    if act.kind == "tool" and definition is None:
        return ("alike",) if act.arguments is not None else ()
    return ("session", "alike", "always") if act.arguments is not None else ("session", "always")


class Consent:
    """Settles questions."""

    def __init__(
        self, grants: GrantBook | None, *, deadline: float = 300.0, clock: Callable[[], float] = time.time
    ) -> None:
        """Take what was allowed earlier, and the seconds a question may stand, and wait for its turn."""
        self._grants = grants
        self._deadline = deadline
        self._clock = clock
        self._queues: dict[Face, _Queue] = {}

    async def settle(
        self,
        act: Act,
        decision: Decision,
        *,
        question: Callable[[], Question],
        session_grants: SessionGrants | None = None,
        face: Face | None = None,
        rejudge: Callable[[dict[str, Any]], Decision] | None = None,
        refusal: Callable[[str | None], str] | None = None,
    ) -> Ruling:
        """Settle an act; the policy judges arguments that the person changed by ``rejudge``.

        ``refusal`` makes the sentence for where no one can be asked, from what went wrong with remembered answers.

        Cancelling this withdraws the question.
        """
        if decision.effect != "ask":
            allowed = decision.effect == "allow"
            return Ruling(allowed=allowed, by="policy", rule=decision.rule, reason=decision.reason)
        case = _Case(act, decision, session_grants, rejudge)
        problem = self._recall(case)
        if isinstance(problem, Ruling):
            return problem
        if face is None:
            told = needs_approval(act, decision, problem=problem) if refusal is None else refusal(problem)
            return case.no("policy", told)
        return await self._ask(case, face, question)

    async def _ask(self, case: _Case, face: Face, question: Callable[[], Question]) -> Ruling:
        queue = self._queues.setdefault(face, _Queue())
        try:
            async with asyncio.timeout(self._deadline) as waiting, queue.turn(case.act.session or ""):
                waiting.reschedule(None)
                # Whoever was asked before may have allowed this too.
                recalled = self._recall(case)
                if isinstance(recalled, Ruling):
                    return recalled
                return await self._put(case, face, _trimmed(question()))
        except TimeoutError:
            return case.no("deadline", f"other questions stood before this one for {self._deadline:g} s")
        except _Full:
            return case.no("deadline", f"{_MOST_WAITING} questions of this session wait for an answer already")
        finally:
            if queue.idle:
                self._queues.pop(face, None)

    async def _put(self, case: _Case, face: Face, question: Question) -> Ruling:
        """Put the question; anything that goes wrong is a no."""
        try:
            async with asyncio.timeout(self._deadline) as patience:
                answer = await face(question)
        except TimeoutError:
            if not patience.expired():
                return case.no("policy", "the question could not be asked: TimeoutError")
            return case.no("deadline", f"nobody answered within {self._deadline:g} s")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return case.no("policy", "the question was withdrawn by whoever should have asked it")
        except Exception as error:  # noqa: BLE001 - a face is foreign code, and its failure is a no
            return case.no("policy", f"the question could not be asked: {type(error).__name__}")
        if patience.expired():
            return case.no("deadline", f"nobody answered within {self._deadline:g} s")
        if not isinstance(answer, Answer) or answer.allow is not True:
            return case.no("user", "the user did not answer" if answer is None else "the user said no")
        return self._accept(case, question, answer)

    def _accept(self, case: _Case, question: Question, answer: Answer) -> Ruling:
        """Take a yes: hold changed arguments to the policy, and remember what is to be remembered."""
        act, decision = case.act, case.decision
        if answer.arguments is not None:
            if not question.editable or case.rejudge is None:
                return case.no("policy", "the arguments were changed, and may not be")
            decision = case.rejudge(answer.arguments)
            if decision.effect == "deny":
                reason = f"the policy denies the changed arguments: {decision.reason}"
                return Ruling(allowed=False, by="policy", rule=decision.rule, reason=reason)
            act = replace(act, arguments=answer.arguments)
        reason, grant = "the user said yes", None
        if answer.remember in question.can_remember:
            try:
                grant = self._remember(act, answer, case.session_grants)
            except (ConfigError, ValueError) as problem:
                reason += f"; it could not be remembered: {problem}"
        return Ruling(
            allowed=True, by="user", rule=decision.rule, reason=reason, arguments=answer.arguments, grant=grant
        )

    def _remember(self, act: Act, answer: Answer, session_grants: SessionGrants | None) -> Grant | None:
        assert answer.remember != "once"
        match = alike(act.arguments, vary=answer.vary, like=answer.like) if answer.remember == "alike" else None
        grant = make_grant(
            act, answer.remember, now=self._clock(), match=match, expires=answer.expires, uses=answer.uses
        )
        book = session_grants if grant.scope == "session" else self._grants
        if book is None:
            raise ValueError("there is no place to keep it")
        book.add(grant)
        return grant

    def _recall(self, case: _Case) -> Ruling | str | None:
        """Look for what allows it already; a text says why nothing could be found out."""
        now = self._clock()
        try:
            for book in (case.session_grants, self._grants):
                # One that is used up between the look and the use gives way to another.
                while book is not None and (grant := book.find(case.act, now)) is not None:
                    if book.spend(grant):
                        reason = f"allowed earlier ({grant.scope})"
                        return Ruling(allowed=True, by=f"grant:{grant.id}", rule=case.decision.rule, reason=reason)
        except ConfigError as problem:
            return str(problem)
        return None


class _Case(Struct, frozen=True):
    """What is being settled."""

    act: Act
    decision: Decision
    session_grants: SessionGrants | None
    rejudge: Callable[[dict[str, Any]], Decision] | None

    def no(self, by: str, reason: str) -> Ruling:
        """Rule that it may not be done."""
        return Ruling(allowed=False, by=by, rule=self.decision.rule, reason=reason)


def _trimmed(question: Question) -> Question:
    """Offer to remember only what the question shows."""
    shown = can_remember(question.act, question.definition)
    return replace(question, can_remember=tuple(each for each in question.can_remember if each in shown))


class _Full(Exception):
    """Too many questions wait."""


class _Queue:
    """Those who wait for one face, in turns by session."""

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._busy = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def idle(self) -> bool:
        """Whether nobody asks or waits."""
        return not self._busy and not self._waiting

    @asynccontextmanager
    async def turn(self, session: str) -> AsyncIterator[None]:
        """Wait for the turn, and have it."""
        if self._busy:
            await self._wait(session)
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
            self._next()

    async def _wait(self, session: str) -> None:
        line = self._waiting.setdefault(session, deque())
        if len(line) >= _MOST_WAITING:
            raise _Full
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(mine)
        try:
            await mine
        except BaseException:
            if mine.done() and not mine.cancelled():
                # The turn came in the same moment in which it was given up.
                self._busy = False
                self._next()
            else:
                with suppress(ValueError):
                    line.remove(mine)
                if not line and self._waiting.get(session) is line:
                    del self._waiting[session]
            raise

    def _next(self) -> None:
        """Give the turn to the session that had none for longest."""
        while self._waiting:
            session = next(iter(self._waiting))
            line = self._waiting.pop(session)
            mine = line.popleft() if line else None
            if line:
                # Behind the others, until its turn comes again.
                self._waiting[session] = line
            if mine is not None and not mine.done():
                self._busy = True
                mine.set_result(None)
                return
