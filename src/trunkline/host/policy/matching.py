"""Rules compiled to functions: what a rule is about (kind, server, name), and the conditions that an act must meet.

A condition is true, false or unknown: arguments are unknown while a list is built, and so is the time if none is
passed. Deciding, listing and explaining evaluate the same conditions; they differ only in what follows from *unknown*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from trunkline.host.policy.acts import Act, ActKind, Annotations, Decision
from trunkline.host.policy.addresses import uri_matcher
from trunkline.host.policy.defaults import CHANGED, FLAGGED, NO_HINTS, TAINTED, effective
from trunkline.host.policy.globs import any_glob
from trunkline.host.policy.paths import Paths
from trunkline.host.policy.predicates import Test, compile_predicate
from trunkline.host.policy.rules import Rule

__all__ = ["Compiled", "Condition", "compile_rule"]


class Condition(NamedTuple):
    """A condition of a rule, with a text for people."""

    text: str
    test: Test


class Compiled(NamedTuple):
    """A compiled rule."""

    rule: Rule
    decision: Decision
    #: The kinds, servers and names that it is about.
    of_kind: frozenset[ActKind]
    of_server: Callable[[str], object]
    of_name: Callable[[ActKind, str], object]
    conditions: tuple[Condition, ...]
    #: All conditions combined.
    state: Test
    #: Whether a condition reads the hints of a tool.
    reads_hints: bool
    #: The decision of an allow rule on a writing tool in a tainted session; None if it allows that too.
    when_tainted: Decision | None = None
    #: The decisions of an allow rule on a definition that the scan flagged, and on one that changed.
    when_flagged: Decision | None = None
    when_changed: Decision | None = None


def compile_rule(rule: Rule, paths: Paths) -> Compiled:
    """Compile a rule.

    Raises:
        ValueError: something in it is invalid; the message says what to write.
    """
    conditions = tuple(_conditions(rule, paths))
    return Compiled(
        rule,
        Decision(rule.effect, rule.name, _reason(rule), rule.message if rule.effect == "deny" else None),
        frozenset(rule.kinds),
        any_glob(rule.servers or ("*",)),
        _name_matcher(rule),
        conditions,
        _all_of(tuple(condition.test for condition in conditions)),
        rule.annotations != NO_HINTS,
        *_held_back(rule),
    )


def _held_back(rule: Rule) -> tuple[Decision | None, Decision | None, Decision | None]:
    """Return the decisions of an allow rule where a person has to look first: tainted, flagged, changed."""
    if rule.effect != "allow":
        return None, None, None
    came = f"rule {rule} allows it, but {TAINTED}; tainted = true in the rule would allow it even then"
    tainted = Decision("ask", "default: writing tool, tainted session", came, cause="taint")
    flagged, changed = (
        replace(each, reason=f"rule {rule} allows it, but {each.reason}") for each in (FLAGGED, CHANGED)
    )
    return None if rule.tainted is True else tainted, flagged, changed


def _all_of(tests: tuple[Test, ...]) -> Test:
    """Combine tests: False if one is, else unknown if one is unknown."""
    if len(tests) == 1:
        return tests[0]

    def test(act: Act, hints: Annotations, now: float | None) -> bool | None:
        state: bool | None = True
        for each in tests:
            outcome = each(act, hints, now)
            if outcome is False:
                return False
            if outcome is None:
                state = None
        return state

    return test


def _reason(rule: Rule) -> str:
    said = {"allow": "allows", "ask": "requires approval", "deny": "denies"}[rule.effect]
    return f"rule {rule} {said}"


def _name_matcher(rule: Rule) -> Callable[[ActKind, str], object]:
    fits = any_glob(rule.names or ("*",))
    if not rule.names or "resource" not in rule.kinds:
        return lambda kind, name: fits(name)
    fits_uri = uri_matcher(rule.names, opens=rule.effect == "allow")
    return lambda kind, name: fits_uri(name)


# --- conditions ------------------------------------------------------------------------------------------------------


def _conditions(rule: Rule, paths: Paths) -> Iterator[Condition]:
    """Yield the conditions of a rule, the cheapest first."""
    if rule.trusted is not None:
        yield Condition(f"trusted is {_word(rule.trusted)}", _is_trusted(rule.trusted))
    if rule.allows_taint:
        yield Condition("also in a tainted session", lambda act, hints, now: True)
    elif rule.tainted is not None:
        yield Condition(f"tainted is {_word(rule.tainted)}", _is_tainted(rule.tainted))
    if rule.callers:
        yield Condition(f"caller is {_listed(rule.callers)}", _caller_in(frozenset(rule.callers)))
    if rule.principals:
        yield Condition(f"principal is {_listed(rule.principals)}", _principal_fits(rule.principals))
    if rule.profiles:
        yield Condition(f"profile is {_listed(rule.profiles)}", _profile_fits(rule.profiles))
    if rule.annotations != NO_HINTS:
        yield Condition(_say_hints(rule.annotations), _hints_fit(rule.annotations))
    if rule.expires is not None:
        yield Condition("not expired", _not_expired(rule.expires))
    for predicate in rule.when:
        holds = compile_predicate(predicate, opens=rule.effect == "allow", paths=paths)
        yield Condition(str(predicate), holds)


def _word(value: bool) -> str:
    return "true" if value else "false"


def _listed(values: tuple[str, ...]) -> str:
    return " or ".join(map(repr, values))


def _is_trusted(wanted: bool) -> Test:
    return lambda act, hints, now: act.trusted is wanted


def _is_tainted(wanted: bool) -> Test:
    return lambda act, hints, now: act.tainted is wanted


def _caller_in(wanted: frozenset[str]) -> Test:
    return lambda act, hints, now: act.caller in wanted


def _principal_fits(patterns: tuple[str, ...]) -> Test:
    fits = any_glob(patterns)
    return lambda act, hints, now: act.principal is not None and bool(fits(act.principal))


def _profile_fits(patterns: tuple[str, ...]) -> Test:
    fits = any_glob(patterns)
    return lambda act, hints, now: act.profile is not None and bool(fits(act.profile))


def _wanted(hints: Annotations) -> tuple[tuple[str, bool], ...]:
    said = ((name, getattr(hints, name)) for name in hints.__struct_fields__)
    return tuple((name, value) for name, value in said if value is not None)


def _say_hints(hints: Annotations) -> str:
    return " and ".join(f"{name} is {_word(value)}" for name, value in _wanted(hints))


def _hints_fit(wanted: Annotations) -> Test:
    pairs = _wanted(wanted)

    def test(act: Act, hints: Annotations, now: float | None) -> bool:
        said = effective(hints)
        return all(getattr(said, name) is value for name, value in pairs)

    return test


def _not_expired(expires: float) -> Test:
    return lambda act, hints, now: None if now is None else now < expires
