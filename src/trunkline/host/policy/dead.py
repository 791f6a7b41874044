"""Rules that can never decide, because another rule is evaluated before them and holds wherever they do.

Only what is certain is reported: a rule that covers another by its patterns and has no condition that the other lacks.
Conditions with the same meaning in different words are not recognised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType

from trunkline.host.policy.defaults import NO_HINTS
from trunkline.host.policy.globs import compile_glob, is_glob
from trunkline.host.policy.rules import Rule

__all__ = ["dead_rules"]

_STRICTNESS = ("allow", "ask", "deny")


def dead_rules(rules: Sequence[Rule]) -> Iterator[str]:
    """Yield a sentence about each rule that never decides, with its place and the rule that shadows it."""
    wide, named = _by_server(rules)
    for at, rule in enumerate(rules):
        for other_at, other in (*wide, *named.get(rule.servers[0] if rule.servers else "*", ())):
            if at != other_at and _comes_first(other, rule, earlier=other_at < at) and _covers(other, rule):
                yield f"{rule.where}: this rule never decides: {_why(other, rule)}"
                break


def _by_server(rules: Sequence[Rule]) -> tuple[list[tuple[int, Rule]], dict[str, list[tuple[int, Rule]]]]:
    """Split rules into those with a server pattern, and those with literal server names, by name."""
    wide: list[tuple[int, Rule]] = []
    named: dict[str, list[tuple[int, Rule]]] = {}
    for at, rule in enumerate(rules):
        if not rule.servers or any(map(is_glob, rule.servers)):
            wide.append((at, rule))
        else:
            for server in rule.servers:
                named.setdefault(server, []).append((at, rule))
    return wide, named


def _comes_first(one: Rule, other: Rule, *, earlier: bool) -> bool:
    strict, than = _STRICTNESS.index(one.effect), _STRICTNESS.index(other.effect)
    return (one.tier, strict, earlier) > (other.tier, than, False)


def _why(other: Rule, rule: Rule) -> str:
    if other.tier != rule.tier:
        return f"{other} has a higher tier and holds wherever this one does; remove one of them"
    if other.effect != rule.effect:
        return f"{other} {_SAYS[other.effect]} all of it, and {other.effect} beats {rule.effect}; remove one of them"
    return f"{other} comes before it and holds wherever it does; remove this one, or put it first"


_SAYS = MappingProxyType({"allow": "allows", "ask": "asks about", "deny": "denies"})


def _covers(wide: Rule, narrow: Rule) -> bool:
    """Return True if a rule holds wherever another does."""
    opens = wide.effect == narrow.effect == "allow" and wide.tier == narrow.tier
    if opens and narrow.allows_taint is not wide.allows_taint:
        # In a tainted session only the rule with ``tainted = true`` allows. The other way round the narrow rule is
        # unreachable, but files written while ``tainted = true`` meant tainted sessions only have both, and must load.
        return False
    # An allow rule holds for less than an ask or deny rule with the same words: doubtful values do not match it.
    doubt = wide.effect == "allow" and narrow.effect != "allow"
    if doubt and (wide.when or ("resource" in wide.kinds and wide.names)):
        return False
    return (
        set(narrow.kinds) <= set(wide.kinds)
        and _patterns_cover(wide.servers, narrow.servers or ("*",))
        and _patterns_cover(wide.names, narrow.names or ("*",))
        and _patterns_cover(wide.principals, narrow.principals)
        and _patterns_cover(wide.profiles, narrow.profiles)
        and (not wide.callers or (bool(narrow.callers) and set(narrow.callers) <= set(wide.callers)))
        and all(predicate in narrow.when for predicate in wide.when)
        and wide.annotations in (NO_HINTS, narrow.annotations)
        and _taint_condition(wide) in (None, _taint_condition(narrow))
        and wide.trusted in (None, narrow.trusted)
        and (wide.expires is None or (narrow.expires is not None and narrow.expires <= wide.expires))
    )


def _taint_condition(rule: Rule) -> bool | None:
    """Return whether a rule is limited to tainted sessions (True) or untainted ones; None for both."""
    return None if rule.allows_taint else rule.tainted


def _patterns_cover(wide: tuple[str, ...], narrow: tuple[str, ...]) -> bool:
    """Return True if patterns match wherever others do; no patterns match everything."""
    if not wide:
        return True
    return bool(narrow) and all(any(_pattern_covers(one, other) for one in wide) for other in narrow)


def _pattern_covers(wide: str, narrow: str) -> bool:
    if wide == narrow or (wide.endswith("*") and not is_glob(wide[:-1]) and narrow.startswith(wide[:-1])):
        return True
    return not is_glob(narrow) and bool(compile_glob(wide)(narrow))
