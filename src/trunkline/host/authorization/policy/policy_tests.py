"""Tests of a policy, written in TOML: an act, the expected decision, and the rule that should make it.

They are ``[[test]]`` tables in the policy file itself, or in a separate file.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.authorization.policy.decisions import NO_HINTS, Act, Decision, Effect
from trunkline.host.authorization.policy.loader import (
    TARGETS,
    InvalidKey,
    TomlTable,
    key_parsers,
    parse_keys,
    parse_tables,
)
from trunkline.host.authorization.policy.policy import Policy

__all__ = ["PolicyTest", "PolicyTestResult", "parse_policy_tests", "run_policy_tests"]


class PolicyTest(Struct, frozen=True, kw_only=True):
    """One test: an act and the expected decision."""

    name: str
    where: str
    act: Act
    expect: Effect
    #: The rule that must decide; None: any.
    rule: str | None = None
    #: Whether lists must show it; None: either.
    listed: bool | None = None
    now: float | None = None


class PolicyTestResult(Struct, frozen=True):
    """The result of one test."""

    case: PolicyTest
    decision: Decision
    #: What differs from the expectation; None if the test passed.
    failure: str | None


def parse_policy_tests(text: str, *, file: str, with_policy: bool = False) -> tuple[PolicyTest, ...]:
    """Parse the tests of a file; with ``with_policy`` it may also contain the tables of a policy.

    Raises:
        ConfigError: the file is invalid; the message has a line for each mistake, with its place and the fix.
    """
    tables, faults = parse_tables(text, file=file, known=("redact", "rule", "test") if with_policy else ("test",))
    cases: list[PolicyTest] = []
    for table in tables:
        if table.name == "test":
            try:
                cases.append(_policy_test(table, faults))
            except InvalidKey as wrong:
                faults.append(table.fault(wrong))
    if faults:
        raise ConfigError("\n".join(faults))
    return tuple(cases)


def _policy_test(table: TomlTable, faults: list[str]) -> PolicyTest:
    members, wrong = parse_keys(table.members, key_parsers("test"))
    faults += map(table.fault, wrong[:-1])
    if wrong:
        raise wrong[-1]
    for needed in ("server", "expect"):
        if needed not in members:
            raise InvalidKey(f"{needed} is missing: add {needed} = '...'")
    targets = [key for key in TARGETS if key in members]
    if len(targets) > 1:
        raise InvalidKey(f"it has both {targets[0]} and {targets[1]}: write a test for each", targets[1])
    kind = members.get("kind", TARGETS[targets[0]] if targets else "tool")
    if (targets and TARGETS[targets[0]] != kind) or (not targets and kind in TARGETS.values()):
        target = next(key for key, of in TARGETS.items() if of == kind) if kind in TARGETS.values() else "no name"
        raise InvalidKey(f"a test of a {kind} has {target}", targets[0] if targets else None)
    act = Act(
        kind=kind,
        server=members["server"],
        name=members[targets[0]] if targets else kind,
        arguments=members.get("args", {}),
        annotations=members.get("annotations", NO_HINTS),
        **{key: members[key] for key in ("trusted", "tainted", "caller", "principal", "profile") if key in members},
    )
    return PolicyTest(
        name=members.get("name", table.where),
        where=table.where,
        act=act,
        expect=members["expect"],
        rule=members.get("rule"),
        listed=members.get("listed"),
        now=members.get("now"),
    )


def run_policy_tests(
    policy: Policy, cases: Iterable[PolicyTest], *, now: float | None = None
) -> tuple[PolicyTestResult, ...]:
    """Run each test; ``now`` is for those that set no time themselves."""
    return tuple(_run(policy, case, case.now if case.now is not None else now) for case in cases)


def _run(policy: Policy, case: PolicyTest, now: float | None) -> PolicyTestResult:
    decision = policy.decide(case.act, now)
    listed = policy.is_visible(_without_arguments(case.act), now)
    return PolicyTestResult(case, decision, _failure(case, decision, listed))


def _without_arguments(act: Act) -> Act:
    from msgspec.structs import replace

    return replace(act, arguments=None)


def _failure(case: PolicyTest, decision: Decision, listed: bool) -> str | None:
    if decision.effect != case.expect:
        return f"expected {case.expect}, got {decision.effect} by {decision.rule}"
    if case.rule is not None and decision.rule != case.rule:
        return f"expected the rule {case.rule!r}, but {decision.rule!r} decided"
    if case.listed is not None and listed is not case.listed:
        return f"expected it {'' if case.listed else 'not '}to be listed, and it is{'' if listed else ' not'}"
    return None
