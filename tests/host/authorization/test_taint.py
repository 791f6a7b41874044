"""Taint: what came from whom, which acts it reaches, and what the policy makes of that."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from trunkline.host.authorization.denial_messages import rule_to_add
from trunkline.host.authorization.grants import covers, make_grant
from trunkline.host.authorization.policy import Act, Policy, Rule, ToolHints, parse_policy
from trunkline.host.session import Taint

OPEN = ToolHints(open_world=True)
READS = ToolHints(read_only=True)
WRITE = Act(kind="tool", server="mail", name="send", arguments={}, trusted=True, tainted=True, pin="p")


def tainted(*sources: tuple[str, str, bool, ToolHints]) -> Taint:
    taint = Taint()
    for server, name, trusted, hints in sources:
        taint.add_source(server, name, trusted=trusted, hints=hints)
    return taint


# --- where it comes from, and what it reaches ------------------------------------------------------------------------

UNKNOWN, CLOSED = ToolHints(), ToolHints(open_world=False)


@pytest.mark.parametrize(
    ("source", "server", "name", "hints", "tainted_act"),
    [
        pytest.param(("web", "fetch", False, UNKNOWN), "mail", "send", None, True, id="untrusted, elsewhere"),
        pytest.param(("web", "fetch", False, UNKNOWN), "web", "post", None, False, id="untrusted, same server"),
        pytest.param(("files", "read", True, CLOSED), "mail", "send", None, False, id="trusted, closed"),
        pytest.param(("files", "read", True, UNKNOWN), "mail", "send", None, False, id="trusted, nothing said"),
        pytest.param(("hub", "get_issue", True, OPEN), "mail", "send", None, True, id="trusted, open"),
        pytest.param(("hub", "get_issue", True, OPEN), "hub", "create_issue", None, True, id="open, writes there"),
        pytest.param(("hub", "get_issue", False, OPEN), "hub", "create_issue", None, True, id="untrusted and open"),
        pytest.param(("hub", "get_issue", True, OPEN), "hub", "list_files", READS, False, id="open, reads there"),
        pytest.param(("web", "fetch", False, OPEN), "web", "fetch", None, False, id="the same tool again"),
        pytest.param(("web", "fetch", False, OPEN), "files", "read", READS, True, id="reads elsewhere"),
        pytest.param(("hub", "get", True, OPEN), "hu", "read", READS, True, id="a name that begins alike"),
    ],
)
def test_which_acts_the_words_of_a_server_taint(
    source: tuple[str, str, bool, ToolHints], server: str, name: str, hints: ToolHints | None, tainted_act: bool
) -> None:
    assert tainted(source).affects(server, name, hints=hints or UNKNOWN) is tainted_act


def test_where_requests_are_no_conversation_nothing_is_kept() -> None:
    taint = Taint(enabled=False)
    taint.add_source("web", "fetch", trusted=False)
    assert not taint


def test_sources_are_bounded_and_too_many_taint_everything() -> None:
    taint = tainted(*[(f"s{number}", "x", False, ToolHints()) for number in range(2000)])
    assert (len(taint.sources) <= 257, taint.affects("s1999", "x"), taint.affects("s1", "x")) == (True, True, True)


def test_the_sources_of_taint_are_named() -> None:
    taint = tainted(("web", "fetch", False, OPEN), ("mail", "read", False, ToolHints()))
    assert taint.describe_sources("mail", "send") == "web, web/fetch"
    assert repr(taint) == "Taint(mail, web, web/fetch)"


# --- what the policy makes of it -------------------------------------------------------------------------------------


def rule(name: str = "r", **members: Any) -> Rule:
    return Rule(**{"name": name, "where": "p.toml:1", "effect": "allow", "servers": ("mail",), **members})


def test_a_rule_that_allows_a_writing_tool_asks_once_the_session_is_tainted() -> None:
    decision = Policy([rule()]).decide(WRITE)
    assert (decision.effect, decision.rule) == ("ask", "default: writing tool, tainted session")
    assert decision.reason == (
        "rule 'r' (p.toml:1) allows it, but untrusted text came into this session before; "
        "tainted = true in the rule would allow it even then"
    )


@pytest.mark.parametrize(
    ("members", "act", "effect"),
    [
        ({}, {"tainted": False}, "allow"),
        ({"tainted": True}, {}, "allow"),
        ({}, {"annotations": READS}, "allow"),
        ({}, {"annotations": READS, "trusted": False}, "ask"),
        ({"tainted": False}, {}, "ask"),
        ({"kinds": ("resource",)}, {"kind": "resource"}, "allow"),
        ({"effect": "deny"}, {}, "deny"),
    ],
    ids=["clean", "says so", "reads", "says it reads", "only clean", "resource", "deny"],
)
def test_taint_holds_back_what_may_write(members: dict[str, Any], act: dict[str, Any], effect: str) -> None:
    assert Policy([rule(**members)]).decide(replace(WRITE, **act)).effect == effect


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["before", "after"])
def test_a_rule_for_tainted_sessions_counts_wherever_it_stands_in_its_tier(order: tuple[int, int]) -> None:
    rules = [rule("any"), rule("tainted", tainted=True)]
    policy = Policy([rules[at] for at in order])
    assert (policy.decide(WRITE).rule, policy.decide(replace(WRITE, tainted=False)).rule) == ("tainted", "tainted")


def test_a_rule_for_tainted_sessions_does_not_reach_over_a_higher_tier() -> None:
    rules = [rule("high", tier=1), rule("low", tainted=True)]
    assert Policy(rules).decide(WRITE).effect == "ask"


@pytest.mark.parametrize("order", ["{0}{0}tainted = true\n", "{0}tainted = true\n{0}"], ids=["after", "before"])
def test_a_rule_for_tainted_sessions_and_one_for_all_may_stand_side_by_side(order: str) -> None:
    allows = '[[rule]]\neffect = "allow"\nserver = "mail"\n'
    assert parse_policy(order.format(allows), file="p.toml").decide(WRITE).effect == "allow"


@pytest.mark.parametrize(
    ("effect", "said", "tainted", "clean"),
    [
        ("allow", True, "r", "r"),
        ("allow", False, None, "r"),
        ("ask", True, "r", None),
        ("ask", False, None, "r"),
        ("deny", True, "r", None),
        ("deny", False, None, "r"),
    ],
)
def test_tainted_is_a_permission_on_a_rule_that_allows_and_a_condition_elsewhere(
    effect: Any, said: bool, tainted: str | None, clean: str | None
) -> None:
    policy = Policy([rule(effect=effect, tainted=said)])
    decided = [policy.decide(replace(WRITE, tainted=now)).rule for now in (True, False)]
    assert [name if name == "r" else None for name in decided] == [tainted, clean]


def test_a_tainted_act_is_seen_in_lists_as_before() -> None:
    assert Policy([rule()]).is_visible(replace(WRITE, arguments=None))


def test_an_explanation_says_why_a_rule_that_holds_did_not_decide() -> None:
    trace = Policy([rule()]).explain(WRITE)
    assert (trace.steps[0].outcome, trace.decision.rule) == ("matched", "default: writing tool, tainted session")


def test_a_grant_from_before_the_taint_does_not_cover_what_comes_after() -> None:
    before = make_grant(replace(WRITE, tainted=False), "always", now=0.0)
    knowing = make_grant(WRITE, "always", now=0.0)
    assert (covers(before, WRITE, 1.0), covers(knowing, WRITE, 1.0)) == (False, True)


@pytest.mark.parametrize("tainted", [True, False], ids=["tainted", "clean"])
def test_the_rule_that_is_proposed_for_a_tainted_act_allows_it_always(tainted: bool) -> None:
    policy = parse_policy(rule_to_add(WRITE), file="p.toml")
    assert policy.decide(replace(WRITE, tainted=tainted)).effect == "allow"


# --- what was flagged ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [
        replace(WRITE, flagged=True),
        replace(WRITE, flagged=True, tainted=False, annotations=READS),
        replace(WRITE, flagged=True, tainted=False, kind="resource"),
        replace(WRITE, changed=True),
        replace(WRITE, changed=True, tainted=False, annotations=READS),
        replace(WRITE, changed=True, tainted=False, kind="resource"),
        replace(WRITE, changed=True, trusted=False),
    ],
    ids=["writes", "reads", "resource", "changed", "changed reads", "changed resource", "changed untrusted"],
)
def test_what_is_flagged_or_changed_is_asked_about_whatever_allows_it(act: Act) -> None:
    assert Policy([rule(kinds=("tool", "resource"), tainted=True)]).decide(act).effect == "ask"


def test_a_flag_undoes_no_denial() -> None:
    assert Policy([rule(effect="deny")]).decide(replace(WRITE, flagged=True)).effect == "deny"


def test_a_decision_on_a_flagged_definition_names_the_cause() -> None:
    decision = Policy([rule()]).decide(replace(WRITE, flagged=True))
    assert decision.rule == "default: flagged definition"
    assert decision.reason.startswith("rule 'r' (p.toml:1) allows it, but the scan found something in its definition")
