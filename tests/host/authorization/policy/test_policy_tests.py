"""Tests that a policy has of itself."""

from __future__ import annotations

import pytest

from tests.host.authorization.policy.support import policy
from trunkline.errors import ConfigError
from trunkline.host.authorization.policy.policy_tests import parse_policy_tests, run_policy_tests

POLICY = """
[[rule]]
name = "no deletes"
effect = "deny"
tool = "delete_*"

[[rule]]
name = "for a day"
effect = "allow"
server = "files"
tool = "read"
expires = 1970-01-02
"""


def _failures(cases: str, *, now: float | None = 5.0) -> list[str | None]:
    outcomes = run_policy_tests(policy(POLICY), parse_policy_tests(cases, file="t.toml"), now=now)
    return [outcome.failure for outcome in outcomes]


@pytest.mark.parametrize(
    ("case", "failure"),
    [
        ('server = "a"\ntool = "delete_it"\nexpect = "deny"\nrule = "no deletes"\nlisted = false', None),
        ('server = "a"\ntool = "other"\nexpect = "ask"\nlisted = true', None),
        ('server = "files"\ntool = "read"\nexpect = "allow"', None),
        ('server = "files"\ntool = "read"\nexpect = "ask"\nnow = 1980-01-01', None),
        ('server = "a"\nuri = "x:y"\nexpect = "allow"', None),
        ('server = "a"\nprompt = "x"\nexpect = "allow"\ntainted = true', None),
        ('server = "a"\nkind = "sampling"\nexpect = "ask"\ncaller = "server"', None),
        (
            'server = "a"\ntool = "x"\nexpect = "allow"\ntrusted = true\nannotations = { read_only = true }\n'
            'args = { a = [1, { b = "c" }] }\nprincipal = "p"\nprofile = "q"',
            None,
        ),
        (
            'server = "a"\ntool = "delete_it"\nexpect = "allow"',
            "expected allow, got deny by no deletes",
        ),
        (
            'server = "a"\ntool = "delete_it"\nexpect = "deny"\nrule = "other"',
            "expected the rule 'other', but 'no deletes' decided",
        ),
        (
            'server = "a"\ntool = "delete_it"\nexpect = "deny"\nlisted = true',
            "expected it to be listed, and it is not",
        ),
        ('server = "a"\ntool = "x"\nexpect = "ask"\nlisted = false', "expected it not to be listed, and it is"),
    ],
)
def test_a_case_passes_if_all_is_as_it_says(case: str, failure: str | None) -> None:
    assert _failures(f"[[test]]\n{case}\n") == [failure]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ('tool = "x"\nexpect = "ask"', "t.toml:1: server is missing: add server = '...'"),
        ('server = "a"\ntool = "x"', "t.toml:1: expect is missing: add expect = '...'"),
        ('server = "a"\nexpect = "ask"', "t.toml:1: a test of a tool has tool"),
        ('server = "a"\nkind = "prompt"\ntool = "x"\nexpect = "ask"', "t.toml:4: a test of a prompt has prompt"),
        ('server = "a"\nkind = "roots"\ntool = "x"\nexpect = "ask"', "t.toml:4: a test of a roots has no name"),
        ('server = "a"\ntool = "x"\nuri = "y"\nexpect = "ask"', "t.toml:4: it has both tool and uri"),
        ('server = "a"\ntool = "x"\nexpects = "ask"', "t.toml:4: unknown key 'expects': did you mean 'expect'?"),
        ('server = "a"\ntool = "x"\nexpect = "ask"\nargs = 5', "t.toml:5: args: write a table { ... }, not 5"),
    ],
)
def test_a_mistake_in_a_case_is_reported_with_its_place(case: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_policy_tests(f"[[test]]\n{case}\n", file="t.toml")
    assert str(caught.value).startswith(said)


def test_rules_belong_in_a_policy() -> None:
    with pytest.raises(ConfigError, match="unknown table 'rule'"):
        parse_policy_tests(POLICY, file="t.toml")
    assert parse_policy_tests(POLICY, file="p.toml", with_policy=True) == ()


def test_a_case_has_a_name_or_its_place() -> None:
    text = '[[test]]\nname = "x"\nserver = "a"\ntool = "b"\nexpect = "ask"\n'
    named, placed = parse_policy_tests(text + text.replace('name = "x"\n', ""), file="t.toml")
    assert (named.name, named.where, placed.name) == ("x", "t.toml:1", "t.toml:6")
