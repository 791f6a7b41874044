"""Rules that can never decide are errors, and rules that can are not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.host.authorization.policy.support import policy
from trunkline.errors import ConfigError
from trunkline.host.authorization.policy import Predicate, Rule, ToolHints
from trunkline.host.authorization.policy.lint import unreachable_rules

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
        (_rule("deny", servers=("*",)), _rule("ask")),
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
        (_rule("deny", trusted=True), _rule("deny", trusted=True)),
    ],
)
def test_a_rule_that_another_one_covers_is_dead(wide: Rule, narrow: Rule) -> None:
    assert _dead(wide, narrow) == [1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_rule("allow", servers=("s",)), _rule("deny", servers=("s",), names=("t",))),
        (_rule("deny", names=("a",)), _rule("deny")),
        (_rule("deny", servers=("a",)), _rule("ask")),
        (_rule("deny", servers=("a",)), _rule("allow", servers=("a", "b"))),
        (_rule("deny", names=("a*",)), _rule("ask", names=("*a",))),
        (_rule("deny", names=("a?",)), _rule("ask", names=("a*",))),
        (_rule("deny", when=(PREDICATE,)), _rule("ask")),
        (_rule("deny", callers=("model",)), _rule("ask")),
        (_rule("deny", principals=("*",)), _rule("ask")),
        (_rule("deny", tainted=True), _rule("ask")),
        (_rule("deny", trusted=True), _rule("ask", trusted=False)),
        (_rule("deny", expires=5.0), _rule("ask")),
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
