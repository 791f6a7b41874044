"""Rules as data, and their compiled form.

What a rule is about (kind, server, name) and the conditions that an act must meet. A condition is true, false or
unknown: arguments are unknown while a list is built, and so is the time if none is passed. Deciding, listing and
explaining evaluate the same conditions; they differ only in what follows from unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from trunkline.host.authorization.policy.decisions import (
    CHANGED,
    FLAGGED,
    NO_HINTS,
    TAINTED,
    Act,
    ActKind,
    Decision,
    Effect,
    ToolHints,
    effective_hints,
)
from trunkline.host.authorization.policy.locations import PathReader, uri_matcher
from trunkline.host.authorization.policy.patterns import Matcher, any_glob, parse_pointer
from trunkline.host.authorization.policy.predicates import ConditionTest, Predicate, compile_predicate

__all__ = ["KINDS", "TIERS", "WITH_ARGUMENTS", "CompiledRule", "RedactionRule", "Rule", "RuleCondition", "compile_rule"]

KINDS: tuple[ActKind, ...] = ("tool", "resource", "prompt", "skill", "sampling", "elicitation", "roots")
#: The kinds whose names are URIs.
_NAMED_BY_URI: frozenset[ActKind] = frozenset({"resource", "skill"})
#: The kinds with arguments, or with params that a rule can test.
WITH_ARGUMENTS: frozenset[ActKind] = frozenset({"tool", "prompt", "sampling", "elicitation"})
#: The tiers that have names; any integer is a tier too.
TIERS: Mapping[str, int] = MappingProxyType({"managed": 1000, "user": 0, "default": -1000})


class Rule(Struct, frozen=True, kw_only=True):
    """One rule: what it is about, its conditions, and its effect; an empty tuple matches anything."""

    #: Its name, or its position in the file.
    name: str
    where: str
    effect: Effect
    tier: int = 0
    kinds: tuple[ActKind, ...] = ("tool",)
    servers: tuple[str, ...] = ()
    #: Globs over the names of tools or prompts, or over URIs.
    names: tuple[str, ...] = ()
    when: tuple[Predicate, ...] = ()
    annotations: ToolHints = ToolHints()
    callers: tuple[str, ...] = ()
    principals: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    #: On a rule that allows, ``True`` extends it to tainted sessions. Everywhere else it is a condition.
    tainted: bool | None = None
    trusted: bool | None = None
    #: The message for a denied caller.
    message: str | None = None
    #: When it expires, in seconds since the epoch.
    expires: float | None = None

    def __str__(self) -> str:
        """Name the rule and its position, for people."""
        return self.where if self.name == self.where else f"{self.name!r} ({self.where})"

    @property
    def allows_taint(self) -> bool:
        """Whether it also allows acts in a tainted session, by an explicit ``tainted = true``."""
        return self.effect == "allow" and self.tainted is True


class RedactionRule:
    """A ``[[redact]]`` table: arguments that the audit trail must not show."""

    __slots__ = ("_name_fits", "_server_fits", "kinds", "names", "pointers", "servers", "where")

    def __init__(
        self,
        pointers: tuple[str, ...],
        *,
        servers: tuple[str, ...] = (),
        names: tuple[str, ...] = (),
        kinds: tuple[ActKind, ...] = ("tool",),
        where: str = "",
    ) -> None:
        """Redact what these JSON pointers lead to, ``*`` for every element, for acts that match the globs.

        Raises:
            ValueError: a pointer or a glob is invalid.
        """
        for pointer in pointers:
            parse_pointer(pointer)
        self.pointers: tuple[str, ...] = pointers
        self.servers: tuple[str, ...] = servers
        self.names: tuple[str, ...] = names
        self.kinds: tuple[ActKind, ...] = kinds
        self.where: str = where
        self._server_fits: Matcher = any_glob(servers or ("*",))
        self._name_fits: Matcher = (
            uri_matcher(names, for_allow=False)
            if names and not _NAMED_BY_URI.isdisjoint(kinds)
            else any_glob(names or ("*",))
        )

    def matches(self, act: Act) -> bool:
        """Return True if it applies to the arguments of an act."""
        return act.kind in self.kinds and bool(self._server_fits(act.server) and self._name_fits(act.name))


class RuleCondition(NamedTuple):
    """A condition of a rule, with a text for people."""

    text: str
    test: ConditionTest


class CompiledRule(NamedTuple):
    """A compiled rule."""

    rule: Rule
    decision: Decision
    #: The kinds, servers and names that it is about.
    kinds: frozenset[ActKind]
    matches_server: Callable[[str], object]
    matches_name: Callable[[ActKind, str], object]
    conditions: tuple[RuleCondition, ...]
    #: All conditions combined.
    state: ConditionTest
    #: Whether a condition reads the hints of a tool.
    reads_hints: bool
    #: The decision of an allow rule on a writing tool in a tainted session; None if it allows that too.
    when_tainted: Decision | None = None
    #: The decisions of an allow rule on a definition that the scan flagged, and on one that changed.
    when_flagged: Decision | None = None
    when_changed: Decision | None = None


def compile_rule(rule: Rule, paths: PathReader) -> CompiledRule:
    """Compile a rule.

    Raises:
        ValueError: something in it is invalid; the message says what to write.
    """
    conditions = tuple(_conditions(rule, paths))
    return CompiledRule(
        rule,
        Decision(rule.effect, rule.name, _reason(rule), rule.message if rule.effect == "deny" else None),
        frozenset(rule.kinds),
        any_glob(rule.servers or ("*",)),
        _name_matcher(rule),
        conditions,
        _all_of(tuple(condition.test for condition in conditions)),
        rule.annotations != NO_HINTS,
        *_allow_exceptions(rule),
    )


def _allow_exceptions(rule: Rule) -> tuple[Decision | None, Decision | None, Decision | None]:
    """Return the decisions of an allow rule where a person has to look first: tainted, flagged, changed."""
    if rule.effect != "allow":
        return None, None, None
    came = f"rule {rule} allows it, but {TAINTED}; tainted = true in the rule would allow it even then"
    tainted = Decision("ask", "default: writing tool, tainted session", came, cause="taint")
    flagged, changed = (
        replace(each, reason=f"rule {rule} allows it, but {each.reason}") for each in (FLAGGED, CHANGED)
    )
    return None if rule.tainted is True else tainted, flagged, changed


def _all_of(tests: tuple[ConditionTest, ...]) -> ConditionTest:
    """Combine tests: False if one is, else unknown if one is unknown."""
    if len(tests) == 1:
        return tests[0]

    def test(act: Act, hints: ToolHints, now: float | None) -> bool | None:
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
    if not rule.names or _NAMED_BY_URI.isdisjoint(rule.kinds):
        return lambda kind, name: fits(name)
    fits_uri = uri_matcher(rule.names, for_allow=rule.effect == "allow")
    return lambda kind, name: fits_uri(name)


# --- conditions ------------------------------------------------------------------------------------------------------


def _conditions(rule: Rule, paths: PathReader) -> Iterator[RuleCondition]:
    """Yield the conditions of a rule, the cheapest first."""
    if rule.trusted is not None:
        yield RuleCondition(f"trusted is {_word(rule.trusted)}", _is_trusted(rule.trusted))
    if rule.allows_taint:
        yield RuleCondition("also in a tainted session", lambda act, hints, now: True)
    elif rule.tainted is not None:
        yield RuleCondition(f"tainted is {_word(rule.tainted)}", _is_tainted(rule.tainted))
    if rule.callers:
        yield RuleCondition(f"caller is {_listed(rule.callers)}", _caller_in(frozenset(rule.callers)))
    if rule.principals:
        yield RuleCondition(f"principal is {_listed(rule.principals)}", _principal_fits(rule.principals))
    if rule.profiles:
        yield RuleCondition(f"profile is {_listed(rule.profiles)}", _profile_fits(rule.profiles))
    if rule.annotations != NO_HINTS:
        yield RuleCondition(_hints_text(rule.annotations), _hints_fit(rule.annotations))
    if rule.expires is not None:
        yield RuleCondition("not expired", _not_expired(rule.expires))
    for predicate in rule.when:
        holds = compile_predicate(predicate, for_allow=rule.effect == "allow", paths=paths)
        yield RuleCondition(str(predicate), holds)


def _word(value: bool) -> str:
    return "true" if value else "false"


def _listed(values: tuple[str, ...]) -> str:
    return " or ".join(map(repr, values))


def _is_trusted(wanted: bool) -> ConditionTest:
    return lambda act, hints, now: act.trusted is wanted


def _is_tainted(wanted: bool) -> ConditionTest:
    return lambda act, hints, now: act.tainted is wanted


def _caller_in(wanted: frozenset[str]) -> ConditionTest:
    return lambda act, hints, now: act.caller in wanted


def _principal_fits(patterns: tuple[str, ...]) -> ConditionTest:
    fits = any_glob(patterns)
    return lambda act, hints, now: act.principal is not None and bool(fits(act.principal))


def _profile_fits(patterns: tuple[str, ...]) -> ConditionTest:
    fits = any_glob(patterns)
    return lambda act, hints, now: act.profile is not None and bool(fits(act.profile))


def _wanted(hints: ToolHints) -> tuple[tuple[str, bool], ...]:
    said = ((name, getattr(hints, name)) for name in hints.__struct_fields__)
    return tuple((name, value) for name, value in said if value is not None)


def _hints_text(hints: ToolHints) -> str:
    return " and ".join(f"{name} is {_word(value)}" for name, value in _wanted(hints))


def _hints_fit(wanted: ToolHints) -> ConditionTest:
    pairs = _wanted(wanted)

    def test(act: Act, hints: ToolHints, now: float | None) -> bool:
        said = effective_hints(hints)
        return all(getattr(said, name) is value for name, value in pairs)

    return test


def _not_expired(expires: float) -> ConditionTest:
    return lambda act, hints, now: None if now is None else now < expires
