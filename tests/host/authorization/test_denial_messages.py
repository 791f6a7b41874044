"""What a refusal says: the tool, the reason in words, and the step that allows it, which does allow it."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from msgspec.structs import replace

from tests.host.authorization.policy.support import make_act, policy
from trunkline.errors import ConfigError
from trunkline.host.authorization.approval import ApprovalRequest
from trunkline.host.authorization.denial_messages import (
    ALLOW_IT,
    CLIENT_CANNOT_ELICIT,
    MODE_NEVER_ASKS,
    called_by_proxy_reason,
    denied_message,
    needs_approval_message,
    rule_to_add,
)
from trunkline.host.authorization.policy import Act, Policy, parse_policy

ACT = make_act("files/write")
WRITTEN = '\n[[rule]]\neffect = "allow"\nserver = "files"\ntool = "write"'
WHICH = "add this to the policy (the file given by --policy, else policy.toml in your configuration folder):"


def refusal(act: Act, rules: str = "", **more: Any) -> str:
    return needs_approval_message(act, policy(rules).decide(act), **more)


def test_a_default_refusal_names_the_tool_the_reason_and_the_rule_that_allows_it() -> None:
    assert refusal(ACT) == (
        "files/write needs approval (the server is not trusted, and no rule allows it), and there is no terminal or "
        f"client to ask. Allow it: {WHICH}{WRITTEN}"
    )


@pytest.mark.parametrize(
    ("no_prompt_reason", "why", "step"),
    [
        (CLIENT_CANNOT_ELICIT, "it did not declare elicitation", "serve with --approval client"),
        (MODE_NEVER_ASKS, "approval mode deny", WHICH),
        (
            called_by_proxy_reason("call_tool", "files__write"),
            "saw only the name call_tool",
            "by its own name, files__write",
        ),
    ],
)
def test_why_no_one_is_asked_is_said_with_what_else_would_help(no_prompt_reason: Any, why: str, step: str) -> None:
    text = refusal(ACT, no_prompt_reason=no_prompt_reason)
    said, _, after = text.partition(ALLOW_IT)
    assert why in said
    assert after.startswith(step) or step in after
    assert text.endswith(WRITTEN)


@pytest.mark.parametrize(
    "no_prompt_reason", [CLIENT_CANNOT_ELICIT, MODE_NEVER_ASKS, called_by_proxy_reason("call_tool", "files__write")]
)
def test_a_rule_that_asks_is_to_be_changed_since_no_other_rule_and_no_mode_undoes_it(no_prompt_reason: Any) -> None:
    rules = '[[rule]]\nname = "careful"\neffect = "ask"\nserver = "files"\n'
    text = refusal(ACT, rules, no_prompt_reason=no_prompt_reason)
    assert "rule 'careful' (p.toml:1) requires approval" in text
    assert text.endswith('Allow it: change the effect of that rule to "allow", or make the call where you can be asked')
    with pytest.raises(ConfigError, match="ask beats allow"):
        policy(f"{rules}\n{rule_to_add(ACT)}")
    assert policy(rules.replace('"ask"', '"allow"')).decide(ACT).effect == "allow"


@pytest.mark.parametrize(
    ("why", "rules", "no_prompt_reason"),
    [
        ("flagged", "", CLIENT_CANNOT_ELICIT),
        ("changed", rule_to_add(ACT), MODE_NEVER_ASKS),
        ("changed", '[[rule]]\neffect = "ask"\nserver = "files"\n', CLIENT_CANNOT_ELICIT),
    ],
    ids=["by default", "although a rule allows it", "although a rule asks"],
)
def test_a_flagged_or_changed_definition_is_refused_with_the_command_that_accepts_it(
    why: str, rules: str, no_prompt_reason: Any
) -> None:
    act = replace(make_act("files/a b"), **{why: True})
    assert refusal(act, rules, no_prompt_reason=no_prompt_reason).endswith(
        " Allow it: trunkline pins accept 'files/a b'"
    )


def test_taint_is_reported_with_its_source() -> None:
    act = replace(ACT, tainted=True)
    text = refusal(act, rule_to_add(ACT), tainted_by="web/fetch")
    assert "The untrusted text came from web/fetch." in text
    assert text.endswith(f"{WRITTEN}\ntainted = true")


def test_taint_is_not_mentioned_where_it_is_not_the_reason() -> None:
    assert "untrusted text" not in refusal(replace(ACT, tainted=True), tainted_by="web/fetch")


def test_a_denial_names_the_tool_the_rule_and_what_to_do_about_it() -> None:
    decision = policy('[[rule]]\neffect = "deny"\nserver = "files"\n').decide(ACT)
    assert denied_message(ACT, decision) == (
        "files/write is denied: rule p.toml:1 denies. Allow it: change or remove that rule; trunkline policy why "
        "files/write explains it (give it the same --policy, if there was one)"
    )


def test_a_denial_has_the_message_of_its_rule() -> None:
    decision = policy('[[rule]]\neffect = "deny"\nserver = "files"\nmessage = "Ask Ann."\n').decide(ACT)
    assert "rule p.toml:1 denies. Its message: Ask Ann. Allow it: change" in denied_message(ACT, decision)


@pytest.mark.parametrize(("no_prompt_reason", "then"), [(MODE_NEVER_ASKS, True), (CLIENT_CANNOT_ELICIT, False)])
def test_where_nothing_is_asked_a_changed_tool_is_allowed_in_two_steps(no_prompt_reason: Any, then: bool) -> None:
    text = refusal(replace(ACT, changed=True, pin="sha256:1"), no_prompt_reason=no_prompt_reason)
    step = "; then, unless a rule allows it: trunkline grants allow files/write"
    assert text.endswith(f"Allow it: trunkline pins accept files/write{step if then else ''}")


@pytest.mark.parametrize(("name", "said"), [("", "rule p.toml:1 requires approval"), ('name = "careful"\n', None)])
def test_a_rule_is_named_once(name: str, said: str | None) -> None:
    decision = policy(f'[[rule]]\n{name}effect = "ask"\nserver = "files"\n').decide(ACT)
    question = ApprovalRequest(act=ACT, decision=decision)
    assert question.reason == (said or "rule 'careful' (p.toml:1) requires approval")
    by_default = policy("").decide(ACT)
    assert ApprovalRequest(act=ACT, decision=by_default).reason.endswith(f"({by_default.rule})")


def test_a_policy_that_cannot_be_evaluated_names_no_rule_to_remove() -> None:
    class Broken(Policy):
        def _judge(self, *_: Any) -> Any:
            raise RuntimeError("broken")

    assert "rule" not in denied_message(ACT, Broken().decide(ACT))


@pytest.mark.parametrize(
    ("kind", "name", "named"),
    [
        ("tool", 'a"b\\c\x7f\n', {"tool": 'a"b\\c\x7f\n'}),
        ("resource", "file:///a?b*[c]", {"uri": "file:///a[?]b[*][[]c]"}),
        ("prompt", "review", {"prompt": "review"}),
        ("sampling", "sampling/createMessage", {"kind": "sampling"}),
    ],
)
def test_the_rule_to_add_means_this_alone(kind: Any, name: str, named: dict[str, str]) -> None:
    act = Act(kind=kind, server="a b", name=name, arguments={})
    written = rule_to_add(act)
    assert tomllib.loads(written) == {"rule": [{"effect": "allow", "server": "a b", **named}]}
    assert parse_policy(written, file="policy.toml").decide(act).effect == "allow"
