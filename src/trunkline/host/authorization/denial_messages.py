"""The messages of denials: the tool, the reason in words, and the exact command or rule that would allow the call."""

from __future__ import annotations

import re
import shlex

import msgspec
from msgspec import Struct

from trunkline.host.authorization.grants import allow_command
from trunkline.host.authorization.policy.decisions import Act, Decision
from trunkline.host.authorization.policy.loader import TARGETS

__all__ = [
    "ALLOW_IT",
    "CLIENT_CANNOT_ELICIT",
    "MODE_NEVER_ASKS",
    "NO_CONSENT_OPTION",
    "NO_PROMPTER",
    "NoPromptReason",
    "allow_rule_advice",
    "called_by_proxy_reason",
    "denied_message",
    "needs_approval_message",
    "rule_to_add",
]

#: Separates the reason from the step that allows the call, which is for a person and not for a model.
ALLOW_IT = " Allow it: "

_SPECIAL = re.compile(r"[*?\[]")
_POLICY_FILE = "(the file given by {option}, else policy.toml in your configuration folder)"


class NoPromptReason(Struct, frozen=True):
    """Why no person can be asked about a call, and how to make the call without adding a rule."""

    why: str
    instead: str | None = None
    #: A Python program makes the call, so advice names the options of ``Host.open`` and not those of commands.
    in_program: bool = False


NO_PROMPTER = NoPromptReason("there is no terminal or client to ask")
NO_CONSENT_OPTION = NoPromptReason(NO_PROMPTER.why, "pass consent= to Host.open, which asks a person", in_program=True)
CLIENT_CANNOT_ELICIT = NoPromptReason(
    "the client connected to this gateway cannot be asked (it did not declare elicitation)",
    'serve with --approval client (in code: approval="client") if that client asks its own user before it calls',
)
MODE_NEVER_ASKS = NoPromptReason("this gateway never asks (approval mode deny)")


def called_by_proxy_reason(proxy: str, wire: str) -> NoPromptReason:
    """Return why the client's consent does not cover a call through the search tools, and what to call instead."""
    return NoPromptReason(
        f"the client's user saw only the name {proxy}",
        f"call the tool by its own name, {wire}",
    )


def needs_approval_message(
    act: Act,
    decision: Decision,
    *,
    no_prompt_reason: NoPromptReason = NO_PROMPTER,
    tainted_by: str | None = None,
    problem: str | None = None,
    by_command: bool = True,
) -> str:
    """Return the message for an act that needs approval where no person can be asked."""
    text = f"{_id(act)} needs approval ({decision.reason}), and {no_prompt_reason.why}."
    if decision.cause == "taint" and tainted_by:
        text += f" The untrusted text came from {tainted_by}."
    if problem is not None:
        text += f" {problem.rstrip('.')}."
    command = allow_command(act, by_command=by_command)
    if act.flagged and act.kind == "skill":
        return f"{text}{ALLOW_IT}load it where you can be asked"
    if act.flagged or act.changed:
        accepted = msgspec.structs.replace(act, flagged=False, changed=False)
        grant = allow_command(accepted, by_command=by_command) if no_prompt_reason == MODE_NEVER_ASKS else None
        return f"{text}{ALLOW_IT}{command}{'' if grant is None else f'; then, unless a rule allows it: {grant}'}"
    if decision.cause == "rule":
        # Within a tier ask beats allow, so another rule would change nothing, and neither would consent.
        change = 'change the effect of that rule to "allow", or make the call where you can be asked'
        return f"{text}{ALLOW_IT}{change if command is None else f'{command}; or {change}'}"
    other_way = "" if no_prompt_reason.instead is None else f"{no_prompt_reason.instead}; or "
    return f"{text}{ALLOW_IT}{other_way}{command or allow_rule_advice(act, in_program=no_prompt_reason.in_program)}"


def denied_message(act: Act, decision: Decision) -> str:
    """Return the message for an act that a rule denies, for the user who wrote the rule."""
    why = f"{_id(act)} is denied: {decision.reason}."
    if decision.cause != "rule":
        return why
    if decision.message is not None:
        why += f" Its message: {decision.message}"
    look = f"trunkline policy why {shlex.quote(_id(act))} explains it (give it the same --policy, if there was one)"
    return f"{why}{ALLOW_IT}change or remove that rule; {look}"


def allow_rule_advice(act: Act, *, in_program: bool = False) -> str:
    """Return the advice for the user that allows an act without an approval: the rule to add, and the file."""
    file = _POLICY_FILE.format(option="policy=" if in_program else "--policy")
    return f"add this to the policy {file}:\n{rule_to_add(act)}"


def rule_to_add(act: Act) -> str:
    """Return the rule that would allow an act without asking, in TOML."""
    lines = ["[[rule]]", 'effect = "allow"', f"server = {_toml(act.server)}"]
    named = [member for member, kind in TARGETS.items() if kind == act.kind]
    if named:
        # The policy reads names as globs; this one must match itself only.
        lines.append(f"{named[0]} = {_toml(_SPECIAL.sub(lambda found: f'[{found.group()}]', act.name))}")
    else:
        lines.append(f'kind = "{act.kind}"')
    if act.tainted and act.kind == "tool":
        lines.append("tainted = true")
    return "\n".join(lines)


def _toml(text: str) -> str:
    # TOML accepts JSON's escapes; DEL is the one character that must be escaped in TOML and not in JSON.
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def _id(act: Act) -> str:
    return f"{act.server}/{act.name}"
