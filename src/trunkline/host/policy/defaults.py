"""The default decisions for acts that no rule decides: a table over the hints of a tool, read from top to bottom.

Where a server gives no hints about a tool, the specification's defaults apply (it may write, destroy and reach out),
and they are the worst case. So leaving out a server's hints means assuming the worst of its tools.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from trunkline.host.policy.acts import Act, ActKind, Annotations, Cause, Decision, Effect

__all__ = [
    "CHANGED",
    "DEFAULTS",
    "FLAGGED",
    "NO_HINTS",
    "TAINTED",
    "Default",
    "default_decision",
    "effective",
    "held_back",
]

NO_HINTS = Annotations()


class Default(Struct, frozen=True, kw_only=True):
    """One row of the table; None matches both."""

    kinds: tuple[ActKind, ...]
    trusted: bool | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None
    tainted: bool | None = None
    decision: Decision


def _says(effect: Effect, name: str, reason: str, cause: Cause = "default") -> Decision:
    return Decision(effect, f"default: {name}", reason, cause=cause)


#: Why a session in which untrusted text may influence the model needs more approval.
TAINTED = "untrusted text came into this session before"
_TAINTED = f"{TAINTED}, and no rule allows it"
#: The decision on a definition that the scan flagged, even if a rule allows it.
FLAGGED = _says(
    "ask", "flagged definition", "the scan found something in its definition; trunkline pins diff shows what", "flagged"
)
#: The same for a definition that differs from the accepted one.
CHANGED = _says(
    "ask",
    "changed definition",
    "its definition differs from the one that was accepted; trunkline pins diff shows how",
    "changed",
)

#: The first row that matches decides; the last two match everything that is left.
DEFAULTS: tuple[Default, ...] = (
    Default(
        kinds=("tool",),
        trusted=False,
        decision=_says("ask", "untrusted server", "the server is not trusted, and no rule allows it"),
    ),
    Default(
        kinds=("tool",),
        destructive=True,
        decision=_says("ask", "destructive tool", "the tool may destroy something, and no rule allows it"),
    ),
    Default(
        kinds=("tool",),
        read_only=False,
        decision=_says("ask", "writing tool", "the tool may change something, and no rule allows it"),
    ),
    Default(
        kinds=("tool",),
        open_world=True,
        tainted=True,
        decision=_says("ask", "open tool, tainted session", _TAINTED, "taint"),
    ),
    Default(
        kinds=("tool",),
        decision=_says("allow", "reading tool", "the tool is read-only by the hint of a trusted server"),
    ),
    Default(
        kinds=("resource", "prompt"),
        decision=_says("allow", "resources and prompts", "the user of the host picks them"),
    ),
    Default(
        kinds=("sampling", "elicitation", "roots"),
        decision=_says("ask", "questions of servers", "a request of a server is reviewed unless a rule decides it"),
    ),
)


def effective(hints: Annotations) -> Annotations:
    """Fill in missing hints with the specification's defaults; a read-only tool is not destructive by default."""
    read_only = hints.read_only is True
    return Annotations(
        read_only=read_only,
        destructive=not read_only if hints.destructive is None else hints.destructive,
        idempotent=hints.idempotent is True,
        open_world=hints.open_world is not False,
    )


def default_decision(act: Act, hints: Annotations) -> Decision:
    """Return the decision on an act that no rule decides, based on these hints."""
    return held_back(act) or _of(act.kind, act.trusted, act.tainted, hints)


def held_back(act: Act) -> Decision | None:
    """Return the decision on a definition that is flagged or changed; None if it is neither."""
    if act.flagged:
        return FLAGGED
    return CHANGED if act.changed else None


@lru_cache(maxsize=2048)
def _of(kind: ActKind, trusted: bool, tainted: bool, hints: Annotations) -> Decision:
    said = effective(hints)
    return next(
        row.decision
        for row in DEFAULTS
        if kind in row.kinds
        and row.trusted in (None, trusted)
        and row.read_only in (None, said.read_only)
        and row.destructive in (None, said.destructive)
        and row.open_world in (None, said.open_world)
        and row.tainted in (None, tainted)
    )
