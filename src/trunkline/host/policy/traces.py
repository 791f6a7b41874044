"""Traces of decisions: every rule in evaluation order, with the conditions that held, failed or are unknown.

It evaluates the same conditions as the decision, and does not affect it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from trunkline.host.policy.acts import Act, Annotations, Decision, Effect
from trunkline.host.policy.matching import Compiled

__all__ = ["Step", "StepOutcome", "Trace", "tell_steps"]

#: ``decided``; ``matched``, but another rule decided; ``possible`` if the arguments or the time are unknown; ``no``.
StepOutcome: TypeAlias = Literal["decided", "matched", "possible", "no"]


class Step(Struct, frozen=True):
    """One rule in a trace."""

    rule: str
    where: str
    effect: Effect
    tier: int
    outcome: StepOutcome
    why: str
    #: Whether it is about this kind, server and name at all.
    relevant: bool


class Trace(Struct, frozen=True):
    """A decision, every rule in evaluation order, and notes on what else mattered."""

    decision: Decision
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()


def tell_steps(
    rules: Iterable[Compiled], act: Act, hints: Annotations, *, now: float | None, decision: Decision
) -> tuple[Step, ...]:
    """Return for each rule whether it held for an act, and why."""
    return tuple(_step(each, act, hints, now, decision) for each in rules)


def _step(compiled: Compiled, act: Act, hints: Annotations, now: float | None, decision: Decision) -> Step:
    rule = compiled.rule
    elsewhere = _elsewhere(compiled, act)
    told: tuple[StepOutcome, str] = ("no", elsewhere)
    outcome, why = told if elsewhere else _conditions(compiled, act, hints, now)
    decided = compiled.decision is decision
    return Step(rule.name, rule.where, rule.effect, rule.tier, "decided" if decided else outcome, why, not elsewhere)


def _elsewhere(compiled: Compiled, act: Act) -> str:
    """Return what a rule is about if it does not match the act; empty if it does."""
    rule = compiled.rule
    if act.kind not in compiled.of_kind:
        return f"it is about {' and '.join(rule.kinds)}, not {act.kind}"
    if not compiled.of_server(act.server):
        return f"its server is {' or '.join(rule.servers)}"
    return "" if compiled.of_name(act.kind, act.name) else f"it is about {' or '.join(rule.names)}"


def _conditions(compiled: Compiled, act: Act, hints: Annotations, now: float | None) -> tuple[StepOutcome, str]:
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
