"""Rules about servers and tools that do not exist, and rules that are over."""

from __future__ import annotations

import pytest

from tests.host.authorization.policy.support import policy
from trunkline.host.authorization.policy import lint_policy

TOOLS = {"files": ["read_file", "write_file"], "mail": ["send"]}


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
            ["warning: p.toml:1: no tool of files matches 'read_fil': did you mean 'read_file'?"],
        ),
        (
            '[[rule]]\neffect = "deny"\ntool = ["send", "x*"]\n',
            ["warning: p.toml:1: no tool of files, mail matches 'x*'"],
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


def test_where_there_are_no_servers_that_is_said() -> None:
    assert str(lint_policy(policy('[[rule]]\neffect = "deny"\nserver = "z"\n'), [])[0]).endswith(
        "'z': configured: none"
    )
