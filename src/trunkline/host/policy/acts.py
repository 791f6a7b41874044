"""What policy judges, and what it says: an act that somebody wants done, and the decision on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

__all__ = ["Act", "ActKind", "Annotations", "Cause", "Decision", "Effect"]

ActKind: TypeAlias = Literal["tool", "resource", "prompt", "sampling", "elicitation", "roots"]
Effect: TypeAlias = Literal["allow", "ask", "deny"]
#: What a decision comes from: a rule that was written, a row of the default table, the taint of the session, or a
#: definition that the scan flagged or that changed since it was accepted.
Cause: TypeAlias = Literal["rule", "default", "taint", "flagged", "changed"]


class Annotations(Struct, frozen=True):
    """What a tool's server, or the user in its place, says of the tool's effects; None where nothing is said."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


class Act(Struct, frozen=True, kw_only=True):
    """Something that somebody wants done at a server."""

    kind: ActKind
    server: str
    #: The tool's or prompt's own name, the resource's own URI, or the question's method.
    name: str
    #: The arguments as they will be sent; None while only the name is judged, as for a list.
    arguments: Mapping[str, Any] | None = None
    annotations: Annotations = Annotations()
    #: The digest of the definition that is meant.
    pin: str | None = None
    #: The user trusts what this server says of its tools.
    trusted: bool = False
    #: Something from an untrusted server came into this session before.
    tainted: bool = False
    #: The scan found something in the definition that a person should see before it is used.
    flagged: bool = False
    #: The definition differs from the one that was accepted, and no one has accepted the change yet.
    changed: bool = False
    #: Who asks: ``model``, ``user``, ``gateway`` or ``server``.
    caller: str = "user"
    #: The authenticated subject, if there is one.
    principal: str | None = None
    session: str | None = None
    profile: str | None = None


class Decision(Struct, frozen=True):
    """What the policy says of an act, and which rule said it."""

    effect: Effect
    #: The rule's name: the one it was given, ``file:line``, or ``default: …``.
    rule: str
    reason: str
    #: What whoever is denied may read; None says nothing, not even that there is a rule.
    message: str | None = None
    #: What it comes from. Consent that was given before the call covers ``default`` and ``taint``, and nothing else.
    cause: Cause = "rule"

    @property
    def explained(self) -> str:
        """The reason, with the rule unless the reason names it already."""
        return self.reason if self.rule in self.reason else f"{self.reason} ({self.rule})"
