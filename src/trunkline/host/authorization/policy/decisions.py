"""What the policy judges and what it returns.

An act at a server, the decision on it, and the hints about a tool. Where a server gives no hints, the specification's
defaults apply (it may write, destroy and reach out), and they are the worst case: leaving out a server's hints means
assuming the worst of its tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

__all__ = [
    "CHANGED",
    "FLAGGED",
    "NO_HINTS",
    "TAINTED",
    "Act",
    "ActKind",
    "Cause",
    "Decision",
    "Effect",
    "ToolHints",
    "effective_hints",
    "standard_decision",
]

ActKind: TypeAlias = Literal["tool", "resource", "prompt", "skill", "sampling", "elicitation", "roots"]
Effect: TypeAlias = Literal["allow", "ask", "deny"]
#: The cause of a decision: a rule of the user, a row of the default table, the taint of the session, or a definition
#: that the scan flagged or that changed since it was accepted.
Cause: TypeAlias = Literal["rule", "default", "taint", "flagged", "changed"]


class ToolHints(Struct, frozen=True):
    """Hints about a tool's effects, from its server or overridden by the user; None where there is none."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


class Act(Struct, frozen=True, kw_only=True):
    """An act that a caller requests: a tool call, a read, a prompt, loading a skill, or a request of the server."""

    kind: ActKind
    server: str
    #: The server's own name of the tool or prompt, the URI of the resource or of the skill's ``SKILL.md``, or the
    #: method of the server's request.
    name: str
    #: The arguments as they will be sent; None if only the name is judged, as for a list.
    arguments: Mapping[str, Any] | None = None
    annotations: ToolHints = ToolHints()
    #: The pin (digest) of the definition; of a skill, that of all its files.
    pin: str | None = None
    #: The user trusts this server's hints about its tools.
    trusted: bool = False
    #: Untrusted text came into this session before.
    tainted: bool = False
    #: The scan found something in the definition that a person should see before its first use.
    flagged: bool = False
    #: The definition differs from the accepted one, and the change has not been accepted yet.
    changed: bool = False
    #: The name of its pin, if that is not the name of the act: an extension, or a definition that it listed.
    pinned_as: str | None = None
    #: The caller: ``model``, ``user``, ``gateway``, ``server`` or ``app`` (a page of a server).
    caller: str = "user"
    #: The authenticated subject, if there is one.
    principal: str | None = None
    session: str | None = None
    profile: str | None = None


class Decision(Struct, frozen=True):
    """The policy's decision on an act, and the rule that made it."""

    effect: Effect
    #: The rule's name: its own, ``file:line``, or ``default: …``.
    rule: str
    reason: str
    #: The message for a denied caller; None reveals nothing, not even that there is a rule.
    message: str | None = None
    #: Consent given before the call covers ``default`` and ``taint``, and nothing else.
    cause: Cause = "rule"


NO_HINTS = ToolHints()


def standard_decision(effect: Effect, name: str, reason: str, cause: Cause = "default") -> Decision:
    """Return a decision that no rule of the user made."""
    return Decision(effect, f"default: {name}", reason, cause=cause)


#: Why a session in which untrusted text may influence the model needs more approval.
TAINTED = "untrusted text came into this session before"
#: The decision on a definition that the scan flagged, even if a rule allows it.
FLAGGED = standard_decision(
    "ask", "flagged definition", "the scan found something in its definition; trunkline pins diff shows what", "flagged"
)
#: The same for a definition that differs from the accepted one.
CHANGED = standard_decision(
    "ask",
    "changed definition",
    "its definition differs from the one that was accepted; trunkline pins diff shows how",
    "changed",
)


def effective_hints(hints: ToolHints) -> ToolHints:
    """Fill in missing hints with the specification's defaults; a read-only tool is not destructive by default."""
    read_only = hints.read_only is True
    return ToolHints(
        read_only=read_only,
        destructive=not read_only if hints.destructive is None else hints.destructive,
        idempotent=hints.idempotent is True,
        open_world=hints.open_world is not False,
    )
