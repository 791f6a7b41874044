"""Rules that have no effect.

Rules that can never decide because another rule is evaluated before them and holds wherever they do, rules about
servers, tools or arguments that do not exist, and rules that have expired. Only what is certain is reported: a rule
that covers another by its patterns and has no condition that the other has not. Conditions with the same meaning in
different words are not recognised.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from trunkline.host.authorization.policy.decisions import NO_HINTS
from trunkline.host.authorization.policy.patterns import any_glob, compile_glob, is_glob, parse_pointer
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.authorization.policy.rules import RedactionRule, Rule
from trunkline.host.config.spelling import nearest

__all__ = ["KnownTools", "PolicyIssue", "argument_names", "lint_policy", "unreachable_rules"]

#: The tools of servers whose catalog is known, by name, each with its arguments; None if it may have any.
KnownTools: TypeAlias = Mapping[str, Mapping[str, "Collection[str] | None"]]

_STRICTNESS = ("allow", "ask", "deny")


def unreachable_rules(rules: Sequence[Rule]) -> Iterator[str]:
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
        covers = f"{other} {_EFFECT_VERBS[other.effect]} all of it"
        return f"{covers}, and {other.effect} beats {rule.effect}; remove one of them"
    return f"{other} comes before it and holds wherever it does; remove this one, or put it first"


_EFFECT_VERBS = MappingProxyType({"allow": "allows", "ask": "asks about", "deny": "denies"})


def _covers(wide: Rule, narrow: Rule) -> bool:
    """Return True if a rule holds wherever another does."""
    for_allow = wide.effect == narrow.effect == "allow" and wide.tier == narrow.tier
    if for_allow and narrow.allows_taint is not wide.allows_taint:
        # In a tainted session only the rule with ``tainted = true`` allows. The other way round the narrow rule is
        # unreachable, but files written while ``tainted = true`` meant tainted sessions only have both, and must load.
        return False
    # An allow rule holds for less than an ask or deny rule with the same words: doubtful values do not match it.
    doubt = wide.effect == "allow" and narrow.effect != "allow"
    if doubt and (wide.when or (not {"resource", "skill"}.isdisjoint(wide.kinds) and wide.names)):
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


class PolicyIssue(Struct, frozen=True):
    """Something in a policy that has no effect."""

    severity: Literal["error", "warning"]
    where: str
    message: str

    def __str__(self) -> str:
        """Format it as one line."""
        return f"{self.where}: {self.message}"


def lint_policy(
    policy: Policy,
    known: Collection[str] | None = None,
    *,
    tools: KnownTools | None = None,
    now: float | None = None,
) -> tuple[PolicyIssue, ...]:
    """Report servers, tools and arguments that do not exist, and rules that have expired.

    ``known`` are the names of all servers.
    """
    return (
        *(finding for each in policy.rules for finding in _rule_issues(each, known, tools, now)),
        *(finding for each in policy.redactions for finding in _redaction_issues(each, known, tools)),
    )


def argument_names(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the arguments of a tool by its input schema; None if it does not list all of them."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or schema.get("additionalProperties") not in (None, False):
        return None
    return None if any(key in schema for key in _MORE_PROPERTIES) else frozenset(properties)


#: The keywords by which a schema has properties that it does not list itself.
_MORE_PROPERTIES = ("$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas")


def _rule_issues(
    rule: Rule, known: Collection[str] | None, tools: KnownTools | None, now: float | None
) -> Iterator[PolicyIssue]:
    yield from _server_issues(rule, known)
    if tools is not None and rule.kinds == ("tool",):
        yield from _tool_issues(rule, known or tools, tools)
        for predicate in rule.when:
            # A condition on a missing argument never holds, except that it is missing.
            never_holds = predicate.test != ("present" if predicate.negated else "absent")
            protects = rule.effect == "deny" and never_holds
            yield from _argument_issues(rule, predicate.arg, known or tools, tools, protects=protects)
    if now is not None and rule.expires is not None and now >= rule.expires:
        yield PolicyIssue("warning", rule.where, f"{_named(rule)}has expired and has no effect; remove it")


def _server_issues(rule: Rule | RedactionRule, known: Collection[str] | None) -> Iterator[PolicyIssue]:
    if known is None:
        return
    for pattern in rule.servers:
        if is_glob(pattern):
            if not any(map(compile_glob(pattern), known)):
                yield PolicyIssue("warning", rule.where, f"{_named(rule)}no server matches {pattern!r}")
        elif pattern not in known:
            near = nearest(pattern, known)
            meant = f"did you mean {near!r}?" if near else f"configured: {', '.join(sorted(known)) or 'none'}"
            yield PolicyIssue("error", rule.where, f"{_named(rule)}there is no server {pattern!r}: {meant}")


def _redaction_issues(
    rule: RedactionRule, known: Collection[str] | None, tools: KnownTools | None
) -> Iterator[PolicyIssue]:
    yield from _server_issues(rule, known)
    if tools is not None and rule.kinds == ("tool",):
        for pointer in rule.pointers:
            yield from _argument_issues(rule, pointer, known or tools, tools, protects=True)


def _servers_of(rule: Rule | RedactionRule, known: Collection[str], tools: KnownTools) -> tuple[list[str], bool]:
    """Return the servers of a rule whose tools are known, and whether these are all servers of the rule."""
    fits = any_glob(rule.servers or ("*",))
    servers = [server for server in known if fits(server)]
    listed = [server for server in tools if server in servers]
    return listed, len(listed) == len(servers)


def _tool_issues(rule: Rule, known: Collection[str], tools: KnownTools) -> Iterator[PolicyIssue]:
    """Report names that no tool has, among the servers whose tools are known.

    If all of them are known, a rule that denies one tool by its name is an error: it looks like a protection.
    """
    meant, are_all = _servers_of(rule, known, tools)
    names = {name for server in meant for name in tools[server]}
    for pattern in rule.names if meant else ():
        if not any(map(compile_glob(pattern), names)):
            near = None if is_glob(pattern) else nearest(pattern, names)
            hint = f": did you mean {near!r}?" if near else ""
            message = f"{_named(rule)}no tool of {', '.join(meant)} matches {pattern!r}{hint}"
            protects_nothing = rule.effect == "deny" and not is_glob(pattern) and are_all
            yield PolicyIssue("error" if protects_nothing else "warning", rule.where, message)


def _argument_issues(
    rule: Rule | RedactionRule, pointer: str, known: Collection[str], tools: KnownTools, *, protects: bool
) -> Iterator[PolicyIssue]:
    """Report an argument that no tool of a rule has; an error if the rule looks like a protection.

    A rule about all tools of all servers may be a precaution.
    """
    name = next(iter(parse_pointer(pointer)), "*") if rule.names or rule.servers else "*"
    fits, (servers, are_all) = any_glob(rule.names or ("*",)), _servers_of(rule, known, tools)
    arguments = {f"{server}/{tool}": tools[server][tool] for server in servers for tool in tools[server] if fits(tool)}
    if not arguments or name == "*" or any(names is None or name in names for names in arguments.values()):
        return
    near = nearest(name, {each for names in arguments.values() for each in names or ()})
    hint = f": did you mean {near!r}?" if near else ""
    which = ", ".join(list(arguments)[:_TOOLS_SHOWN]) + (" and others" if len(arguments) > _TOOLS_SHOWN else "")
    message = f"{_named(rule)}{which} {'has' if len(arguments) == 1 else 'have'} no argument {name!r}{hint}"
    is_literal = bool(rule.names) and not any(map(is_glob, rule.names))
    yield PolicyIssue("error" if protects and is_literal and are_all else "warning", rule.where, message)


_TOOLS_SHOWN = 3  # More do not help to find the rule.


def _named(rule: Rule | RedactionRule) -> str:
    return f"{rule.name}: " if isinstance(rule, Rule) and rule.name != rule.where else ""
