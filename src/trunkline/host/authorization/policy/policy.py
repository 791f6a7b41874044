"""The policy: rules evaluated in one order, and the first that holds decides.

The order is tiers from high to low, and within a tier deny, ask, allow, each as written: so the highest tier with a
rule that holds decides alone, and in it deny beats ask beats allow. If none holds, the default table decides, read
from top to bottom. What is unknown (arguments while a list is built, the time) counts against the act when it is
decided, and for it in is_visible, which is False only if no arguments could be allowed or asked about. In a tainted
session a rule that allows a writing tool counts only if it says tainted = true; otherwise the call needs approval. A
definition that the scan flagged, or that differs from the accepted one, is never allowed without asking. Of two
decisions that are equally strict, one made by a rule wins, then one about the definition: consent given before the
call may cover what a row of the default table asks (authorization/approval.py), and never those. Hints of an untrusted
server may only make a decision stricter: its acts are judged without the hints and, if a rule reads any, also with
them, and the stricter decision holds. LivePolicy is a policy that can be replaced while it is held; explain returns a
Trace of all rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from trunkline.host.authorization.policy.decisions import (
    CHANGED,
    FLAGGED,
    NO_HINTS,
    TAINTED,
    Act,
    ActKind,
    Cause,
    Decision,
    Effect,
    ToolHints,
    effective_hints,
    standard_decision,
)
from trunkline.host.authorization.policy.locations import PathContext, PathReader
from trunkline.host.authorization.policy.rules import CompiledRule, RedactionRule, Rule, compile_rule

__all__ = [
    "DEFAULT_POLICY",
    "DEFAULT_RULES",
    "DefaultRule",
    "LivePolicy",
    "Policy",
    "Trace",
    "TraceOutcome",
    "TraceStep",
    "trace_steps",
]

#: ``decided``; ``matched``, but another rule decided; ``possible`` if the arguments or the time are unknown; ``no``.
TraceOutcome: TypeAlias = Literal["decided", "matched", "possible", "no"]


class TraceStep(Struct, frozen=True):
    """One rule in a trace."""

    rule: str
    where: str
    effect: Effect
    tier: int
    outcome: TraceOutcome
    why: str
    #: Whether it is about this kind, server and name at all.
    relevant: bool


class Trace(Struct, frozen=True):
    """A decision, every rule in evaluation order, and notes on what else mattered."""

    decision: Decision
    steps: tuple[TraceStep, ...]
    notes: tuple[str, ...] = ()


def trace_steps(
    rules: Iterable[CompiledRule], act: Act, hints: ToolHints, *, now: float | None, decision: Decision
) -> tuple[TraceStep, ...]:
    """Return for each rule whether it held for an act, and why."""
    return tuple(_step(each, act, hints, now, decision) for each in rules)


def _step(compiled: CompiledRule, act: Act, hints: ToolHints, now: float | None, decision: Decision) -> TraceStep:
    rule = compiled.rule
    elsewhere = _mismatch(compiled, act)
    told: tuple[TraceOutcome, str] = ("no", elsewhere)
    outcome, why = told if elsewhere else _conditions_outcome(compiled, act, hints, now)
    decided = compiled.decision is decision
    return TraceStep(
        rule.name, rule.where, rule.effect, rule.tier, "decided" if decided else outcome, why, not elsewhere
    )


def _mismatch(compiled: CompiledRule, act: Act) -> str:
    """Return what a rule is about if it does not match the act; empty if it does."""
    rule = compiled.rule
    if act.kind not in compiled.kinds:
        return f"it is about {' and '.join(rule.kinds)}, not {act.kind}"
    if not compiled.matches_server(act.server):
        return f"its server is {' or '.join(rule.servers)}"
    return "" if compiled.matches_name(act.kind, act.name) else f"it is about {' or '.join(rule.names)}"


def _conditions_outcome(
    compiled: CompiledRule, act: Act, hints: ToolHints, now: float | None
) -> tuple[TraceOutcome, str]:
    try:
        states = [(condition.text, condition.test(act, hints, now)) for condition in compiled.conditions]
    except Exception as error:  # noqa: BLE001 - a failing rule has denied already; the others are still traced
        return "possible", f"it cannot be evaluated: {type(error).__name__}: {error}"[:200]
    failed = [text for text, state in states if state is False]
    unknown = [text for text, state in states if state is None]
    if failed:
        return "no", f"not so: {'; '.join(failed)}"
    if unknown:
        return "possible", f"not known: {'; '.join(unknown)}"
    return "matched", "; ".join(text for text, _ in states) or "it has no conditions"


K = TypeVar("K")
V = TypeVar("V")

_STRICTNESS = ("allow", "ask", "deny")
# From what consent given before the call covers to what it never covers.
_CAUSES: tuple[Cause, ...] = ("default", "taint", "changed", "flagged", "rule")
# The cache by name is bounded, since there may be any number of URIs; longer names are not cached.
_MOST_NAMES = 4096
_LONGEST_NAME = 512  # Longer names are judged, but not cached, so that a server cannot fill the memory.


class _RulesForName(NamedTuple):
    """The rules about one name, in evaluation order."""

    rules: tuple[CompiledRule, ...]
    read_hints: bool


class Policy:
    """Compiled rules; a policy never changes."""

    __slots__ = ("_names", "_ordered", "_paths", "_servers", "path_context", "redactions", "rules")

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        *,
        redactions: Iterable[RedactionRule] = (),
        path_context: PathContext | None = None,
    ) -> None:
        """Compile the rules, in the order in which they are written.

        Raises:
            ValueError: a rule is invalid; the message says what to write.
        """
        #: The rules as written.
        self.rules: tuple[Rule, ...] = tuple(rules)
        #: The arguments that the audit trail must not show.
        self.redactions: tuple[RedactionRule, ...] = tuple(redactions)
        self.path_context: PathContext = PathContext() if path_context is None else path_context
        self._paths = PathReader(self.path_context)
        ready = (compile_rule(rule, self._paths) for rule in self.rules)
        self._ordered = tuple(sorted(ready, key=_rank))
        # Caches: the rules about a server, and those about a name; they never change.
        self._servers: dict[tuple[ActKind, str], tuple[CompiledRule, ...]] = {}
        self._names: dict[tuple[ActKind, str, str], _RulesForName] = {}

    def decide(self, act: Act, now: float | None = None) -> Decision:
        """Decide on an act; if the rules cannot be evaluated, it is denied.

        ``now`` is in seconds since the epoch; without it, rules that expire count only if they deny or ask.
        """
        try:
            return self._judge(act, now, _evaluate_strictly)
        except Exception as error:  # noqa: BLE001 - a failure in here must never allow anything
            return _failure(error)

    def is_visible(self, act: Act, now: float | None = None) -> bool:
        """Return True if an act may be listed: some arguments could be allowed or asked about."""
        try:
            return self._judge(act, now, _evaluate_hopefully).effect != "deny"
        except Exception:  # noqa: BLE001 - (the same)
            return False

    def explain(self, act: Act, now: float | None = None) -> Trace:
        """Decide on an act, and return for every rule why it held or not."""
        decision = self.decide(act, now)
        hints, notes = self._hints_that_decided(act, now)
        return Trace(decision, trace_steps(self._ordered, act, hints, now=now, decision=decision), notes)

    def _judge(self, act: Act, now: float | None, way: _Evaluate) -> Decision:
        about = self._about(act.kind, act.server, act.name)
        if about.rules:
            self._paths.forget()
        hints = act.annotations if act.trusted else NO_HINTS
        decision = way(about.rules, act, hints, now)
        if act.trusted or not about.read_hints or act.annotations == NO_HINTS:
            return decision
        return _stricter(decision, way(about.rules, act, act.annotations, now))

    def _hints_that_decided(self, act: Act, now: float | None) -> tuple[ToolHints, tuple[str, ...]]:
        if act.trusted or act.annotations == NO_HINTS:
            return act.annotations, ()
        try:
            rules = self._about(act.kind, act.server, act.name).rules
            without = _evaluate_strictly(rules, act, NO_HINTS, now)
            raised = self._judge(act, now, _evaluate_strictly) is not without
        except Exception:  # noqa: BLE001 - (the same)
            raised = False
        if raised:
            return act.annotations, ("the server is not trusted: its hints made the decision stricter",)
        return NO_HINTS, ("the server is not trusted: its hints are ignored",)

    def _about(self, kind: ActKind, server: str, name: str) -> _RulesForName:
        """Return the rules about a name, in evaluation order."""
        key = (kind, server, name)
        found = self._names.get(key)
        if found is None:
            rules = tuple(each for each in self._of_server(kind, server) if each.matches_name(kind, name))
            found = _RulesForName(rules, any(each.reads_hints for each in rules))
            if len(name) <= _LONGEST_NAME:
                _cache(self._names, key, found)
        return found

    def _of_server(self, kind: ActKind, server: str) -> tuple[CompiledRule, ...]:
        found = self._servers.get((kind, server))
        if found is None:
            found = tuple(each for each in self._ordered if kind in each.kinds and each.matches_server(server))
            if len(server) <= _LONGEST_NAME:
                _cache(self._servers, (kind, server), found)
        return found


# --- the default table ------------------------------------------------------------------------------------------------

_TAINTED_REASON = f"{TAINTED}, and no rule allows it"


class DefaultRule(Struct, frozen=True, kw_only=True):
    """One row of the table; None matches both."""

    kinds: tuple[ActKind, ...]
    trusted: bool | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None
    tainted: bool | None = None
    decision: Decision


#: The first row that matches decides; the last two match everything that is left.
DEFAULT_RULES: tuple[DefaultRule, ...] = (
    DefaultRule(
        kinds=("tool",),
        trusted=False,
        decision=standard_decision("ask", "untrusted server", "the server is not trusted, and no rule allows it"),
    ),
    DefaultRule(
        kinds=("tool",),
        destructive=True,
        decision=standard_decision("ask", "destructive tool", "the tool may destroy something, and no rule allows it"),
    ),
    DefaultRule(
        kinds=("tool",),
        read_only=False,
        decision=standard_decision("ask", "writing tool", "the tool may change something, and no rule allows it"),
    ),
    DefaultRule(
        kinds=("tool",),
        open_world=True,
        tainted=True,
        decision=standard_decision("ask", "open tool, tainted session", _TAINTED_REASON, "taint"),
    ),
    DefaultRule(
        kinds=("tool",),
        decision=standard_decision("allow", "reading tool", "the tool is read-only by the hint of a trusted server"),
    ),
    DefaultRule(
        kinds=("resource", "prompt"),
        decision=standard_decision("allow", "resources and prompts", "the user of the host picks them"),
    ),
    DefaultRule(
        kinds=("skill",),
        trusted=False,
        decision=standard_decision("ask", "untrusted server", "the server is not trusted, and no rule allows it"),
    ),
    DefaultRule(
        kinds=("skill",),
        decision=standard_decision("allow", "skills of trusted servers", "the user trusts the server"),
    ),
    DefaultRule(
        kinds=("sampling", "elicitation", "roots"),
        decision=standard_decision(
            "ask", "questions of servers", "a request of a server is reviewed unless a rule decides it"
        ),
    ),
)


def _default_decision(act: Act, hints: ToolHints) -> Decision:
    """Return the decision on an act that no rule decides, based on these hints."""
    return _definition_decision(act) or _table_decision(act.kind, act.trusted, act.tainted, hints)


def _definition_decision(act: Act) -> Decision | None:
    """Return the decision on a definition that is flagged or changed; None if it is neither."""
    if act.flagged:
        return FLAGGED
    return CHANGED if act.changed else None


@lru_cache(maxsize=2048)
def _table_decision(kind: ActKind, trusted: bool, tainted: bool, hints: ToolHints) -> Decision:
    said = effective_hints(hints)
    return next(
        row.decision
        for row in DEFAULT_RULES
        if kind in row.kinds
        and row.trusted in (None, trusted)
        and row.read_only in (None, said.read_only)
        and row.destructive in (None, said.destructive)
        and row.open_world in (None, said.open_world)
        and row.tainted in (None, tainted)
    )


# --- evaluating rules in order ----------------------------------------------------------------------------------------

_Evaluate: TypeAlias = Callable[[tuple[CompiledRule, ...], Act, ToolHints, "float | None"], Decision]


def _evaluate_strictly(rules: tuple[CompiledRule, ...], act: Act, hints: ToolHints, now: float | None) -> Decision:
    """Evaluate the rules; what is unknown counts against the act."""
    least: Decision | None = None
    for compiled in rules:
        state = compiled.state(act, hints, now)
        if state is True or (state is None and compiled.rule.effect == "deny"):
            said = (
                _decision_of(compiled, act, hints) if act.tainted or act.flagged or act.changed else compiled.decision
            )
            return _stricter(said, least)
        if state is None and compiled.rule.effect == "ask" and least is None:
            # It may not hold, and then a later rule would decide: the stricter of the two applies.
            least = compiled.decision
    return _stricter(_default_decision(act, hints), least)


def _decision_of(compiled: CompiledRule, act: Act, hints: ToolHints) -> Decision:
    """Return the decision of a rule that holds; flagged, changed or tainted acts need approval even if it allows."""
    if act.flagged and compiled.when_flagged is not None:
        return compiled.when_flagged
    if act.changed and compiled.when_changed is not None:
        return compiled.when_changed
    held = compiled.when_tainted
    if held is None or not act.tainted or act.kind != "tool" or effective_hints(hints).read_only:
        return compiled.decision
    return held


def _evaluate_hopefully(rules: tuple[CompiledRule, ...], act: Act, hints: ToolHints, now: float | None) -> Decision:
    """Evaluate the rules; what is unknown counts for the act."""
    for compiled in rules:
        state = compiled.state(act, hints, now)
        if state is True or (state is None and compiled.rule.effect != "deny"):
            return compiled.decision
    return _default_decision(act, hints)


def _stricter(one: Decision, other: Decision | None) -> Decision:
    return one if other is None or _strictness(one) >= _strictness(other) else other


def _strictness(decision: Decision) -> tuple[int, int]:
    return _STRICTNESS.index(decision.effect), _CAUSES.index(decision.cause)


def _failure(error: Exception) -> Decision:
    why = f"{type(error).__name__}: {error}"[:200]
    return Decision("deny", "default: not evaluated", f"the policy cannot be evaluated: {why}", cause="default")


def _rank(compiled: CompiledRule) -> tuple[int, int, bool]:
    # A rule that also allows acts in a tainted session is more specific, and is evaluated before one that does not.
    return -compiled.rule.tier, -_STRICTNESS.index(compiled.rule.effect), not compiled.rule.allows_taint


def _cache(kept: dict[K, V], key: K, value: V) -> None:
    if len(kept) >= _MOST_NAMES:
        kept.clear()
    kept[key] = value


DEFAULT_POLICY = Policy()


class LivePolicy(Policy):
    """A policy with the rules of another one, which can be replaced."""

    __slots__ = ()

    def __init__(self, now: Policy) -> None:
        """Start with the rules of ``now``."""
        super().__init__()
        self.replace_with(now)

    def replace_with(self, other: Policy) -> bool:
        """Use the rules of another policy from now on; return True if they differ."""
        differs = _content(self) != _content(other)
        for name in Policy.__slots__:
            setattr(self, name, getattr(other, name))
        return differs


def _content(policy: Policy) -> tuple[object, ...]:
    return policy.rules, policy.redactions, policy.path_context
