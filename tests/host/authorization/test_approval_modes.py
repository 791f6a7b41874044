"""Approval modes: which one a gateway has by default, and what consent that came with a call covers."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
from msgspec.structs import replace

from tests.host.authorization.policy.support import make_act, policy
from trunkline.cli.commands.serve import command as serve
from trunkline.host.authorization.approval import (
    APPROVAL_MODE_HELP,
    APPROVAL_MODES,
    ApprovalMode,
    consent_covers,
    default_approval_mode,
    stricter_mode,
)
from trunkline.host.authorization.policy import Act, ToolHints
from trunkline.host.gateway.app import ServeOptions, gateway_exposure


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, "client", id="stdio"),
        pytest.param({"http": 8080}, "client", id="port, token made up"),
        pytest.param({"http": "127.0.0.1:0", "token": "t"}, "client", id="token"),
        pytest.param({"http": "[::1]:0", "token": "t"}, "client", id="IPv6 loopback"),
        pytest.param({"http": "localhost:0", "token": "t"}, "client", id="localhost"),
        pytest.param({"http": "127.9.9.9:0", "token": "t"}, "client", id="another loopback address"),
        pytest.param({"http": "0.0.0.0:0", "token": "t"}, "ask", id="all addresses"),
        pytest.param({"http": "my.localhost:0", "token": "t"}, "ask", id="a name that a resolver decides"),
        pytest.param({"http": "127.0.0.1.evil.example:0", "token": "t"}, "ask", id="a name like loopback"),
        pytest.param({"http": 0, "no_auth": True}, "ask", id="no auth"),
        pytest.param({"http": 0, "auth": object()}, "ask", id="verifier"),
        pytest.param({"http": 0, "token": "t", "allowed_hosts": ("gw.example",)}, "ask", id="allowed host"),
        pytest.param({"http": 0, "token": "t", "allowed_origins": ("https://x",)}, "ask", id="allowed origin"),
        pytest.param({"http": 0, "token": "t", "resource": "https://gw.example/mcp"}, "ask", id="public URL"),
    ],
)
def test_the_default_for_what_is_served(options: ServeOptions, expected: str) -> None:
    assert default_approval_mode(gateway_exposure(options)) == expected


@pytest.mark.parametrize(("one", "other"), list(itertools.product(APPROVAL_MODES, APPROVAL_MODES)))
def test_the_stricter_of_two(one: ApprovalMode, other: ApprovalMode) -> None:
    assert stricter_mode(one, other) == APPROVAL_MODES[max(APPROVAL_MODES.index(one), APPROVAL_MODES.index(other))]


def test_the_stricter_of_a_mode_and_none_is_the_mode() -> None:
    assert stricter_mode("client", None) == "client"


def test_the_command_line_knows_the_modes_and_each_has_a_meaning() -> None:
    (option,) = (each for each in serve.params if each.name == "approval")
    assert tuple(option.type.choices) == APPROVAL_MODES == get_args(ApprovalMode) == tuple(APPROVAL_MODE_HELP)  # type: ignore[attr-defined]


# --- what consent covers ---------------------------------------------------------------------------------------------

ACT = make_act("files/write")
READS = ToolHints(read_only=True)


def is_covered(rules: str, act: Act = ACT) -> bool:
    return consent_covers(act, policy(rules).decide(act, 0.0))


@pytest.mark.parametrize(
    ("rules", "act", "expected"),
    [
        pytest.param("", ACT, True, id="untrusted"),
        pytest.param('effect = "allow"', replace(ACT, tainted=True), True, id="allowed, tainted"),
        pytest.param('effect = "ask"', ACT, False, id="a rule asks"),
        pytest.param('effect = "deny"', ACT, False, id="a rule denies"),
        pytest.param("", replace(ACT, flagged=True), False, id="flagged"),
        pytest.param('effect = "allow"', replace(ACT, flagged=True), False, id="allowed, flagged"),
        pytest.param(
            'effect = "allow"', replace(ACT, changed=True, tainted=True), False, id="allowed, changed, tainted"
        ),
        pytest.param(
            'effect = "ask"\nannotations = { read_only = true }', replace(ACT, annotations=READS), False, id="hint"
        ),
        pytest.param('effect = "ask"\nannotations = { read_only = true }', ACT, True, id="another hint"),
    ],
)
def test_consent_covers_defaults_and_taint_and_nothing_else(rules: str, act: Act, expected: bool) -> None:
    written = f'[[rule]]\nserver = "files"\n{rules}\n' if rules else ""
    assert is_covered(written, act) is expected


def test_a_rule_that_may_ask_counts_as_one_that_does() -> None:
    """Without the time it is not known whether the rule is over; beside a default that asks it must not be lost."""
    rules = policy('[[rule]]\neffect = "ask"\nserver = "files"\nexpires = 2020-01-01T00:00:00Z\n')
    assert not consent_covers(ACT, rules.decide(ACT))
