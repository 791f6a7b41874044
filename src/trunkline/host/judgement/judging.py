"""The single path for every act at a server: decided by the policy, approved if needed, recorded, performed, recorded.

Every caller goes through here: programs, the command line, the gateway and a model in a chat. An act that cannot be
recorded is not performed. What is denied never reaches the server.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.errors import LinkError, PolicyDenied, RequestFailed
from trunkline.host.audit.notes import note_of
from trunkline.host.audit.trail import AuditEntry, AuditTrail, digest_of
from trunkline.host.catalog.items import Item
from trunkline.host.entries import ServerEntry
from trunkline.host.events import Acted, Asked, Events
from trunkline.host.judgement.approval import ConsentedBy, covered
from trunkline.host.judgement.consent import Consent, Face, Question, Ruling
from trunkline.host.judgement.grants import ServerTool
from trunkline.host.judgement.refusals import NO_ONE, Unasked, denied, needs_approval
from trunkline.host.passing.fronts import Front
from trunkline.host.pins.drift import brief
from trunkline.host.policy.acts import Act, ActKind, Annotations, Decision
from trunkline.host.policy.policy import Policy
from trunkline.host.secrecy.book import SecretBook
from trunkline.host.session import HostSession

__all__ = ["Case", "Judge", "decoded"]

Work = Callable[[Mapping[str, Any]], Awaitable[tuple[Any, Raw]]]


class Case(Struct, frozen=True, kw_only=True):
    """A call with all that is needed to authorize and perform it."""

    kind: ActKind
    entry: ServerEntry
    #: The server's own name or URI for it.
    name: str
    arguments: Mapping[str, Any]
    #: The catalog item; None for a resource that is not listed.
    item: Item | None
    session: HostSession
    front: Front
    policy: Policy
    #: The prompter to ask for approval; None if there is none.
    face: Face | None
    caller: str
    work: Work
    #: Who approved this call before it arrived; None if no one did.
    consented_by: ConsentedBy | None = None
    #: Why no person can be asked, if there is no prompter.
    unasked: Unasked = NO_ONE
    #: The gateway tool (``call_tool``) that this one is called through; only a rule or a grant allows it then.
    by_proxy: str | None = None
    #: Whether a command could allow it; see ``allow_command``.
    by_command: bool = True
    #: Returns the tools that an answer for the whole server would cover.
    tools: Callable[[], tuple[ServerTool, ...]] = tuple

    @property
    def act(self) -> Act:
        """The act as the policy sees it."""
        item, session = self.item, self.session
        hints = Annotations() if item is None else item.annotations
        return Act(
            kind=self.kind,
            server=self.entry.name,
            name=self.name,
            arguments=self.arguments,
            annotations=hints,
            pin=None if item is None else item.pin,
            trusted=self.entry.settings.trusted,
            tainted=session.taint.reaches(self.entry.name, self.name, hints=hints),
            flagged=item is not None and bool(item.flagged),
            changed=item is not None and bool(item.changed),
            caller=self.caller,
            principal=session.subject,
            session=session.id,
            profile=session.profile,
        )


class Judge:
    """Decides on calls, asks for approval, records and performs them."""

    def __init__(
        self, *, consent: Consent, audit: AuditTrail | None, events: Events, secrets: SecretBook | None = None
    ) -> None:
        """Use this approver, audit trail and event bus; ``secrets`` are hidden in all of them."""
        self._consent = consent
        self._audit = audit
        self._events = events
        self._secrets = SecretBook() if secrets is None else secrets

    async def perform(self, case: Case) -> Any:
        """Perform a call if it is allowed, and return its result.

        Raises:
            PolicyDenied: it is not; the message says which rule denies it, or why it was not approved.
            AuditFailed: it could not be recorded, so it was not performed.
        """
        act, started = case.act, time.perf_counter()
        decision = _unnamed(case, case.policy.decide(act, now=time.time()))
        act_id = os.urandom(8).hex()
        arguments: Mapping[str, Any] = case.arguments
        by = "policy"
        if decision.effect != "allow":
            ruling = _consented(case, act, decision) or await self._settle(case, act, decision)
            by = ruling.by
            if not ruling.allowed:
                self._deny(case, act, act_id, decision, ruling)
            if ruling.arguments is not None:
                arguments = ruling.arguments
                act = replace(act, arguments=arguments)
        note = _taint_note(case, act)
        self._record(case, act, act_id, "begun", effect=decision.effect, rule=decision.rule, by=by, note=note)
        outcome, digest = "error", None
        try:
            result, raw = await case.work(arguments)
            _taint(case, act)
            digest = digest_of(bytes(raw))
            outcome = "tool-error" if isinstance(result, t.CallToolResult) and result.is_error else "ok"
            return result
        except asyncio.CancelledError:
            outcome = "asked" if case.front.left else "cancelled"
            raise
        except LinkError:
            outcome = "lost"
            raise
        except RequestFailed:
            # The text of an error is read like a result.
            _taint(case, act)
            raise
        finally:
            seconds = time.perf_counter() - started
            self._end(act, act_id, outcome=outcome, digest=digest, seconds=seconds)

    def note_question(self, act: Act, decision: Decision) -> None:
        """Record a request of a server and the policy's decision on it; its content is not recorded."""
        if self._audit is not None:
            self._audit.record(note_of(act, effect=decision.effect, rule=decision.rule, by="policy"))

    def note_denied(self, act: Act, decision: Decision) -> None:
        """Record an act that was answered as if its target did not exist, since the policy never allows it."""
        if self._audit is not None:
            more = {"effect": decision.effect, "rule": decision.rule, "by": "policy", "outcome": "denied"}
            self._audit.record(replace(note_of(act, **more), stage="denied", pin=act.pin, note=decision.reason))

    async def _settle(self, case: Case, act: Act, decision: Decision) -> Ruling:
        def question() -> Question:
            return _question(case, act, decision)

        def rejudge(arguments: Mapping[str, Any]) -> Decision:
            return case.policy.decide(replace(act, arguments=arguments), now=time.time())

        def refusal(problem: str | None) -> str:
            source = _taint_source(case, act)
            told = ". ".join(each for each in (_change_note(case), problem) if each) or None
            return needs_approval(
                act,
                decision,
                unasked=case.unasked,
                tainted_by=source,
                problem=told,
                by_command=case.by_command,
            )

        ruling = await self._consent.settle(
            act,
            decision,
            question=question,
            session_grants=case.session.grants,
            face=case.face,
            rejudge=rejudge,
            refusal=refusal,
            by_command=case.by_command,
        )
        if decision.effect == "ask":
            self._events.tell(Asked(act.server, self._secrets.hide(act.name), ruling.allowed, ruling.by))
        return ruling

    def _deny(self, case: Case, act: Act, act_id: str, decision: Decision, ruling: Ruling) -> None:
        self._record(
            case,
            act,
            act_id,
            "denied",
            effect=decision.effect,
            rule=decision.rule,
            by=ruling.by,
            outcome="denied",
            note=ruling.reason,
        )
        reason = denied(act, decision) if decision.effect == "deny" else ruling.reason
        self._events.tell(Acted(act.server, self._secrets.hide(act.name), act.kind, "denied", 0.0))
        not_allowed = f"The policy of this host does not allow {act.server}/{act.name}."
        told = None if decision.effect == "ask" else decision.message or not_allowed
        raise PolicyDenied(reason, told=told)

    def _record(self, case: Case, act: Act, act_id: str, stage: Any, **more: Any) -> None:
        if self._audit is None:
            return
        pointers = tuple(pointer for each in case.policy.redactions if each.matches(act) for pointer in each.pointers)
        redaction = self._secrets.redaction(pointers=pointers)
        self._audit.record(
            AuditEntry(
                act_id=act_id,
                stage=stage,
                kind=act.kind,
                server=act.server,
                name=redaction.text(act.name) if act.kind == "resource" else act.name,
                session=act.session,
                principal=act.principal,
                profile=act.profile,
                caller=act.caller,
                pin=act.pin,
                arguments=redaction.apply(act.arguments),
                **more,
            )
        )

    def _end(self, act: Act, act_id: str, *, outcome: Any, digest: str | None, seconds: float) -> None:
        name = self._secrets.hide(act.name)
        self._events.tell(Acted(act.server, name, act.kind, outcome, seconds))
        if self._audit is not None:
            self._audit.record(
                AuditEntry(
                    act_id=act_id,
                    stage="ended",
                    server=act.server,
                    name=self._secrets.redaction().text(name) if act.kind == "resource" else name,
                    outcome=outcome,
                    digest=digest,
                    latency_ms=round(seconds * 1000, 3),
                )
            )


def _unnamed(case: Case, decision: Decision) -> Decision:
    """Return the decision on a call; through a proxy tool, an allow of the default table becomes ask."""
    if case.by_proxy is None or decision.effect != "allow" or decision.cause != "default":
        return decision
    return replace(decision, effect="ask", reason=f"it is called through {case.by_proxy}, and no rule allows it")


def _consented(case: Case, act: Act, decision: Decision) -> Ruling | None:
    """Return the result for a call that arrived with consent; None if the consent does not cover it."""
    if case.consented_by is None or not covered(act, decision):
        return None
    reason = "the client in front asks its own user" if case.consented_by == "client" else "the user typed it"
    return Ruling(allowed=True, by=case.consented_by, rule=decision.rule, reason=reason)


def _change_note(case: Case) -> str | None:
    """Return how the definition differs from the accepted one; None if it does not."""
    changed = () if case.item is None else case.item.changed
    return f"What changed: {brief(changed)}" if changed else None


def _taint_source(case: Case, act: Act) -> str | None:
    return case.session.taint.told(act.server, act.name) if act.tainted else None


def _taint_note(case: Case, act: Act) -> str | None:
    """Return the audit note for a call in a tainted session; None if it is not tainted."""
    source = _taint_source(case, act)
    return None if source is None else f"untrusted text came into the session from {source}"


def _taint(case: Case, act: Act) -> None:
    """Taint the session with the output of a server."""
    case.session.taint.take(act.server, act.name, trusted=act.trusted, hints=act.annotations)


def _question(case: Case, act: Act, decision: Decision) -> Question:
    definition = None if case.item is None else case.item.definition
    return Question(
        act=act,
        decision=decision,
        title=getattr(definition, "title", None) or act.name,
        description=getattr(definition, "description", None),
        command=case.entry.shown,
        arguments=dict(case.arguments),
        definition=definition,
        editable=act.kind == "tool",
        tainted_by=_taint_source(case, act),
        warnings=() if case.item is None else case.item.flagged,
        changed=() if case.item is None else case.item.changed,
        tools=case.tools() if act.kind == "tool" else (),
    )


def decoded(arguments: Raw | None) -> dict[str, Any]:
    """Decode the arguments of a call, once: what is authorized is what is sent.

    Raises:
        RequestFailed: they are not a JSON object.
    """
    try:
        value = {} if arguments is None else msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestFailed(f"Invalid params: arguments cannot be decoded: {error}", code=-32602) from error
    if not isinstance(value, dict):
        raise RequestFailed("Invalid params: arguments must be an object", code=-32602)
    return value
