"""Asks the gateway's own client for consent, by elicitation, when nobody sits at the gateway itself."""

from __future__ import annotations

from typing import Any

import msgspec

import trunkline.types as t
from trunkline.host.judgement.consent import Answer, Face, Question
from trunkline.host.passing.fronts import Front
from trunkline.protocol.caller import supports

__all__ = ["consent_face"]

_ONCE, _SESSION, _NO = "allow once", "allow for this session", "do not allow"
_LONGEST = 16_000


def consent_face(front: Front) -> Face | None:
    """Give the way to ask a client for consent; None if it cannot be asked."""
    if not supports(front.capabilities, "elicitation.form"):
        return None

    async def ask(question: Question) -> Answer | None:
        raw = await front.ask("elicitation/create", _form(question), key="consent")
        try:
            answer = msgspec.json.decode(raw, type=t.ElicitResult)
        except msgspec.DecodeError:
            return None
        choice = (answer.content or {}).get("decision") if answer.action == "accept" else None
        if choice == _SESSION and _whole(question) and "session" in question.can_remember:
            return Answer(allow=True, remember="session")
        return Answer(allow=choice in (_ONCE, _SESSION))

    return ask


def _form(question: Question) -> t.ElicitRequestParams:
    act = question.act
    choices = [_ONCE, _SESSION, _NO] if _whole(question) and "session" in question.can_remember else [_ONCE, _NO]
    lines = [
        f"May {act.kind} {act.name!r} of server {act.server!r} be used?",
        f"Arguments: {_shown(question)}",
        f"Asked because: {question.decision.reason} ({question.decision.rule})",
    ]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"decision": {"type": "string", "title": "Decision", "enum": choices}},
        "required": ["decision"],
    }
    return t.ElicitRequestParams(mode="form", message="\n".join(lines), requested_schema=schema)


def _shown(question: Question) -> str:
    text = msgspec.json.encode(question.arguments).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text)} characters in all)"


def _whole(question: Question) -> bool:
    """Tell whether the client was shown everything: only then may consent last longer than once."""
    return len(msgspec.json.encode(question.arguments)) <= _LONGEST
