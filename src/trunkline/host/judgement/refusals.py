"""What a refusal says: the tool, the reason in words, and the exact command or rule that would allow it."""

from __future__ import annotations

import re
import shlex

import msgspec
from msgspec import Struct

from trunkline.host.judgement.grants import allow_command
from trunkline.host.policy.acts import Act, Decision
from trunkline.host.policy.members import TARGETS

__all__ = [
    "ALLOW_IT",
    "CLIENT_CANNOT",
    "NEVER_ASKS",
    "NO_ONE",
    "Unasked",
    "advice",
    "called_by_proxy",
    "denied",
    "needs_approval",
    "rule_to_add",
]

#: What follows in a refusal is for a person, and not for a model: how to allow it.
ALLOW_IT = " Allow it: "

_SPECIAL = re.compile(r"[*?\[]")
_WHICH = "(the file given by --policy, else policy.toml in your configuration folder)"


class Unasked(Struct, frozen=True):
    """Why no one is asked about a call, and another way to make it than a rule."""

    why: str
    instead: str | None = None


NO_ONE = Unasked("there is no terminal or client to ask")
CLIENT_CANNOT = Unasked(
    "the client in front of this gateway cannot be asked (it did not declare elicitation)",
    "serve with --approval client if that client asks its own user before it calls",
)
NEVER_ASKS = Unasked("this gateway never asks (approval mode deny)")


def called_by_proxy(proxy: str, wire: str) -> Unasked:
    """Return why a call through the search tools is not covered by the client's consent, and what to call instead."""
    return Unasked(
        f"it was called through {proxy}, so that the client's user did not see which tool is meant",
        f"call the tool by its own name, {wire}",
    )


def needs_approval(
    act: Act,
    decision: Decision,
    *,
    unasked: Unasked = NO_ONE,
    tainted_by: str | None = None,
    problem: str | None = None,
    by_command: bool = True,
) -> str:
    """Return the refusal of an act that has to be asked about where no one can be asked."""
    text = f"{_id(act)} needs approval ({decision.reason}), and {unasked.why}."
    if decision.cause == "taint" and tainted_by:
        text += f" The untrusted text came from {tainted_by}."
    if problem is not None:
        text += f" {problem.rstrip('.')}."
    command = allow_command(act, by_command=by_command)
    if act.flagged or act.changed:
        accepted = msgspec.structs.replace(act, flagged=False, changed=False)
        grant = allow_command(accepted, by_command=by_command) if unasked == NEVER_ASKS else None
        return f"{text}{ALLOW_IT}{command}{'' if grant is None else f'; then, unless a rule allows it: {grant}'}"
    if decision.cause == "rule":
        # Asking beats allowing within a tier, so another rule would change nothing; nor does consent from elsewhere.
        change = 'change the effect of that rule to "allow", or make the call where you can be asked'
        return f"{text}{ALLOW_IT}{change if command is None else f'{command}; or {change}'}"
    other_way = "" if unasked.instead is None else f"{unasked.instead}; or "
    return f"{text}{ALLOW_IT}{other_way}{command or advice(act)}"


def denied(act: Act, decision: Decision) -> str:
    """Return the refusal of an act that a rule denies, for the user whose rule it is."""
    why = f"{_id(act)} is denied: {decision.reason}."
    if decision.cause != "rule":
        return why
    if decision.message is not None:
        why += f" Its message: {decision.message}"
    look = f"trunkline policy why {shlex.quote(_id(act))} explains it (give it the same --policy, if there was one)"
    return f"{why}{ALLOW_IT}change or remove that rule; {look}"


def advice(act: Act) -> str:
    """Return how to allow an act without asking."""
    return f"add this to the policy {_WHICH}:\n{rule_to_add(act)}"


def rule_to_add(act: Act) -> str:
    """Return the rule that would allow an act without asking, in TOML."""
    lines = ["[[rule]]", 'effect = "allow"', f"server = {_toml(act.server)}"]
    named = [member for member, kind in TARGETS.items() if kind == act.kind]
    if named:
        # A name is a glob to the policy; this one means itself.
        lines.append(f"{named[0]} = {_toml(_SPECIAL.sub(lambda found: f'[{found.group()}]', act.name))}")
    else:
        lines.append(f'kind = "{act.kind}"')
    if act.tainted and act.kind == "tool":
        lines.append("tainted = true")
    return "\n".join(lines)


def _toml(text: str) -> str:
    # JSON's escapes are TOML's too; DEL is the one character that only TOML wants escaped.
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def _id(act: Act) -> str:
    return f"{act.server}/{act.name}"
