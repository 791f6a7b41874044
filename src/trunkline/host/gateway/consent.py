"""Approval by elicitation: the gateway's client is asked, unless the gateway has its own prompter.

The client may answer by itself, as many agents do. So an answer that outlives the session is offered only if
``lasting`` says that the client is the user's own (over stdio, or at a loopback address with the user's own token).
"""

from __future__ import annotations

from typing import Any

import msgspec

import trunkline.types as t
from trunkline.host.authorization.approval import ApprovalAnswer, ApprovalRequest, Prompter, RememberScope
from trunkline.host.authorization.grants import GRANT_DAYS
from trunkline.host.upstreams.routing.channels import CallerChannel
from trunkline.protocol.caller import supports
from trunkline.protocol.printable import escape_invisible

__all__ = ["client_prompter"]

_NO = "do not allow"
_ALWAYS = f"Always means for {GRANT_DAYS} days, or until it is revoked (trunkline grants revoke)."
_LONGEST = 16_000  # More than a person reads before allowing a call; the client shows it in a dialog.
_MOST_NAMES = 30  # About as many as fit into a dialog.
#: Answers that end with the session, and those that do not.
_PASSING: tuple[RememberScope, ...] = ("session", "server")
_LASTING: tuple[RememberScope, ...] = ("always", "read-only")


def client_prompter(channel: CallerChannel, *, lasting: bool = False) -> Prompter | None:
    """Return the prompter that asks a client for approval; None if it cannot be asked.

    ``lasting`` also offers answers that outlive the session.
    """
    if not supports(channel.capabilities, "elicitation.form"):
        return None

    async def ask(question: ApprovalRequest) -> ApprovalAnswer | None:
        choices = _choices(question, lasting=lasting)
        raw = await channel.ask("elicitation/create", _form(question, choices), key="consent")
        return _read(raw, choices)

    return ask


def _read(raw: bytes | msgspec.Raw, choices: dict[str, RememberScope | None]) -> ApprovalAnswer:
    """Decode the client's answer; anything that is not one of the choices is a denial, with its kind."""
    try:
        answer = msgspec.json.decode(raw, type=t.ElicitResult)
    except msgspec.DecodeError:
        return ApprovalAnswer(allow=False, no="misfit", by="client")
    if answer.action != "accept":
        return ApprovalAnswer(allow=False, no="cancelled" if answer.action == "cancel" else "declined", by="client")
    chosen = (answer.content or {}).get("decision")
    if not isinstance(chosen, str) or chosen not in choices:
        return ApprovalAnswer(allow=False, no="misfit", by="client")
    length = choices[chosen]
    return ApprovalAnswer(allow=length is not None, remember=length or "once", by="client")


def _choices(question: ApprovalRequest, *, lasting: bool) -> dict[str, RememberScope | None]:
    """Return the choices, each with how long it holds; None for a denial."""
    offered = (*_PASSING, *_LASTING) if lasting else _PASSING
    # If the form does not show everything, a yes is for this call only.
    lengths = [each for each in question.can_remember if each in offered] if _shows_everything(question) else []
    return {_wording(question, "once"): "once", **{_wording(question, each): each for each in lengths}, _NO: None}


def _wording(question: ApprovalRequest, length: RememberScope) -> str:
    server = question.act.server
    match length:
        case "session":
            return "allow for this session"
        case "always":
            return f"always allow this {question.act.kind}"
        case "read-only":
            tools = _counted(len(question.read_only_tools), "read-only tool")
            return f"always allow {tools} of {server}{'' if _reads(question) else ', and this call once'}"
        case "server":
            return f"allow {_counted(len(question.tools), 'tool')} of {server} for this session"
        case _:
            return "allow once"


def _counted(count: int, what: str) -> str:
    return f"the {what}" if count == 1 else f"all {count} {what}s"


def _reads(question: ApprovalRequest) -> bool:
    return any(tool.name == question.act.name for tool in question.read_only_tools)


def _form(question: ApprovalRequest, choices: dict[str, RememberScope | None]) -> t.ElicitRequestParams:
    act = question.act
    lines = [
        f"May {act.kind} {act.name!r} of server {act.server!r} be used?",
        f"Arguments: {_shown(question.arguments)}",
        f"Reason: {question.reason}",
        *([f"The untrusted text came from: {_line(question.tainted_by)}"] if question.tainted_by else []),
        *_warning_lines(question),
        *_tool_lines(question, choices),
        *_session_line(question, choices),
        *([_ALWAYS] if set(_LASTING) & set(choices.values()) else []),
    ]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"decision": {"type": "string", "title": "Decision", "enum": list(choices)}},
        "required": ["decision"],
    }
    return t.ElicitRequestParams(mode="form", message="\n".join(lines), requested_schema=schema)


def _warning_lines(question: ApprovalRequest) -> list[str]:
    """Return the lines that are always shown: the scan's findings, and the changes."""
    lines = [f"The scan found in its definition: {_line(each)}" for each in question.warnings]
    lines += [f"Its definition changed: {_line(each)}" for each in question.changed]
    if lines or question.act.flagged or question.act.changed:
        lines.append(f"Its whole definition: {_shown(question.definition)}")
    return lines


def _tool_lines(question: ApprovalRequest, choices: dict[str, RememberScope | None]) -> list[str]:
    """Return a line with the names of the tools for each choice that allows several."""
    lengths = set(choices.values())
    groups = [("Read-only tools", question.read_only_tools)] if "read-only" in lengths else []
    groups += [("Tools", question.tools)] if "server" in lengths else []
    return [f"{title} of {question.act.server!r}: {_names([tool.name for tool in tools])}" for title, tools in groups]


def _session_line(question: ApprovalRequest, choices: dict[str, RememberScope | None]) -> list[str]:
    """Return what an answer for the session covers, where that is more than the client would think."""
    if question.session_covers is None or not set(_PASSING) & set(choices.values()):
        return []
    return [f'"For this session" covers {question.session_covers}, until the gateway stops.']


def _names(names: list[str]) -> str:
    shown = ", ".join(_line(name) for name in sorted(names)[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


def _line(text: str) -> str:
    """Return a text of a server or client on one line, with invisible characters escaped."""
    return escape_invisible(" ".join(text.split()))


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text)} characters in all)"


def _shows_everything(question: ApprovalRequest) -> bool:
    """Return True if the form shows everything; only then may consent last longer than this call."""
    shown = [question.arguments]
    if question.warnings or question.changed or question.act.flagged or question.act.changed:
        shown.append(question.definition)
    return all(len(msgspec.json.encode(each)) <= _LONGEST for each in shown)
