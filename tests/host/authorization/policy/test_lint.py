"""Rules that can never decide are errors; rules about what does not exist, or is over, are found."""

from __future__ import annotations

from typing import Any

import pytest

from tests.host.authorization.policy.support import policy
from trunkline.errors import ConfigError
from trunkline.host.authorization.policy import Predicate, Rule, ToolHints, lint_policy
from trunkline.host.authorization.policy.lint import KnownTools, unreachable_rules

PREDICATE = Predicate("/a", "present")


def _rule(effect: Any, **given: Any) -> Rule:
    return Rule(name="n", where="p.toml:1", effect=effect, **given)


def _dead(*rules: Rule) -> list[int]:
    """Say which of the rules are reported, by their places."""
    placed = [
        Rule(**{field: getattr(rule, field) for field in rule.__struct_fields__} | {"where": str(at)})
        for at, rule in enumerate(rules)
    ]
    return [int(said.split(":")[0]) for said in unreachable_rules(placed)]


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (_rule("deny"), _rule("allow", servers=("s",))),
        (_rule("deny"), _rule("ask", names=("a*",))),
        (_rule("deny", servers=("s",)), _rule("allow", servers=("s",), names=("t",))),
        (_rule("deny", servers=("s*",)), _rule("allow", servers=("sx",))),
        (_rule("deny", names=("read_*",)), _rule("allow", servers=("s",), names=("read_a*", "read_b"))),
        (_rule("deny", names=("?",)), _rule("allow", servers=("s",), names=("x",))),
        (_rule("deny", when=(PREDICATE,)), _rule("allow", servers=("s",), when=(PREDICATE, Predicate("/b", "absent")))),
        (_rule("deny", callers=("model", "user")), _rule("allow", servers=("s",), callers=("user",))),
        (_rule("deny", principals=("a*",)), _rule("ask", principals=("al",))),
        (_rule("deny", profiles=("p",)), _rule("ask", profiles=("p",), tainted=True)),
        (_rule("deny", expires=5.0), _rule("ask", expires=4.0)),
        (_rule("deny", annotations=ToolHints(True)), _rule("ask", annotations=ToolHints(True))),
        (_rule("deny", kinds=("tool", "prompt")), _rule("ask", kinds=("prompt",))),
        (_rule("allow", servers=("s",), tier=1), _rule("deny", servers=("s",))),
        (_rule("ask", tier=1), _rule("deny", when=(PREDICATE,))),
        (_rule("deny"), _rule("deny", names=("a",))),
    ],
)
def test_a_rule_that_another_one_covers_is_dead(wide: Rule, narrow: Rule) -> None:
    assert _dead(wide, narrow) == [1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_rule("allow", servers=("s",)), _rule("deny", servers=("s",), names=("t",))),
        (_rule("deny", servers=("a",)), _rule("ask")),
        (_rule("deny", servers=("a",)), _rule("allow", servers=("a", "b"))),
        (_rule("deny", names=("a*",)), _rule("ask", names=("*a",))),
        (_rule("deny", names=("a?",)), _rule("ask", names=("a*",))),
        (_rule("deny", when=(PREDICATE,)), _rule("ask")),
        (_rule("deny", callers=("model",)), _rule("ask")),
        (_rule("deny", principals=("*",)), _rule("ask")),
        (_rule("deny", tainted=True), _rule("ask")),
        (_rule("deny", trusted=True), _rule("ask", trusted=False)),
        (_rule("deny", expires=5.0), _rule("ask", expires=6.0)),
        (_rule("deny", annotations=ToolHints(True)), _rule("ask")),
        (_rule("deny", kinds=("prompt",)), _rule("ask")),
        (_rule("deny", tier=-1), _rule("ask", names=("a",))),
        (_rule("allow", servers=("s",), tier=1, when=(PREDICATE,)), _rule("deny", servers=("s",), when=(PREDICATE,))),
        (
            _rule("allow", servers=("s",), tier=1, kinds=("resource",), names=("x:*",)),
            _rule("deny", servers=("s",), kinds=("resource",), names=("x:a",)),
        ),
    ],
)
def test_a_rule_that_may_decide_is_not(one: Rule, other: Rule) -> None:
    assert _dead(one, other) == []


def test_it_makes_no_difference_where_a_stronger_rule_stands() -> None:
    assert _dead(_rule("allow", servers=("s",)), _rule("deny")) == [0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[[rule]]\nname = "no"\neffect = "deny"\n[[rule]]\neffect = "allow"\nserver = "s"\n',
            "p.toml:4: this rule never decides: 'no' (p.toml:1) denies all of it, and deny beats allow; remove one",
        ),
        (
            '[[rule]]\neffect = "ask"\ntier = "managed"\n[[rule]]\neffect = "deny"\n',
            "p.toml:4: this rule never decides: p.toml:1 has a higher tier and holds wherever this one does",
        ),
        (
            '[[rule]]\neffect = "deny"\n[[rule]]\neffect = "deny"\ntool = "a"\nmessage = "No."\n',
            "p.toml:3: this rule never decides: p.toml:1 comes before it and holds wherever it does; remove this one,",
        ),
    ],
    ids=["stronger", "higher", "earlier"],
)
def test_a_dead_rule_is_an_error_that_names_what_stands_in_its_way(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy(text)
    assert said in str(caught.value)


TOOLS: KnownTools = {"files": {"read_file": ["path", "limit"], "write_file": ["path"]}, "mail": {"send": None}}
FILES = '[[rule]]\neffect = "deny"\nserver = "files"\n'


def _found(text: str, *, now: float | None = None) -> list[str]:
    findings = lint_policy(policy(text), ["files", "mail", "chat"], tools=TOOLS, now=now)
    return [f"{each.severity}: {each}" for each in findings]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[[rule]]\neffect = "allow"\nserver = "files"\ntool = "read_*"\n', []),
        ('[[rule]]\neffect = "deny"\n', []),
        (
            '[[rule]]\nname = "x"\neffect = "allow"\nserver = "fils"\n',
            ["error: p.toml:1: x: there is no server 'fils': did you mean 'files'?"],
        ),
        (
            '[[rule]]\neffect = "deny"\nserver = "zzz"\n',
            ["error: p.toml:1: there is no server 'zzz': configured: chat, files, mail"],
        ),
        ('[[rule]]\neffect = "deny"\nserver = "f*"\n', []),
        ('[[rule]]\neffect = "deny"\nserver = "x*"\n', ["warning: p.toml:1: no server matches 'x*'"]),
        (
            '[[rule]]\neffect = "deny"\nserver = "files"\ntool = "read_fil"\n',
            ["error: p.toml:1: no tool of files matches 'read_fil': did you mean 'read_file'?"],
        ),
        (
            '[[rule]]\neffect = "deny"\ntool = ["send", "x*"]\n',
            ["warning: p.toml:1: no tool of files, mail matches 'x*'"],
        ),
        (
            f'{FILES}tool = "read_file"\nwhen = [{{ arg = "/pth", within = "/etc" }}]\n',
            ["error: p.toml:1: files/read_file has no argument 'pth': did you mean 'path'?"],
        ),
        (f'{FILES}tool = "read_file"\nwhen = [{{ arg = "/path/*/x", equals = 1 }}]\n', []),
        (
            f'{FILES}tool = "read_file"\nwhen = [{{ arg = "/depth", absent = true }}]\n',
            ["warning: p.toml:1: files/read_file has no argument 'depth'"],
        ),
        (f'{FILES}when = [{{ arg = "/limit", min = 3 }}]\n', []),
        (
            f'{FILES}when = [{{ arg = "/url", host_in = "example.com" }}]\n',
            ["warning: p.toml:1: files/read_file, files/write_file have no argument 'url'"],
        ),
        ('[[rule]]\neffect = "deny"\nserver = "mail"\nwhen = [{ arg = "/x", equals = 1 }]\n', []),
        ('[[rule]]\neffect = "deny"\nwhen = [{ arg = "/password", present = true }]\n', []),
        (
            '[[redact]]\nserver = "files"\ntool = "write_file"\narg = "/pat"\n',
            ["error: p.toml:1: files/write_file has no argument 'pat': did you mean 'path'?"],
        ),
        ('[[rule]]\neffect = "deny"\nserver = "chat"\ntool = "any"\n', []),
        ('[[rule]]\neffect = "deny"\nprompt = "any"\n', []),
        (
            '[[rule]]\neffect = "deny"\nexpires = 1970-01-02\n',
            ["warning: p.toml:1: has expired and has no effect; remove it"],
        ),
        ('[[rule]]\neffect = "deny"\nexpires = 1971-01-02\n', []),
        (
            '[[redact]]\nserver = "fils"\narg = "/a"\n',
            ["error: p.toml:1: there is no server 'fils': did you mean 'files'?"],
        ),
    ],
)
def test_what_a_policy_says_to_no_effect_is_found(text: str, found: list[str]) -> None:
    assert _found(text, now=90_000.0) == found


def test_nothing_is_found_where_nothing_is_known() -> None:
    rules = policy('[[rule]]\neffect = "deny"\nserver = "zzz"\ntool = "t"\nexpires = 1970-01-02\n')
    assert lint_policy(rules) == ()
