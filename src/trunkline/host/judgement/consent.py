"""Approval of acts that the policy wants asked about: by an earlier grant, else by prompting a person, else denied.

A prompter is a function that shows an approval request to a person and returns the answer: a terminal, a page, or a
client that supports elicitation. It gets one request at a time; waiting requests take turns by session, so that a busy
session does not hold up the others. Anything but a clear yes is a denial: no answer before the deadline, a prompter
that fails, an answer that does not fit the request. An act that the policy denies is never put to a person.
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

from trunkline.errors import ConfigError, LinkError, RequestFailed, RequestTimeout
from trunkline.host.judgement.grants import (
    MOST_TOOLS,
    Grant,
    GrantBook,
    ServerTool,
    SessionGrants,
    alike,
    allow_command,
    is_same,
    make_grant,
    make_server_grant,
)
from trunkline.host.judgement.refusals import ALLOW_IT, needs_approval
from trunkline.host.policy.acts import Act, Decision

__all__ = ["Answer", "Consent", "Face", "No", "Question", "Remember", "Ruling", "can_remember"]

#: How long a yes holds:
#:
#: - ``once``: this call;
#: - ``session``: this tool, any arguments, until the session ends;
#: - ``always``: this tool, any arguments, for 30 days;
#: - ``read-only``: the server's read-only tools as they are now, for 30 days, and this call;
#: - ``server``: all tools of the server as they are now, until the session ends;
#: - ``alike``: this tool with arguments like these, for 30 days.
Remember: TypeAlias = Literal["once", "session", "always", "read-only", "server", "alike"]
#: The kinds of no: declined, cancelled without an answer, or an answer that is none of the choices.
No: TypeAlias = Literal["declined", "cancelled", "misfit"]

_MOST_WAITING = 64


class Question(Struct, frozen=True, kw_only=True):
    """A question to a person about one act, with all they need to decide."""

    act: Act
    decision: Decision
    #: Texts of the server; they are untrusted.
    title: str | None = None
    description: str | None = None
    #: The server's whole command or URL, without secrets.
    command: str = ""
    arguments: Mapping[str, Any] | None = None
    #: The whole definition that the act's pin was taken of; None if it is not known.
    definition: Any = None
    #: The arguments may be changed.
    editable: bool = False
    #: Where the untrusted text in the session came from; None if none affects this act.
    tainted_by: str | None = None
    #: The findings of the scan in the definition; always shown, never collapsed.
    warnings: tuple[str, ...] = ()
    #: How the definition differs from the accepted one, a line for each change; always shown, never collapsed.
    changed: tuple[str, ...] = ()
    #: The tools of the server that a server-wide answer would allow: those usable now, neither flagged nor changed.
    tools: tuple[ServerTool, ...] = ()
    #: How long a yes may hold, besides this once; ``Approver`` removes what cannot be offered here.
    can_remember: tuple[Remember, ...] = ("session", "always", "read-only", "server", "alike")

    @property
    def reading_tools(self) -> tuple[ServerTool, ...]:
        """The tools of the server that are marked read-only (``readOnlyHint``)."""
        return tuple(tool for tool in self.tools if tool.read_only)


class Answer(Struct, frozen=True, kw_only=True):
    """The answer to an approval request."""

    allow: bool
    #: The kind of denial, if it is one.
    no: No = "declined"
    #: Who answered: the user at a prompter of this host, or the gateway's client, which may answer by itself.
    by: Literal["user", "client"] = "user"
    remember: Remember = "once"
    #: For ``alike``: a pointer to the argument that may differ, and the glob that it must match.
    vary: str | None = None
    like: str | None = None
    #: The arguments as edited by the person; None if unchanged.
    arguments: dict[str, Any] | None = None
    #: When the grant expires, in seconds since the epoch; None: the default.
    expires: float | None = None
    #: How many more times it may be used after this call; None: unlimited.
    uses: int | None = None


#: Shows a request to a person and returns the answer; None: no answer. It is cancelled when the request is withdrawn.
Face: TypeAlias = Callable[[Question], Awaitable[Answer | None]]


class Ruling(Struct, frozen=True, kw_only=True):
    """The outcome of an approval: whether the act is allowed, and by whom."""

    allowed: bool
    #: ``policy``, ``grant:<id>``, ``client``, ``user`` or ``deadline``.
    by: str
    rule: str
    reason: str
    #: The arguments to use instead; None: the original ones.
    arguments: dict[str, Any] | None = None
    #: The grant that this answer created.
    grant: Grant | None = None


def can_remember(act: Act, definition: Any, tools: tuple[ServerTool, ...] = ()) -> tuple[Remember, ...]:
    """Return how long a yes may hold: only for what the request shows, or can show on demand.

    Without a pin nothing identifies the tool's definition. Without the definition a person cannot see what other
    arguments would do. If the definition is flagged or changed, an answer is about that one tool, never its server.
    """
    if act.kind == "tool" and act.pin is None:
        return ()
    alike: tuple[Remember, ...] = () if act.arguments is None else ("alike",)
    if act.kind == "tool" and definition is None:
        return alike
    return ("session", "always", *_server_wide(act, tools), *alike)


def _server_wide(act: Act, tools: tuple[ServerTool, ...]) -> tuple[Remember, ...]:
    if act.kind != "tool" or act.flagged or act.changed:
        return ()
    counts: dict[Remember, int] = {"read-only": sum(tool.read_only for tool in tools), "server": len(tools)}
    return tuple(length for length, count in counts.items() if 0 < count <= MOST_TOOLS)


class Consent:
    """Resolves acts that need approval, by a grant or by a prompter."""

    def __init__(
        self, grants: GrantBook | None, *, deadline: float = 300.0, clock: Callable[[], float] = time.time
    ) -> None:
        """Use these stored grants; ``deadline`` is in seconds, for an answer and for the turn of a request each."""
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
        by_command: bool = True,
    ) -> Ruling:
        """Resolve an act; ``reevaluate`` has the policy decide on arguments that the person edited.

        ``refusal`` returns the denial message if no person can be asked, given any problem with the grants file.
        ``by_command`` is whether a command could allow the act (see ``allow_command``).

        Cancelling this withdraws the request.
        """
        if decision.effect != "ask":
            allowed = decision.effect == "allow"
            return Ruling(allowed=allowed, by="policy", rule=decision.rule, reason=decision.reason)
        case = _Case(act, decision, session_grants, rejudge, by_command)
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
                # The answer to an earlier request may have allowed this act too.
                recalled = self._recall(case)
                if isinstance(recalled, Ruling):
                    return recalled
                return await self._put(case, face, _trimmed(question()))
        except TimeoutError:
            return case.unasked(f"earlier questions were not answered for {self._deadline:g} s", by="deadline")
        except _Full:
            return case.unasked(f"{_MOST_WAITING} questions of this session wait for an answer already", by="deadline")
        finally:
            if queue.idle:
                self._queues.pop(face, None)

    async def _put(self, case: _Case, face: Face, question: Question) -> Ruling:
        """Prompt the person; any failure is a denial."""
        try:
            async with asyncio.timeout(self._deadline) as patience:
                answer = await face(question)
        except TimeoutError:
            if not patience.expired():
                return case.unasked("TimeoutError")
            return case.unanswered(self._deadline)
        except RequestTimeout as silence:
            return case.unanswered(silence.seconds)
        except LinkError:
            return case.unasked("the client went away")
        except RequestFailed as failure:
            return case.unasked(f"the client answered with error {failure.code}")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return case.unasked("the question was withdrawn")
        except Exception as error:  # noqa: BLE001 - a prompter is foreign code, and its failure is a denial
            return case.unasked(type(error).__name__)
        if patience.expired():
            return case.unanswered(self._deadline)
        if answer is None:
            return case.unanswered(None)
        if not isinstance(answer, Answer) or not isinstance(answer.allow, bool):
            return case.misfit("it is not an ApprovalAnswer object")
        return self._accept(case, question, answer) if answer.allow else case.refused(answer)

    def _accept(self, case: _Case, question: Question, answer: Answer) -> Ruling:
        """Accept a yes: have the policy decide on edited arguments, and store a grant if the answer asks for one."""
        act, decision = case.act, case.decision
        if answer.arguments is not None:
            if not question.editable or case.rejudge is None:
                return case.misfit("it changes arguments that cannot be edited")
            decision = case.rejudge(answer.arguments)
            if decision.effect == "deny":
                reason = f"the policy denies the changed arguments: {decision.reason}"
                return Ruling(allowed=False, by="policy", rule=decision.rule, reason=reason)
            act = replace(act, arguments=answer.arguments)
        reason, grant = f"the {answer.by} allowed it", None
        if answer.remember in question.can_remember:
            try:
                grant = self._remember(act, answer, question.tools, case.session_grants)
            except (ConfigError, ValueError) as problem:
                reason += f"; it could not be remembered: {problem}"
        return Ruling(
            allowed=True, by=answer.by, rule=decision.rule, reason=reason, arguments=answer.arguments, grant=grant
        )

    def _remember(
        self, act: Act, answer: Answer, tools: tuple[ServerTool, ...], session_grants: SessionGrants | None
    ) -> Grant:
        """Store a grant for an answer.

        Raises:
            ConfigError: the grants file cannot be read or written.
            ValueError: there is no store for it, or nothing identifies what was allowed.
        """
        grant = self._granted(act, answer, tools)
        book = session_grants if grant.scope == "session" else self._grants
        if book is None:
            raise ValueError("there is no store for it")
        # A resumed request (input_required) carries the answer of its last round again.
        known = next((kept for kept in book.all() if is_same(kept, grant)), None)
        if known is None:
            book.add(grant)
        return known or grant

    def _granted(self, act: Act, answer: Answer, tools: tuple[ServerTool, ...]) -> Grant:
        now, length = self._clock(), answer.remember
        assert length != "once"
        if length == "server":
            return make_server_grant(act, "session", tools, now=now, expires=answer.expires, uses=answer.uses)
        if length == "read-only":
            return make_server_grant(
                act, "always", tools, now=now, read_only=True, expires=answer.expires, uses=answer.uses
            )
        match = alike(act.arguments, vary=answer.vary, like=answer.like) if length == "alike" else None
        return make_grant(act, length, now=now, match=match, expires=answer.expires, uses=answer.uses)

    def _recall(self, case: _Case) -> Ruling | str | None:
        """Return the result of a grant that allows the act; None without one, a text if grants cannot be read."""
        now = self._clock()
        try:
            for book in (case.session_grants, self._grants):
                # Another process may have used up the grant since it was found; then the next one is tried.
                while book is not None and (grant := book.find(case.act, now)) is not None:
                    if book.spend(grant):
                        reason = f"allowed earlier ({grant.scope})"
                        return Ruling(allowed=True, by=f"grant:{grant.id}", rule=case.decision.rule, reason=reason)
        except ConfigError as problem:
            return str(problem)
        return None


class _Case(Struct, frozen=True):
    """One act that waits for approval."""

    act: Act
    decision: Decision
    session_grants: SessionGrants | None
    rejudge: Callable[[dict[str, Any]], Decision] | None
    by_command: bool

    def no(self, by: str, reason: str) -> Ruling:
        """Return a denial."""
        return Ruling(allowed=False, by=by, rule=self.decision.rule, reason=reason)

    def refused(self, answer: Answer) -> Ruling:
        """Return the denial for a negative answer."""
        if answer.no == "misfit":
            return self.misfit(f"the {answer.by} chose nothing that was offered")
        if answer.no == "cancelled":
            return self.no(answer.by, f"the {answer.by} cancelled {self.question} without an answer{self.step}")
        return self.no(answer.by, f"the {answer.by} declined {self.act.server}/{self.act.name}")

    def misfit(self, what: str) -> Ruling:
        """Return the denial for an answer that does not fit the request."""
        return self.no("policy", f"the answer to {self.question} does not fit it: {what}{self.step}")

    def unanswered(self, seconds: float | None) -> Ruling:
        """Return the denial for a missing answer; ``seconds`` is None if the prompter returned without one."""
        if seconds is None:
            return self.no("policy", f"{self.question} was left without an answer{self.step}")
        return self.no("deadline", f"{self.question} was not answered within {seconds:g} s{self.step}")

    def unasked(self, why: str, *, by: str = "policy") -> Ruling:
        """Return the denial for a request that could not be shown."""
        return self.no(by, f"{self.question} could not be asked: {why}{self.step}")

    @property
    def question(self) -> str:
        """The question, as a noun phrase for a sentence."""
        return f"the question about {self.act.server}/{self.act.name}"

    @property
    def step(self) -> str:
        """The command that allows the act without asking, as the end of a sentence."""
        command = allow_command(self.act, by_command=self.by_command)
        return "" if command is None else f".{ALLOW_IT}{command}"


def _trimmed(question: Question) -> Question:
    """Return a request that offers only the scopes for which it shows enough."""
    shown = can_remember(question.act, question.definition, question.tools)
    return replace(question, can_remember=tuple(each for each in question.can_remember if each in shown))


class _Full(Exception):
    """Too many requests of one session are queued."""


class _Queue:
    """The requests that wait for one prompter, taking turns by session."""

    def __init__(self) -> None:
        """Start with an empty queue."""
        self._busy = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def idle(self) -> bool:
        """Whether no request is shown or queued."""
        return not self._busy and not self._waiting

    @asynccontextmanager
    async def turn(self, session: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it while the context is open."""
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
                # The turn was assigned in the same loop iteration in which the waiter was cancelled.
                self._busy = False
                self._next()
            else:
                with suppress(ValueError):
                    line.remove(mine)
                if not line and self._waiting.get(session) is line:
                    del self._waiting[session]
            raise

    def _next(self) -> None:
        """Pass the turn to the session that has waited longest."""
        while self._waiting:
            session = next(iter(self._waiting))
            line = self._waiting.pop(session)
            mine = line.popleft() if line else None
            if line:
                # To the back of the queue.
                self._waiting[session] = line
            if mine is not None and not mine.done():
                self._busy = True
                mine.set_result(None)
                return
