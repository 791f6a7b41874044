"""The inbox: the questions that need the user's answer, shown in all open pages.

An ``Inbox`` has the three prompters that a host is opened with, so it is created before the host::

    inbox = Inbox()
    Host.open(..., consent=inbox.approve, review=inbox.review, forms=inbox.elicit)

A question is an item until it is answered, withdrawn (its prompter is cancelled) or expired. The first answer wins; a
later one gets the outcome in its error. An answer that does not match its question is rejected and the item stays:
only a choice that the user was shown can be chosen.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

import trunkline.types as t
from trunkline.console.events import ConsoleEvents
from trunkline.console.masking import restore_masked
from trunkline.console.routing import ApiError
from trunkline.host.authorization.approval import ApprovalAnswer, ApprovalRequest, RememberScope
from trunkline.host.authorization.grants import GRANT_DAYS
from trunkline.host.authorization.prompters import race
from trunkline.host.server_requests.elicitation import FormPrompt, UrlPrompt
from trunkline.host.server_requests.sampling.handler import SamplingDecision, SamplingReview
from trunkline.host.upstreams.catalog.names import item_id

__all__ = ["Inbox", "InboxOutcome", "Reply", "asked_by", "race"]

InboxOutcome: TypeAlias = Literal["allowed", "denied", "answered", "withdrawn", "expired"]

_MOST_ITEMS = 500  # Open items: more than a user answers; further questions get no answer, which denies them.
_MOST_CLOSED = 500  # Closed items whose outcome is remembered, for late answers.
_MOST_NAMES = 30  # Tool names listed in the description of a choice.
_REVIEW_SECONDS = 300.0  # The timeout of sampling reviews (``SamplingOptions``).
_CALLERS = MappingProxyType({"model": "chat", "app": "app", "gateway": "gateway", "user": "you"})
_ACTIONS = ("accept", "decline", "cancel")

#: The call of the console that a question belongs to; the page shows the question beside it.
_CALL: ContextVar[str | None] = ContextVar("console_call", default=None)


@contextmanager
def asked_by(call: str) -> Iterator[None]:
    """Set the call that questions asked in this block belong to."""
    token = _CALL.set(call)
    try:
        yield
    finally:
        _CALL.reset(token)


class Reply(Struct, frozen=True):
    """A valid answer: the value for the prompter, and the outcome for the pages."""

    value: Any
    outcome: InboxOutcome
    text: str


#: Parses the body of an answer; raises ``ApiError`` if it does not match the question.
ReadAnswer: TypeAlias = Callable[[Mapping[str, Any]], Reply]


class _Item:
    """A pending question."""

    def __init__(self, members: dict[str, Any], read: ReadAnswer) -> None:
        self.members = members
        self.read = read
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    @property
    def is_late(self) -> bool:
        deadline = self.members["deadline"]
        # Slightly earlier: the host's timer uses another clock.
        return deadline is not None and time.time() >= deadline - 0.1


class Inbox:
    """The pending questions, and the prompters that ask them."""

    def __init__(self) -> None:
        """Start empty."""
        self._items: dict[str, _Item] = {}
        self._closed: dict[str, tuple[InboxOutcome, str]] = {}
        self._events: list[ConsoleEvents] = []
        self._hide: Callable[[str], str] = str
        self._seconds: float | None = None

    def attach(
        self, events: ConsoleEvents, *, seconds: float | None = None, hide: Callable[[str], str] = str
    ) -> Callable[[], None]:
        """Publish changes to the pages of a console; return a function that stops publishing.

        ``seconds`` is the timeout of approvals, and ``hide`` masks secrets in what the pages get.
        """
        self._events.append(events)
        self._seconds, self._hide = seconds, hide
        return lambda: self._events.remove(events) if events in self._events else None

    @property
    def watched(self) -> bool:
        """Whether a page is open."""
        return any(events.watched for events in self._events)

    def items(self) -> list[dict[str, Any]]:
        """Return the open items, oldest first."""
        return [item.members for item in self._items.values()]

    def answer(self, id: str, body: Any, *, window: str = "") -> None:
        """Answer an item.

        Raises:
            ApiError: there is no such item, it is closed, or the answer does not match it.
        """
        item = self._items.get(id)
        if item is None:
            outcome, text = self._closed.get(id, (None, ""))
            if outcome is None:
                raise ApiError(404, "not_found", "There is no such question in the inbox.")
            raise ApiError(409, "answered" if outcome not in ("withdrawn", "expired") else outcome, text)
        reply = item.read(body if isinstance(body, dict) else {})
        self._close(id, reply.outcome, reply.text, window=window)
        if not item.reply.done():
            item.reply.set_result(reply)

    async def ask(
        self, kind: str, server: str, title: str, *, read: ReadAnswer, seconds: float | None = None, **members: Any
    ) -> Any:
        """Show a question until it is answered and return the value of the reply; None if too many are open.

        Cancelling the call withdraws the question.
        """
        if len(self._items) >= _MOST_ITEMS:
            return None
        now, id = time.time(), os.urandom(8).hex()
        deadline = None if seconds is None else now + seconds
        common = {"id": id, "kind": kind, "server": server, "title": title, "created": now, "deadline": deadline}
        call = _CALL.get() or _chat_call()
        item = _Item({**common, "caller": None, **({} if call is None else {"call": call}), **members}, read)
        self._items[id] = item
        self._publish("inbox", item=item.members)
        try:
            return (await item.reply).value
        finally:
            if id in self._items:
                if item.is_late:
                    self._close(id, "expired", "The question expired without an answer.")
                else:
                    self._close(id, "withdrawn", "The question was withdrawn; it no longer needs an answer.")

    def _close(self, id: str, outcome: InboxOutcome, text: str, *, window: str = "") -> None:
        del self._items[id]
        self._closed[id] = outcome, text
        while len(self._closed) > _MOST_CLOSED:
            del self._closed[next(iter(self._closed))]
        self._publish("inbox_closed", id=id, outcome=outcome, text=text, window=window)

    def _publish(self, type: str, **members: Any) -> None:
        for events in self._events:
            events.publish(type, **members)

    # --- prompters ---------------------------------------------------------------------------------------------------

    async def approve(self, question: ApprovalRequest) -> ApprovalAnswer | None:
        """Ask for the approval of an act (``consent=`` of a host)."""
        act = question.act
        answer: ApprovalAnswer | None = await self.ask(
            "approval",
            act.server,
            question.title or act.name,
            read=lambda body: _read_approval(question, body, self._hide),
            seconds=self._seconds,
            caller=_CALLERS.get(act.caller),
            principal=act.principal,
            profile=act.profile,
            act=act.kind,
            name=act.name,
            item=item_id(act.server, act.name),
            arguments=None if question.arguments is None else dict(question.arguments),
            editable=question.editable,
            reason=question.reason,
            rule=question.decision.rule,
            command=question.command,
            description=question.description,
            definition=msgspec.to_builtins(question.definition),
            warnings=list(question.warnings),
            changed=list(question.changed),
            tainted_by=question.tainted_by,
            remember=_choices(question),
        )
        return answer

    # A page shows any number of questions at once, and at a gateway the client is asked too.
    approve.concurrent = approve.beside_client = True  # type: ignore[attr-defined]

    async def review(self, review: SamplingReview) -> SamplingDecision | None:
        """Ask for the review of a sampling request or response (``review=`` of a host)."""
        is_request = review.stage == "request"
        more: dict[str, Any] = {}
        if not is_request:
            more = {"response": msgspec.to_builtins(review.response), "cost": review.cost}
            more["usage"] = None if review.usage is None else msgspec.to_builtins(review.usage)
        decision: SamplingDecision | None = await self.ask(
            f"sampling_{review.stage}",
            review.server,
            "A request to a model" if is_request else f"The answer of {review.model}",
            read=lambda body: _read_review(review, body, self._hide),
            seconds=_REVIEW_SECONDS,
            command=review.command,
            request=msgspec.to_builtins(review.request),
            model=review.model,
            models=list(review.models),
            why=list(review.why),
            max_tokens=review.max_tokens,
            input_tokens=review.input_tokens,
            most_cost=review.most_cost,
            requests_left=review.requests_left,
            tokens_left=review.tokens_left,
            rule=review.decision.rule,
            notes=list(review.notes),
            context=review.context,
            **more,
        )
        return decision

    async def elicit(self, prompt: FormPrompt | UrlPrompt) -> t.ElicitResult | None:
        """Ask a question of a server (``forms=`` of a host)."""
        result: t.ElicitResult | None
        if isinstance(prompt, FormPrompt):
            result = await self.ask(
                "form",
                prompt.server,
                f"{prompt.server} asks for information",
                read=lambda body: _read_form(prompt, body),
                command=prompt.command,
                message=prompt.message,
                schema=prompt.schema,
            )
            return result
        page = prompt.page_url
        result = await self.ask(
            "url",
            prompt.server,
            f"{prompt.server} asks to open a page",
            read=_read_action,
            command=prompt.command,
            message=prompt.message,
            url=page.url,
            before=page.before,
            host=page.host,
            after=page.after,
            warnings=list(page.warnings),
        )
        return result


def _chat_call() -> str | None:
    """Return the id of the chat call that runs in the current asyncio task; None if there is none."""
    from trunkline.host.chat.tool_calls import CURRENT_CALL

    return CURRENT_CALL.get()


# --- answers ---------------------------------------------------------------------------------------------------------


def _invalid_answer(message: str) -> ApiError:
    return ApiError(400, "invalid_answer", message)


def _allows(body: Mapping[str, Any]) -> bool:
    allow = body.get("allow")
    if not isinstance(allow, bool):
        raise _invalid_answer('The answer needs "allow": true or false.')
    return allow


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise _invalid_answer(f'"{name}" must be a string.')
    return value


def _read_approval(question: ApprovalRequest, body: Mapping[str, Any], hide: Callable[[str], str]) -> Reply:
    name = item_id(question.act.server, question.act.name)
    if not _allows(body):
        return Reply(ApprovalAnswer(allow=False), "denied", f"{name} was denied.")
    remember: Any = body.get("remember") or "once"
    if remember not in ("once", *question.can_remember):
        raise _invalid_answer(f'"remember" must be one of: once, {", ".join(question.can_remember)}.')
    arguments = body.get("arguments")
    if arguments is not None:
        if not isinstance(arguments, dict):
            raise _invalid_answer('"arguments" must be an object.')
        original = dict(question.arguments or {})
        arguments = restore_masked(arguments, original, hide)
        if arguments == original:
            arguments = None
        elif not question.editable:
            raise _invalid_answer("The arguments cannot be changed.")
    answer = ApprovalAnswer(
        allow=True, remember=remember, arguments=arguments, vary=_text(body, "vary"), like=_text(body, "like")
    )
    how = "" if remember == "once" else f" ({_label(question, remember).lower()})"
    return Reply(answer, "allowed", f"{name} was allowed{how}.")


def _read_review(review: SamplingReview, body: Mapping[str, Any], hide: Callable[[str], str]) -> Reply:
    if not _allows(body):
        return Reply(SamplingDecision(allow=False), "denied", f"The {review.stage} was denied.")
    remember: Any = body.get("remember") or "once"
    if remember not in ("once", "session"):
        raise _invalid_answer('"remember" must be "once" or "session".')
    model = _text(body, "model")
    if model is not None and model not in review.models:
        raise _invalid_answer(f'"model" must be one of: {", ".join(review.models)}.')
    decision = SamplingDecision(
        allow=True,
        remember=remember,
        request=_edited(body.get("request"), review.request, hide),
        model=None if model == review.model else model,
        context=body.get("context") is True,
        response=_edited(body.get("response"), review.response, hide),
    )
    return Reply(decision, "allowed", f"The {review.stage} was allowed.")


def _edited(value: Any, original: Any, hide: Callable[[str], str]) -> Any:
    """Return a request or response as the person edited it; None if it was not changed."""
    if value is None or original is None:
        return None
    plain = msgspec.to_builtins(original)
    try:
        changed = msgspec.convert(restore_masked(value, plain, hide), type(original))
    except msgspec.ValidationError as error:
        raise _invalid_answer(f"The edited text cannot be used: {error}") from error
    return None if changed == original else changed


def _read_action(body: Mapping[str, Any]) -> Reply:
    action: Any = body.get("action")
    if action not in _ACTIONS:
        raise _invalid_answer(f'"action" must be one of: {", ".join(_ACTIONS)}.')
    outcome: InboxOutcome = "answered" if action == "accept" else "denied"
    done = {"accept": "answered", "decline": "declined", "cancel": "cancelled"}[action]
    return Reply(t.ElicitResult(action=action), outcome, f"The question was {done}.")


def _read_form(prompt: FormPrompt, body: Mapping[str, Any]) -> Reply:
    reply = _read_action(body)
    if reply.value.action != "accept":
        return reply
    from trunkline.protocol.json_schema import SchemaError, compile_schema

    content = body.get("content", {})
    if not isinstance(content, dict):
        raise _invalid_answer('"content" must be an object.')
    unknown = [name for name in content if name not in prompt.schema["properties"]]
    if unknown:
        raise _invalid_answer(f"The form has no field {unknown[0]!r}.")
    try:
        problem = compile_schema(prompt.schema).first_violation(content)
    except SchemaError as error:
        raise _invalid_answer(f"The form cannot be checked: {error}") from error
    if problem is not None:
        raise _invalid_answer(f"{problem.path or 'The form'}: {problem.message}")
    return Reply(t.ElicitResult(action="accept", content=content), reply.outcome, reply.text)


# --- choices ---------------------------------------------------------------------------------------------------------


def _choices(question: ApprovalRequest) -> list[dict[str, str]]:
    """Return the durations that an approval may have, each with its label and what it covers."""
    return [
        {"scope": scope, "label": _label(question, scope), "detail": _detail(question, scope)}
        for scope in ("once", *question.can_remember)
    ]


def _label(question: ApprovalRequest, scope: RememberScope) -> str:
    kind, server = question.act.kind, question.act.server
    match scope:
        case "once":
            return "Allow once"
        case "session":
            return "Allow in this session"
        case "always":
            return f"Always allow this {kind}"
        case "read-only":
            return f"Always allow the read-only tools of {server}"
        case "server":
            return f"Allow everything of {server} in this session"
        case "alike":
            return "Always allow with arguments like these"
        case "tools":
            return f"Allow in this session, with its tools of {server}"
        case "all-tools":
            return "Allow in this session, with its tools of all servers"


def _detail(question: ApprovalRequest, scope: RememberScope) -> str:
    kind = question.act.kind
    any_use = "as long as its files stay the same" if kind == "skill" else "with any arguments"
    until = time.strftime("%Y-%m-%d", time.localtime(time.time() + GRANT_DAYS * 86400))
    match scope:
        case "once":
            return "This call only."
        case "session":
            return f"This {kind} {any_use}, {_session_end(question)}."
        case "always":
            return f"This {kind} {any_use}, until {until}, as long as its definition stays the same."
        case "read-only":
            readers = [tool.name for tool in question.read_only_tools]
            also = "" if question.act.name in readers else " This call is allowed once."
            return f"Until {until}: {_names(readers)}.{also}"
        case "server":
            named = _names([tool.name for tool in question.tools])
            return f"{_session_end(question).capitalize()}: {named}."
        case "alike":
            return f"This {kind}, until {until}; one argument may vary."
        case "tools" | "all-tools":
            names = _names([tool.id for tool in question.skill_tools_of(scope)])
            return f"Until the session ends or a file of the skill changes, these need no further approval: {names}."


def _session_end(question: ApprovalRequest) -> str:
    if question.session_covers is None:
        return "until the session ends"
    return f"for {question.session_covers}, until the gateway stops"


def _names(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"
