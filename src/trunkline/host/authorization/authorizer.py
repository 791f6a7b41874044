"""The single path for every act at a server: decided by the policy, approved if needed, recorded, performed, recorded.

Every caller goes through here: programs, the command line, the gateway and a model in a chat. An act that cannot be
recorded is not performed. What is denied never reaches the server.

The act that the policy decides about is built in one place too, from an item, an unlisted name or a server request.
Lists, completions, approvals and calls all judge the same item. If each of them described it in its own way, a rule
could hide an item and still allow its use. Acts that a person describes by hand (``policy test``, ``policy why``,
``grants allow``) are written as a plain ``Act``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from itertools import count, repeat
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.errors import LinkError, PolicyDenied, RequestFailed
from trunkline.host.audit.trail import AuditEntry, AuditTrail, note_entry, result_digest
from trunkline.host.authorization.approval import (
    ApprovalRequest,
    ApprovalResult,
    Approver,
    ConsentedBy,
    Prompter,
    consent_covers,
)
from trunkline.host.authorization.denial_messages import (
    NO_PROMPTER,
    NoPromptReason,
    denied_message,
    needs_approval_message,
)
from trunkline.host.authorization.grants import ServerTool
from trunkline.host.authorization.policy.decisions import NO_HINTS, Act, ActKind, Decision
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.authorization.skill_grants import SkillTool
from trunkline.host.config.model import ServerEntry
from trunkline.host.events import ActCompleted, ConsentAsked, EventBus
from trunkline.host.integrity.pins.definitions import summarize_changes
from trunkline.host.secrets.registry import SecretRegistry
from trunkline.host.session import HostSession
from trunkline.host.upstreams.catalog.catalog import Catalog
from trunkline.host.upstreams.catalog.items import ITEM_KINDS, CatalogItem, ItemKind
from trunkline.host.upstreams.routing.channels import CallerChannel
from trunkline.host.upstreams.supervision.upstream import ServerStatus

if TYPE_CHECKING:
    from trunkline.host.requester import Requester

__all__ = [
    "ActSubject",
    "Authorizer",
    "CallRequest",
    "PerformCall",
    "act_for_item",
    "act_for_server_request",
    "act_for_unlisted",
    "decode_arguments",
    "grantable_tools",
    "is_usable",
    "may_use",
    "usable_counts",
    "with_usable_counts",
]

log = logging.getLogger("trunkline.host")

#: The kinds of acts whose names are URIs, which may contain secrets.
_NAMED_BY_URI = frozenset({"resource", "skill"})


def act_for_item(
    item: CatalogItem,
    *,
    caller: str,
    session: HostSession | None = None,
    principal: str | None = None,
    profile: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    uri: str | None = None,
    trusted: bool | None = None,
) -> Act:
    """Return the use of a catalog item as an act; without ``arguments``, any use of it.

    Args:
        item: The item.
        caller: ``model``, ``user`` or ``gateway``.
        session: The session of the call, with its principal, profile and taint. None for a list that is the same in
            every session: then ``principal`` and ``profile`` count, and nothing is tainted.
        principal: The authenticated subject, if there is no session.
        profile: The gateway profile, if there is no session.
        arguments: The arguments as they will be sent.
        uri: The URI to read, if the item is a template.
        trusted: Whether the server is trusted now, if its entry may be newer than the catalog.
    """
    name = item.name if uri is None else uri
    return Act(
        kind="resource" if item.kind == "template" else item.kind,
        server=item.server,
        name=name,
        arguments=arguments,
        annotations=item.annotations,
        pin=item.pin,
        trusted=item.trusted if trusted is None else trusted,
        tainted=session is not None and session.taint.affects(item.server, name, hints=item.annotations),
        flagged=bool(item.flagged),
        changed=bool(item.changed),
        caller=caller,
        principal=principal if session is None else session.subject,
        session=None if session is None else session.id,
        profile=profile if session is None else session.profile,
    )


def act_for_unlisted(
    kind: ActKind,
    server: str,
    name: str,
    *,
    caller: str,
    trusted: bool,
    session: HostSession | None = None,
    principal: str | None = None,
    profile: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Act:
    """Return the use of something that a server does not list as an act; only its name and its server are known."""
    return Act(
        kind=kind,
        server=server,
        name=name,
        arguments=arguments,
        annotations=NO_HINTS,
        trusted=trusted,
        tainted=session is not None and session.taint.affects(server, name),
        caller=caller,
        principal=principal if session is None else session.subject,
        session=None if session is None else session.id,
        profile=profile if session is None else session.profile,
    )


def act_for_server_request(
    entry: ServerEntry, method: str, params: Any, session: HostSession, *, name: str | None = None
) -> Act:
    """Return a request of a server as an act; its name is the method unless another is given."""
    kind: Any = method.partition("/")[0]
    return act_for_unlisted(
        kind,
        entry.name,
        name or method,
        caller="server",
        trusted=entry.settings.trusted,
        session=session,
        arguments=msgspec.to_builtins(params),
    )


def is_usable(item: CatalogItem, policy: Policy) -> bool:
    """Return False if the policy denies every use of an item by the user."""
    return policy.is_visible(act_for_item(item, caller="user"))


def may_use(item: CatalogItem, requester: Requester) -> bool:
    """Return True if the caller may see a tool; an approval for several tools covers only such tools."""
    act = act_for_item(item, caller=requester.caller, session=requester.session)
    return (requester.serves is None or requester.serves(item)) and requester.policy.is_visible(act)


def usable_counts(catalog: Catalog, policy: Policy) -> Mapping[str, Mapping[ItemKind, int]]:
    """Return the number of usable items of each server, by kind.

    Items that a filter, the catalog or a review removed are not in the catalog, and are not counted.
    """
    counts: dict[str, Counter[ItemKind]] = {server: Counter() for server in catalog.parts}
    for kind in ITEM_KINDS:
        for item in catalog.of(kind).values():
            if is_usable(item, policy):
                counts[item.server][kind] += 1
    return counts


def with_usable_counts(status: ServerStatus, counts: Mapping[ItemKind, int]) -> ServerStatus:
    """Return a status with the numbers of usable items, and of listed items that are not usable."""
    tools, prompts = counts.get("tool", 0), counts.get("prompt", 0)
    resources = counts.get("resource", 0) + counts.get("template", 0)
    listed = status.tools + status.prompts + status.resources
    return replace(
        status, tools=tools, prompts=prompts, resources=resources, unusable=max(0, listed - tools - prompts - resources)
    )


def grantable_tools(
    catalog: Catalog, server: str, is_usable: Callable[[CatalogItem], bool] = lambda item: True
) -> tuple[ServerTool, ...]:
    """Return the tools that a grant for a whole server covers: usable, not flagged and not changed."""
    part = catalog.parts.get(server)
    items = [item for item in (() if part is None else part.items) if item.kind == "tool" and item.id in catalog.tools]
    return tuple(
        ServerTool(item.name, item.pin, item.annotations.read_only is True)
        for item in items
        if not item.flagged and not item.changed and is_usable(item)
    )


PerformCall = Callable[[Mapping[str, Any]], Awaitable[tuple[Any, Raw]]]


class ActSubject(Struct, frozen=True, kw_only=True):
    """The subject of an act that is not a catalog item, such as a skill or a method of an extension."""

    #: The pin of the subject, which an approval is bound to; None if there is none.
    pin: str | None = None
    title: str | None = None
    description: str | None = None
    #: Details that are shown to the user on demand.
    definition: Any = None
    #: The findings of the scan.
    flagged: tuple[str, ...] = ()
    #: The changes since the last approval, one line each.
    changed: tuple[str, ...] = ()
    #: The tools that a skill requests.
    skill_tools: tuple[SkillTool, ...] = ()
    #: The name under which it is pinned: then changes need approval, whatever a rule allows. None if it is not pinned.
    pinned_as: str | None = None


class CallRequest(Struct, frozen=True, kw_only=True):
    """A call with all that is needed to authorize and perform it."""

    kind: ActKind
    entry: ServerEntry
    #: The server's whole command or URL, without secrets.
    command: str
    #: The server's own name or URI for it.
    name: str
    arguments: Mapping[str, Any]
    #: The catalog item; None for a skill, or a resource that is not listed.
    item: CatalogItem | None
    session: HostSession
    channel: CallerChannel
    policy: Policy
    #: The prompter to ask for approval; None if there is none.
    prompter: Prompter | None
    caller: str
    work: PerformCall
    #: Who approved this call before it arrived; None if no one did.
    consented_by: ConsentedBy | None = None
    #: Why no person can be asked, if there is no prompter.
    no_prompt_reason: NoPromptReason = NO_PROMPTER
    #: The gateway tool (``call_tool``) that this one is called through; only a rule or a grant allows it then.
    by_proxy: str | None = None
    #: Whether a command could allow it; see ``allow_command``.
    by_command: bool = True
    #: Returns the tools that an answer for the whole server would cover.
    tools: Callable[[], tuple[ServerTool, ...]] = tuple
    #: The subject, if it is not a catalog item.
    subject: ActSubject | None = None

    @property
    def act(self) -> Act:
        """The act as the policy sees it."""
        # The configuration may have changed since the catalog was built.
        trusted = self.entry.settings.trusted
        caller, session, arguments = self.caller, self.session, self.arguments
        if self.item is None:
            act = act_for_unlisted(
                self.kind,
                self.entry.name,
                self.name,
                caller=caller,
                session=session,
                arguments=arguments,
                trusted=trusted,
            )
            subject = self.subject
            if subject is None:
                return act
            changed = bool(subject.changed) and subject.pinned_as is not None
            return replace(
                act,
                pin=subject.pin,
                flagged=bool(subject.flagged),
                changed=changed,
                pinned_as=subject.pinned_as,
            )
        uri = self.name if self.kind == "resource" else None
        return act_for_item(self.item, caller=caller, session=session, arguments=arguments, uri=uri, trusted=trusted)


class Authorizer:
    """Decides on calls, asks for approval, records and performs them."""

    def __init__(
        self, *, consent: Approver, audit: AuditTrail | None, events: EventBus, secrets: SecretRegistry | None = None
    ) -> None:
        """Use this approver, audit trail and event bus; ``secrets`` are hidden in all of them."""
        self._consent = consent
        self._audit = audit
        self._events = events
        self._secrets = SecretRegistry() if secrets is None else secrets
        # Unique among the processes that share a trail, without asking the system for randomness at each call.
        self._act_ids: Callable[[], str] = map("{}{:06x}".format, repeat(os.urandom(8).hex()), count(1)).__next__

    async def perform(self, case: CallRequest) -> Any:
        """Perform a call if it is allowed, and return its result.

        Raises:
            PolicyDenied: it is not; the message says which rule denies it, or why it was not approved.
            AuditFailed: it could not be recorded, so it was not performed.
        """
        act, started = case.act, time.perf_counter()
        decision = _without_proxy_default(case, case.policy.decide(act, now=time.time()))
        act_id = self._act_ids()
        arguments: Mapping[str, Any] = case.arguments
        by, granted = "policy", None
        if decision.effect != "allow":
            ruling = _consent_result(case, act, decision) or await self._settle(case, act, decision)
            by, granted = ruling.by, ruling.note
            if not ruling.allowed:
                self._deny(case, act, act_id, decision, ruling)
            if ruling.arguments is not None:
                arguments = ruling.arguments
                act = replace(act, arguments=arguments)
        note = "; ".join(each for each in (granted, _taint_note(case, act)) if each) or None
        self._record(case, act, act_id, "begun", effect=decision.effect, rule=decision.rule, by=by, note=note)
        outcome, digest, size = "error", None, None
        try:
            result, raw = await case.work(arguments)
            _add_taint(case, act)
            digest, size = result_digest(bytes(raw)), len(raw)
            outcome = "tool-error" if isinstance(result, t.CallToolResult) and result.is_error else "ok"
            return result
        except asyncio.CancelledError:
            outcome = "asked" if case.channel.left else "cancelled"
            raise
        except LinkError:
            outcome = "lost"
            raise
        except RequestFailed:
            # The text of an error is read like a result.
            _add_taint(case, act)
            raise
        finally:
            seconds = time.perf_counter() - started
            self._end(act, act_id, outcome=outcome, digest=digest, seconds=seconds, size=size)

    def record_server_request(self, act: Act, decision: Decision) -> None:
        """Record a request of a server and the policy's decision on it; its content is not recorded."""
        if self._audit is not None:
            self._audit.record(note_entry(act, effect=decision.effect, rule=decision.rule, by="policy"))

    def record_denied(self, act: Act, decision: Decision) -> None:
        """Record an act that was answered as if its target did not exist, since the policy never allows it."""
        if self._audit is not None:
            more = {"effect": decision.effect, "rule": decision.rule, "by": "policy", "outcome": "denied"}
            self._audit.record(replace(note_entry(act, **more), stage="denied", pin=act.pin, note=decision.reason))

    async def _settle(self, case: CallRequest, act: Act, decision: Decision) -> ApprovalResult:
        def question() -> ApprovalRequest:
            return _approval_request(case, act, decision)

        def reevaluate(arguments: Mapping[str, Any]) -> Decision:
            return case.policy.decide(replace(act, arguments=arguments), now=time.time())

        def refusal(problem: str | None) -> str:
            source = _taint_source(case, act)
            public_message = ". ".join(each for each in (_change_note(case), problem) if each) or None
            return needs_approval_message(
                act,
                decision,
                no_prompt_reason=case.no_prompt_reason,
                tainted_by=source,
                problem=public_message,
                by_command=case.by_command,
            )

        ruling = await self._consent.resolve(
            act,
            decision,
            question=question,
            session_grants=case.session.grants,
            prompter=case.prompter,
            reevaluate=reevaluate,
            refusal=refusal,
            by_command=case.by_command,
        )
        if decision.effect == "ask" and self._events.subscriptions:
            self._events.publish(ConsentAsked(act.server, self._secrets.hide(act.name), ruling.allowed, ruling.by))
        return ruling

    def _deny(self, case: CallRequest, act: Act, act_id: str, decision: Decision, ruling: ApprovalResult) -> None:
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
        reason = denied_message(act, decision) if decision.effect == "deny" else ruling.reason
        self._events.publish(ActCompleted(act.server, self._secrets.hide(act.name), act.kind, "denied", 0.0))
        not_allowed = f"The policy of this host does not allow {act.server}/{act.name}."
        public_message = None if decision.effect == "ask" else decision.message or not_allowed
        raise PolicyDenied(reason, public_message=public_message)

    def _record(self, case: CallRequest, act: Act, act_id: str, stage: Any, **more: Any) -> None:
        if self._audit is None:
            return
        redaction = self._secrets.redaction(pointers=_hidden_pointers(case.policy, act))
        self._audit.record(
            AuditEntry(
                act_id=act_id,
                stage=stage,
                kind=act.kind,
                server=act.server,
                name=redaction.text(act.name) if act.kind in _NAMED_BY_URI else act.name,
                session=act.session,
                principal=act.principal,
                profile=act.profile,
                caller=act.caller,
                pin=act.pin,
                arguments=redaction.apply(act.arguments),
                **more,
            )
        )

    def _end(
        self, act: Act, act_id: str, *, outcome: Any, digest: str | None, seconds: float, size: int | None
    ) -> None:
        name = self._secrets.hide(act.name)
        if self._events.subscriptions:
            self._events.publish(ActCompleted(act.server, name, act.kind, outcome, seconds, size))
        if self._audit is not None:
            self._audit.record(
                AuditEntry(
                    act_id=act_id,
                    stage="ended",
                    server=act.server,
                    name=self._secrets.redaction().text(name) if act.kind in _NAMED_BY_URI else name,
                    outcome=outcome,
                    digest=digest,
                    latency_ms=int(seconds * 1_000_000) / 1000,
                )
            )


def _hidden_pointers(policy: Policy, act: Act) -> tuple[str, ...]:
    """Return where the policy hides arguments of an act in the audit trail."""
    if not policy.redactions:
        return ()
    return tuple(pointer for each in policy.redactions if each.matches(act) for pointer in each.pointers)


def _without_proxy_default(case: CallRequest, decision: Decision) -> Decision:
    """Return the decision on a call; through a proxy tool, an allow of the default table becomes ask."""
    if case.by_proxy is None or decision.effect != "allow" or decision.cause != "default":
        return decision
    return replace(decision, effect="ask", reason=f"it is called through {case.by_proxy}, and no rule allows it")


def _consent_result(case: CallRequest, act: Act, decision: Decision) -> ApprovalResult | None:
    """Return the result for a call that arrived with consent; None if the consent does not cover it."""
    if case.consented_by is None or not consent_covers(act, decision):
        return None
    reason = (
        "the client connected to the gateway asks its own user"
        if case.consented_by == "client"
        else "the user typed it"
    )
    return ApprovalResult(allowed=True, by=case.consented_by, rule=decision.rule, reason=reason)


def _change_note(case: CallRequest) -> str | None:
    """Return how the definition differs from the accepted one; None if it does not."""
    if case.item is not None:
        changed = case.item.changed
    else:
        changed = () if case.subject is None or case.subject.pinned_as is None else case.subject.changed
    return f"What changed: {summarize_changes(changed)}" if changed else None


def _taint_source(case: CallRequest, act: Act) -> str | None:
    return case.session.taint.describe_sources(act.server, act.name) if act.tainted else None


def _taint_note(case: CallRequest, act: Act) -> str | None:
    """Return the audit note for a call in a tainted session; None if it is not tainted."""
    source = _taint_source(case, act)
    return None if source is None else f"untrusted text came into the session from {source}"


def _add_taint(case: CallRequest, act: Act) -> None:
    """Taint the session with the output of a server."""
    case.session.taint.add_source(act.server, act.name, trusted=act.trusted, hints=act.annotations)


def _approval_request(case: CallRequest, act: Act, decision: Decision) -> ApprovalRequest:
    subject, item = case.subject or ActSubject(), case.item
    definition = subject.definition if item is None else item.definition
    return ApprovalRequest(
        act=act,
        decision=decision,
        title=getattr(definition, "title", None) or subject.title or act.name,
        description=getattr(definition, "description", None) or subject.description,
        command=case.command,
        arguments=dict(case.arguments),
        definition=definition,
        editable=act.kind == "tool",
        tainted_by=_taint_source(case, act),
        warnings=subject.flagged if item is None else item.flagged,
        changed=subject.changed if item is None else item.changed,
        tools=case.tools() if act.kind == "tool" else (),
        skill_tools=subject.skill_tools,
        session_covers=case.session.covers,
    )


def decode_arguments(arguments: Raw | None) -> dict[str, Any]:
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
