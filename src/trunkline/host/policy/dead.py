"""Rules that can never decide, because another one is asked before and holds wherever they do.

Only what is certain is reported: a rule that covers another by its patterns and has no condition that the other has
not. Two conditions that mean the same in different words are not seen through.
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
    """Give a sentence about each rule that never decides, with its place and what stands in its way."""
    wide, named = _by_server(rules)
    for at, rule in enumerate(rules):
        for other_at, other in (*wide, *named.get(rule.servers[0] if rule.servers else "*", ())):
            if at != other_at and _comes_first(other, rule, earlier=other_at < at) and _covers(other, rule):
                yield f"{rule.where}: this rule never decides: {_why(other, rule)}"
                break


def _by_server(rules: Sequence[Rule]) -> tuple[list[tuple[int, Rule]], dict[str, list[tuple[int, Rule]]]]:
    """Sort rules into those with a pattern for their server, and those that name theirs, by name."""
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
        return f"{other} is of a higher tier and holds wherever this one does; remove one of them"
    if other.effect != rule.effect:
        return f"{other} {_SAYS[other.effect]} all of it, and {other.effect} beats {rule.effect}; remove one of them"
    return f"{other} comes before it and holds wherever it does; remove this one, or put it first"


_SAYS = MappingProxyType({"allow": "allows", "ask": "asks about", "deny": "denies"})


def _covers(wide: Rule, narrow: Rule) -> bool:
    """Tell whether a rule holds wherever another does."""
    opens = wide.effect == narrow.effect == "allow" and wide.tier == narrow.tier
    if opens and narrow.allows_taint is not wide.allows_taint:
        # In a tainted session only the one that says so allows. The other way round the narrow one is dead, but files
        # that were written while ``tainted = true`` held for tainted sessions alone have both, and must be readable.
        return False
    # A rule that opens holds for less than one that closes with the same words: what cannot be judged is not in it.
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
    """Return which sessions a rule is limited to; None for both, as of one that allows also in tainted ones."""
    return None if rule.allows_taint else rule.tainted


def _patterns_cover(wide: tuple[str, ...], narrow: tuple[str, ...]) -> bool:
    """Tell whether patterns fit wherever others do; no patterns fit everything."""
    if not wide:
        return True
    return bool(narrow) and all(any(_pattern_covers(one, other) for one in wide) for other in narrow)


def _pattern_covers(wide: str, narrow: str) -> bool:
    if wide == narrow or (wide.endswith("*") and not is_glob(wide[:-1]) and narrow.startswith(wide[:-1])):
        return True
    return not is_glob(narrow) and bool(compile_glob(wide)(narrow))
