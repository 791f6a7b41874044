"""What the policy judges and what it returns: an act at a server, and the decision on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

__all__ = ["Act", "ActKind", "Annotations", "Cause", "Decision", "Effect"]

ActKind: TypeAlias = Literal["tool", "resource", "prompt", "sampling", "elicitation", "roots"]
Effect: TypeAlias = Literal["allow", "ask", "deny"]
#: The cause of a decision: a rule of the user, a row of the default table, the taint of the session, or a definition
#: that the scan flagged or that changed since it was accepted.
Cause: TypeAlias = Literal["rule", "default", "taint", "flagged", "changed"]


class Annotations(Struct, frozen=True):
    """Hints about a tool's effects, from its server or overridden by the user; None where there is none."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


class Act(Struct, frozen=True, kw_only=True):
    """An act at a server that a caller asks for: a tool call, a read, a prompt, or a request of the server itself."""

    kind: ActKind
    server: str
    #: The server's own name of the tool or prompt, the URI of the resource, or the method of the server's request.
    name: str
    #: The arguments as they will be sent; None if only the name is judged, as for a list.
    arguments: Mapping[str, Any] | None = None
    annotations: Annotations = Annotations()
    #: The pin (digest) of the definition.
    pin: str | None = None
    #: The user trusts this server's hints about its tools.
    trusted: bool = False
    #: Untrusted text came into this session before.
    tainted: bool = False
    #: The scan found something in the definition that a person should see before its first use.
    flagged: bool = False
    #: The definition differs from the accepted one, and the change has not been accepted yet.
    changed: bool = False
    #: The caller: ``model``, ``user``, ``gateway`` or ``server``.
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

    @property
    def explained(self) -> str:
        """The reason, with the rule unless the reason names it already."""
        return self.reason if self.rule in self.reason else f"{self.reason} ({self.rule})"
