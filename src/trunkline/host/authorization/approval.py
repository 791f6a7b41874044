"""Approval of calls for which the policy requires it.

The approval modes of a gateway, and the approver that looks for an earlier grant or prompts a person. A prompter
shows an approval request to a person and returns the answer: a terminal, a page, or a client that supports
elicitation. It gets one request at a time; waiting requests take turns by session, so that a busy session does not
hold up the others. One that shows several at once (``prompters.shows_several``) gets them all; if the answer to one
allows another, that one is withdrawn. Anything but a clear yes is a denial: no answer before the deadline, a prompter
that fails, an answer that does not fit the request. An act that the policy denies is never put to a person.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import ConfigError, LinkError, RequestFailed, RequestTimeout
from trunkline.host.authorization.denial_messages import ALLOW_IT, needs_approval_message
from trunkline.host.authorization.grants import (
    MAX_TOOLS_PER_GRANT,
    Grant,
    GrantScope,
    GrantStore,
    ServerTool,
    SessionGrants,
    allow_command,
    argument_pattern,
    is_same_grant,
    make_grant,
    make_server_grant,
)
from trunkline.host.authorization.policy.decisions import Act, Decision
from trunkline.host.authorization.prompters import MAX_QUEUED, PromptQueue, QueueFull, shows_several
from trunkline.host.authorization.skill_grants import SkillTool, make_skill_grants

__all__ = [
    "APPROVAL_MODES",
    "APPROVAL_MODE_HELP",
    "ApprovalAnswer",
    "ApprovalMode",
    "ApprovalRequest",
    "ApprovalResult",
    "Approver",
    "ConsentedBy",
    "DenialKind",
    "GatewayExposure",
    "Prompter",
    "RememberScope",
    "can_remember",
    "consent_covers",
    "default_approval_mode",
    "is_own_client",
    "stricter_mode",
]

ApprovalMode: TypeAlias = Literal["client", "ask", "deny"]
#: From the loosest to the strictest.
APPROVAL_MODES: tuple[ApprovalMode, ...] = ("client", "ask", "deny")
#: Who approved a call before it arrived; the audit trail records it as ``by``.
ConsentedBy: TypeAlias = Literal["client", "user"]

APPROVAL_MODE_HELP: Mapping[ApprovalMode, str] = MappingProxyType(
    {
        "client": "the client connected to the gateway asks its own user; calls pass unless a rule denies or "
        "asks, or a definition is "
        "flagged or changed",
        "ask": "a call that no rule allows needs approval by elicitation, and is denied if the client cannot be asked",
        "deny": "only calls that a rule or an earlier approval allows pass; nothing is asked",
    }
)

_COVERED_CAUSES = frozenset({"default", "taint"})


class GatewayExposure(Struct, frozen=True, kw_only=True):
    """How a gateway can be reached; over stdio the other fields do not matter."""

    http: bool = False
    #: It binds a loopback address.
    loopback: bool = False
    #: Callers authenticate with a single static token, and in no other way.
    static_token: bool = False
    #: It accepts further host names, or browsers from further origins.
    allowed_hosts: bool = False
    allowed_origins: bool = False


def default_approval_mode(exposure: GatewayExposure) -> ApprovalMode:
    """Return the approval mode of a gateway that does not set one.

    ``client`` is safe where the client is the user's own: the one that started the gateway over stdio, or one on this
    machine that the user gave the token to. If more than one person can reach the gateway, the mode is ``ask``.
    """
    return "client" if is_own_client(exposure) else "ask"


def is_own_client(exposure: GatewayExposure) -> bool:
    """Return True if only the user's own client can reach the gateway."""
    if not exposure.http:
        return True
    own = exposure.loopback and exposure.static_token
    return own and not exposure.allowed_hosts and not exposure.allowed_origins


def stricter_mode(one: ApprovalMode, other: ApprovalMode | None) -> ApprovalMode:
    """Return the stricter of two modes."""
    return one if other is None or APPROVAL_MODES.index(one) >= APPROVAL_MODES.index(other) else other


def consent_covers(act: Act, decision: Decision) -> bool:
    """Return True if consent given before the call covers a decision to ask."""
    return decision.effect == "ask" and decision.cause in _COVERED_CAUSES and not act.flagged and not act.changed


#: How long a yes holds:
#:
#: - ``once``: this call;
#: - ``session``: this tool, any arguments, until the session ends;
#: - ``always``: this tool, any arguments, for 30 days;
#: - ``read-only``: the server's read-only tools as they are now, for 30 days, and this call;
#: - ``server``: all tools of the server as they are now, until the session ends;
#: - ``alike``: this tool with arguments like these, for 30 days;
#: - ``tools``: this skill and the tools of its server that it requests, until the session ends or the skill changes;
#: - ``all-tools``: the same, with the tools of other servers that it names.
RememberScope: TypeAlias = Literal["once", "session", "always", "read-only", "server", "alike", "tools", "all-tools"]
#: The kinds of no: declined, cancelled without an answer, or an answer that is none of the choices.
DenialKind: TypeAlias = Literal["declined", "cancelled", "misfit"]


class ApprovalRequest(Struct, frozen=True, kw_only=True):
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
    #: The tools that a skill requests (``allowed-tools``), of its own server and of others.
    skill_tools: tuple[SkillTool, ...] = ()
    #: Which clients an answer for the session covers, if not only the one that is asked.
    session_covers: str | None = None
    #: How long a yes may hold, besides this once; ``Approver`` removes what cannot be offered here.
    can_remember: tuple[RememberScope, ...] = (
        "session",
        "always",
        "read-only",
        "server",
        "alike",
        "tools",
        "all-tools",
    )

    @property
    def reason(self) -> str:
        """Why approval is needed, with the rule unless the reason names it already."""
        reason, rule = self.decision.reason, self.decision.rule
        return reason if rule in reason else f"{reason} ({rule})"

    @property
    def read_only_tools(self) -> tuple[ServerTool, ...]:
        """The tools of the server that are marked read-only (``readOnlyHint``)."""
        return tuple(tool for tool in self.tools if tool.read_only)

    def skill_tools_of(self, scope: RememberScope) -> tuple[SkillTool, ...]:
        """Return the tools that an answer with this scope allows while the skill is loaded."""
        if scope == "all-tools":
            return self.skill_tools
        return tuple(tool for tool in self.skill_tools if scope == "tools" and tool.server == self.act.server)


class ApprovalAnswer(Struct, frozen=True, kw_only=True):
    """The answer to an approval request."""

    allow: bool
    #: The kind of denial, if it is one.
    no: DenialKind = "declined"
    #: Who answered: the user at a prompter of this host, or the gateway's client, which may answer by itself.
    by: Literal["user", "client"] = "user"
    remember: RememberScope = "once"
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
Prompter: TypeAlias = Callable[[ApprovalRequest], Awaitable[ApprovalAnswer | None]]


class ApprovalResult(Struct, frozen=True, kw_only=True):
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
    #: What the audit trail notes beside the decision; None if there is nothing to note.
    note: str | None = None


def can_remember(
    act: Act, definition: Any, tools: tuple[ServerTool, ...] = (), skill_tools: tuple[SkillTool, ...] = ()
) -> tuple[RememberScope, ...]:
    """Return how long a yes may hold: only for what the request shows, or can show on demand.

    Without a pin nothing identifies the tool's definition. Without the definition a person cannot see what other
    arguments would do. If the definition is flagged or changed, an answer is about that one tool, never its server.
    """
    if act.kind in ("tool", "skill") and act.pin is None:
        return ()
    if act.kind == "skill":
        return ("session", "always", *_skill_scopes(act, skill_tools))
    alike: tuple[RememberScope, ...] = () if act.arguments is None else ("alike",)
    if act.kind == "tool" and definition is None:
        return alike
    return ("session", "always", *_server_scopes(act, tools), *alike)


def _skill_scopes(act: Act, tools: tuple[SkillTool, ...]) -> tuple[RememberScope, ...]:
    """Return the scopes that allow the tools of a skill; none if the scan found something in the skill."""
    if act.flagged or act.session is None:
        return ()
    own = any(tool.server == act.server for tool in tools)
    others = any(tool.server != act.server for tool in tools)
    return (*(("tools",) if own else ()), *(("all-tools",) if others else ()))


def _server_scopes(act: Act, tools: tuple[ServerTool, ...]) -> tuple[RememberScope, ...]:
    if act.kind != "tool" or act.flagged or act.changed:
        return ()
    counts: dict[RememberScope, int] = {"read-only": sum(tool.read_only for tool in tools), "server": len(tools)}
    return tuple(length for length, count in counts.items() if 0 < count <= MAX_TOOLS_PER_GRANT)


class Approver:
    """Resolves acts that need approval, by a grant or by a prompter."""

    def __init__(
        self, grants: GrantStore | None, *, deadline: float = 300.0, clock: Callable[[], float] = time.time
    ) -> None:
        """Use these stored grants; ``deadline`` is in seconds, for an answer and for the turn of a request each."""
        self._grants = grants
        self._deadline = deadline
        self._clock = clock
        self._queues: dict[Prompter, PromptQueue] = {}
        #: Set when an answer created a grant, for the requests that are shown at the same time.
        self._granted_event = asyncio.Event()

    async def resolve(
        self,
        act: Act,
        decision: Decision,
        *,
        question: Callable[[], ApprovalRequest],
        session_grants: SessionGrants | None = None,
        prompter: Prompter | None = None,
        reevaluate: Callable[[dict[str, Any]], Decision] | None = None,
        refusal: Callable[[str | None], str] | None = None,
        by_command: bool = True,
    ) -> ApprovalResult:
        """Resolve an act; ``reevaluate`` has the policy decide on arguments that the person edited.

        ``refusal`` returns the denial message if no person can be asked, given any problem with the grants file.
        ``by_command`` is whether a command could allow the act (see ``allow_command``).

        Cancelling this withdraws the request.
        """
        if decision.effect != "ask":
            allowed = decision.effect == "allow"
            return ApprovalResult(allowed=allowed, by="policy", rule=decision.rule, reason=decision.reason)
        case = _PendingApproval(act, decision, session_grants, reevaluate, by_command)
        problem = await self._recall(case)
        if isinstance(problem, ApprovalResult):
            return problem
        if prompter is None:
            told = needs_approval_message(act, decision, problem=problem) if refusal is None else refusal(problem)
            return case.no("policy", told)
        return await self._ask(case, prompter, question)

    async def _ask(
        self, case: _PendingApproval, prompter: Prompter, question: Callable[[], ApprovalRequest]
    ) -> ApprovalResult:
        queue = self._queues.setdefault(prompter, PromptQueue())
        if shows_several(prompter):
            return await self._ask_beside(case, prompter, queue, question)
        try:
            async with asyncio.timeout(self._deadline) as waiting, queue.turn(case.act.session or ""):
                waiting.reschedule(None)
                # The answer to an earlier request may have allowed this act too.
                recalled = await self._recall(case)
                if isinstance(recalled, ApprovalResult):
                    return recalled
                return await self._put(case, prompter, _with_allowed_scopes(question()))
        except TimeoutError:
            return case.not_asked(f"earlier questions were not answered for {self._deadline:g} s", by="deadline")
        except QueueFull:
            return case.not_asked(f"{MAX_QUEUED} questions of this session wait for an answer already", by="deadline")
        finally:
            if queue.idle:
                self._queues.pop(prompter, None)

    async def _ask_beside(
        self,
        case: _PendingApproval,
        prompter: Prompter,
        queue: PromptQueue,
        question: Callable[[], ApprovalRequest],
    ) -> ApprovalResult:
        """Ask a prompter that shows several requests at once; a grant created meanwhile also answers the request."""
        try:
            with queue.shown(case.act.session or ""):
                asking = asyncio.create_task(self._put(case, prompter, _with_allowed_scopes(question())))
                try:
                    return await self._answered_or_granted(case, asking)
                finally:
                    asking.cancel()
                    await asyncio.wait((asking,))
        except QueueFull:
            return case.not_asked(f"{MAX_QUEUED} questions of this session wait for an answer already", by="deadline")
        finally:
            if queue.idle:
                self._queues.pop(prompter, None)

    async def _answered_or_granted(
        self, case: _PendingApproval, asking: asyncio.Task[ApprovalResult]
    ) -> ApprovalResult:
        while True:
            granted = asyncio.create_task(self._granted_event.wait())
            try:
                await asyncio.wait((asking, granted), return_when=asyncio.FIRST_COMPLETED)
            finally:
                granted.cancel()
            if asking.done():
                return asking.result()
            recalled = await self._recall(case)
            if isinstance(recalled, ApprovalResult):
                return recalled

    async def _put(self, case: _PendingApproval, prompter: Prompter, question: ApprovalRequest) -> ApprovalResult:
        """Prompt the person; any failure is a denial."""
        try:
            async with asyncio.timeout(self._deadline) as timeout:
                asking = prompter(question)
                if not inspect.isawaitable(asking):
                    return case.not_asked("consent= is not an async function")
                answer = await asking
        except TimeoutError:
            if not timeout.expired():
                return case.not_asked("TimeoutError")
            return case.unanswered(self._deadline)
        except RequestTimeout as silence:
            return case.unanswered(silence.seconds)
        except LinkError:
            return case.not_asked("the client went away")
        except RequestFailed as failure:
            return case.not_asked(f"the client answered with error {failure.code}")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return case.not_asked("the question was withdrawn")
        except Exception as error:  # noqa: BLE001 - a prompter is foreign code, and its failure is a denial
            return case.not_asked(type(error).__name__)
        if timeout.expired():
            return case.unanswered(self._deadline)
        if answer is None:
            return case.unanswered(None)
        if not isinstance(answer, ApprovalAnswer) or not isinstance(answer.allow, bool):
            return case.misfit("it is not an ApprovalAnswer object")
        return self._accept(case, question, answer) if answer.allow else case.refused(answer)

    def _accept(self, case: _PendingApproval, question: ApprovalRequest, answer: ApprovalAnswer) -> ApprovalResult:
        """Accept a yes: have the policy decide on edited arguments, and store a grant if the answer asks for one."""
        act, decision = case.act, case.decision
        if answer.arguments is not None:
            if not question.editable or case.reevaluate is None:
                return case.misfit("it changes arguments that cannot be edited")
            decision = case.reevaluate(answer.arguments)
            if decision.effect == "deny":
                reason = f"the policy denies the changed arguments: {decision.reason}"
                return ApprovalResult(allowed=False, by="policy", rule=decision.rule, reason=reason)
            act = replace(act, arguments=answer.arguments)
        reason, grant = f"the {answer.by} allowed it", None
        if answer.remember in question.can_remember:
            try:
                grant = self._remember(act, answer, question, case.session_grants)
            except (ConfigError, ValueError) as problem:
                reason += f"; it could not be remembered: {problem}"
        return ApprovalResult(
            allowed=True, by=answer.by, rule=decision.rule, reason=reason, arguments=answer.arguments, grant=grant
        )

    def _remember(
        self, act: Act, answer: ApprovalAnswer, question: ApprovalRequest, session_grants: SessionGrants | None
    ) -> Grant:
        """Store a grant for an answer.

        Raises:
            ConfigError: the grants file cannot be read or written.
            ValueError: there is no store for it, or nothing identifies what was allowed.
        """
        skill_tools = question.skill_tools_of(answer.remember)
        if skill_tools and session_grants is not None:
            for each in make_skill_grants(act, skill_tools, now=self._clock()):
                if not any(is_same_grant(kept, each) for kept in session_grants.all()):
                    session_grants.add(each)
        grant = self._granted(act, answer, question.tools)
        book = session_grants if grant.scope == "session" else self._grants
        if book is None:
            raise ValueError("there is no store for it")
        # A resumed request (input_required) carries the answer of its last round again.
        known = next((kept for kept in book.all() if is_same_grant(kept, grant)), None)
        if known is None:
            book.add(grant)
            self._granted_event.set()
            self._granted_event = asyncio.Event()
        return known or grant

    def _granted(self, act: Act, answer: ApprovalAnswer, tools: tuple[ServerTool, ...]) -> Grant:
        now, length = self._clock(), answer.remember
        assert length != "once"
        if length == "server":
            return make_server_grant(act, "session", tools, now=now, expires=answer.expires, uses=answer.uses)
        if length == "read-only":
            return make_server_grant(
                act, "always", tools, now=now, read_only=True, expires=answer.expires, uses=answer.uses
            )
        scope: GrantScope = "session" if length == "tools" or length == "all-tools" else length
        match = argument_pattern(act.arguments, vary=answer.vary, like=answer.like) if length == "alike" else None
        return make_grant(act, scope, now=now, match=match, expires=answer.expires, uses=answer.uses)

    async def _recall(self, case: _PendingApproval) -> ApprovalResult | str | None:
        """Return the result of a grant that allows the act; None without one, a text if grants cannot be read."""
        now = self._clock()
        try:
            for book in (case.session_grants, self._grants):
                # Another process may have used up the grant since it was found; then the next one is tried.
                while book is not None and (grant := book.find(case.act, now)) is not None:
                    count = book.count_use if isinstance(book, SessionGrants) and grant.uses is not None else None
                    if book.use(grant) if count is None else await count(grant):
                        reason = f"allowed earlier ({grant.scope})"
                        note = None if grant.skill is None else f"approved with the skill {grant.skill}"
                        return ApprovalResult(
                            allowed=True, by=f"grant:{grant.id}", rule=case.decision.rule, reason=reason, note=note
                        )
        except ConfigError as problem:
            return str(problem)
        return None


class _PendingApproval(Struct, frozen=True):
    """One act that waits for approval."""

    act: Act
    decision: Decision
    session_grants: SessionGrants | None
    reevaluate: Callable[[dict[str, Any]], Decision] | None
    by_command: bool

    def no(self, by: str, reason: str) -> ApprovalResult:
        """Return a denial."""
        return ApprovalResult(allowed=False, by=by, rule=self.decision.rule, reason=reason)

    def refused(self, answer: ApprovalAnswer) -> ApprovalResult:
        """Return the denial for a negative answer."""
        if answer.no == "misfit":
            return self.misfit(f"the {answer.by} chose nothing that was offered")
        if answer.no == "cancelled":
            return self.no(answer.by, f"the {answer.by} cancelled {self.question} without an answer{self.step}")
        said = f"the {answer.by} declined {self.act.server}/{self.act.name}"
        # A client may decline without showing the question to anyone; a user who was asked here meant it.
        return self.no(answer.by, f"{said}{self.step}" if answer.by == "client" else said)

    def misfit(self, what: str) -> ApprovalResult:
        """Return the denial for an answer that does not fit the request."""
        return self.no("policy", f"the answer to {self.question} does not fit it: {what}{self.step}")

    def unanswered(self, seconds: float | None) -> ApprovalResult:
        """Return the denial for a missing answer; ``seconds`` is None if the prompter returned without one."""
        if seconds is None:
            return self.no("policy", f"{self.question} was left without an answer{self.step}")
        return self.no("deadline", f"{self.question} was not answered within {seconds:g} s{self.step}")

    def not_asked(self, why: str, *, by: str = "policy") -> ApprovalResult:
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


def _with_allowed_scopes(question: ApprovalRequest) -> ApprovalRequest:
    """Return a request that offers only the scopes for which it shows enough."""
    shown = can_remember(question.act, question.definition, question.tools, question.skill_tools)
    return replace(question, can_remember=tuple(each for each in question.can_remember if each in shown))
