"""Deciding: order, tiers, conditions, hints, lists, explanations, defaults, and what cannot be evaluated."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.host.authorization.policy.support import HOME, make_act, policy
from trunkline.host.authorization.policy import (
    DEFAULT_POLICY,
    Act,
    PathContext,
    Policy,
    Predicate,
    Rule,
    ToolHints,
)
from trunkline.host.authorization.policy.decisions import effective_hints

EFFECTS = ("allow", "ask", "deny")
EXAMPLE = """
[[rule]]
effect = "allow"                  # allow, ask or deny; deny beats ask beats allow within a tier
server = "files"                  # an allow rule names its server literally; ask and deny may use globs
tool = "read_*"
when = [{ arg = "/path", within = "~/work" }]
"""


def _rule(name: str, effect: Any, **given: Any) -> Rule:
    return Rule(name=name, where=f"p.toml:{name}", effect=effect, **given)


# --- which rule decides ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("allow", "ask", "deny"), ("deny", "ask", "allow")])
def test_within_a_tier_deny_beats_ask_beats_allow_whatever_the_order(order: tuple[str, ...]) -> None:
    whole = [_rule(each, each, servers=("s",)) for each in order]
    assert Policy(whole).decide(make_act("s/t")).rule == "deny"
    assert Policy([each for each in whole if each.name != "deny"]).decide(make_act("s/t")).rule == "ask"


@pytest.mark.parametrize(("high", "low"), [("allow", "deny"), ("ask", "allow"), ("deny", "ask")])
def test_the_highest_tier_with_a_rule_that_holds_decides(high: Any, low: Any) -> None:
    rules = [_rule("low", low), _rule("high", high, tier=1), _rule("other", "deny", tier=2, servers=("x",))]
    assert Policy(rules).decide(make_act("s/t")).rule == "high"


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({"servers": ("files",)}, True),
        ({"servers": ("Files",)}, False),
        ({"servers": ("f*", "x")}, True),
        ({"names": ("read_*",)}, True),
        ({"names": ("write_*", "read_file")}, True),
        ({"names": ("write_*",)}, False),
        ({"kinds": ("prompt",)}, False),
        ({"kinds": ("prompt", "tool")}, True),
        ({"callers": ("model",)}, True),
        ({"callers": ("user", "gateway")}, False),
        ({"principals": ("al*",)}, True),
        ({"principals": ("bob",)}, False),
        ({"profiles": ("work",)}, True),
        ({"profiles": ("home",)}, False),
        ({"tainted": True}, True),
        ({"tainted": False}, False),
        ({"trusted": True}, True),
        ({"trusted": False}, False),
        ({"annotations": ToolHints(read_only=True)}, True),
        ({"annotations": ToolHints(read_only=True, open_world=False)}, False),
        ({"annotations": ToolHints(destructive=False, idempotent=False)}, True),
        ({"when": (Predicate("/a", "equals", 1),)}, True),
        ({"when": (Predicate("/a", "equals", 1), Predicate("/b", "present"))}, False),
        ({"expires": 101.0}, True),
        ({"expires": 100.0}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("effect", ["allow", "deny"])
def test_a_rule_holds_if_all_it_says_is_so(given: dict[str, Any], fits: bool, effect: Any) -> None:
    act = make_act(
        arguments={"a": 1},
        caller="model",
        principal="alice",
        profile="work",
        tainted=True,
        trusted=True,
        annotations=ToolHints(read_only=True),
    )
    decision = Policy([_rule("it", effect, **given)]).decide(act, now=100.0)
    assert (decision.rule == "it") is fits


@pytest.mark.parametrize("field", ["principals", "profiles"])
def test_no_principal_in_a_rule_matches_an_anonymous_caller(field: str) -> None:
    rule = _rule("it", "deny", **{field: ("*",)})
    assert Policy([rule]).decide(make_act()).rule != "it"


# --- what is not known -----------------------------------------------------------------------------------------------

CONDITIONAL = (Predicate("/a", "equals", 1),)


@pytest.mark.parametrize(
    ("effect", "decided", "seen"),
    [("allow", "ask", True), ("ask", "ask", True), ("deny", "deny", True)],
)
def test_unknown_arguments_count_against_a_decision_and_for_a_list(effect: Any, decided: str, seen: bool) -> None:
    rules = Policy([_rule("it", effect, servers=("s",), when=CONDITIONAL)])
    act = replace(make_act("s/t"), arguments=None)
    assert (rules.decide(act).effect, rules.is_visible(act)) == (decided, seen)


@pytest.mark.parametrize(("effect", "decided"), [("allow", "ask"), ("ask", "ask"), ("deny", "deny")])
def test_without_the_time_a_rule_that_expires_closes_and_does_not_open(effect: Any, decided: str) -> None:
    assert Policy([_rule("it", effect, expires=5.0)]).decide(make_act()).effect == decided


def test_a_question_that_may_not_hold_does_not_hide_a_denial_below() -> None:
    rules = [_rule("maybe", "ask", tier=1, when=CONDITIONAL), _rule("sure", "deny")]
    act = replace(make_act(), arguments=None)
    assert Policy(rules).decide(act).rule == "sure"
    assert Policy(rules).is_visible(act) is True


def test_only_what_is_denied_whatever_the_arguments_is_not_seen() -> None:
    act = replace(make_act(), arguments=None)
    assert Policy([_rule("it", "deny")]).is_visible(act) is False
    assert Policy([_rule("it", "deny", when=CONDITIONAL)]).is_visible(act) is True
    assert Policy([_rule("it", "deny"), _rule("high", "allow", tier=1, when=CONDITIONAL)]).is_visible(act) is True
    assert DEFAULT_POLICY.is_visible(act) is True


_PREDICATES = st.sampled_from(
    [
        (),
        (Predicate("/a", "equals", 1),),
        (Predicate("/a", "equals", 1, True),),
        (Predicate("/b", "absent"),),
        (Predicate("/a", "range", (0, 2)), Predicate("/b", "present")),
    ]
)
_HINTS = st.builds(ToolHints, *[st.sampled_from([None, True, False])] * 4)
_RULES = st.lists(
    st.builds(
        Rule,
        name=st.just("it"),
        where=st.just("p.toml"),
        effect=st.sampled_from(EFFECTS),
        tier=st.integers(0, 2),
        when=_PREDICATES,
        annotations=_HINTS,
        trusted=st.sampled_from([None, None, True, False]),
    ),
    max_size=5,
)
_ARGUMENTS = st.dictionaries(st.sampled_from("ab"), st.sampled_from([1, 2, "x", None]), max_size=2)


@given(_RULES, _ARGUMENTS, _HINTS, st.booleans())
def test_what_is_not_seen_is_denied_with_any_arguments(
    rules: list[Rule], arguments: dict[str, Any], hints: ToolHints, trusted: bool
) -> None:
    rulebook = Policy(rules)
    act = make_act(arguments=arguments, annotations=hints, trusted=trusted)
    assert rulebook.is_visible(replace(act, arguments=None)) or rulebook.decide(act).effect == "deny"


@given(_RULES, _ARGUMENTS, _HINTS, st.booleans())
def test_what_is_not_known_is_never_decided_more_kindly_than_what_is(
    rules: list[Rule], arguments: dict[str, Any], hints: ToolHints, trusted: bool
) -> None:
    rulebook = Policy(rules)
    act = make_act(arguments=arguments, annotations=hints, trusted=trusted)
    known, unknown = rulebook.decide(act).effect, rulebook.decide(replace(act, arguments=None)).effect
    assert EFFECTS.index(unknown) >= EFFECTS.index(known)


# --- hints -----------------------------------------------------------------------------------------------------------


@given(_RULES, _ARGUMENTS, _HINTS, st.booleans())
def test_hints_of_an_untrusted_server_only_raise_the_level(
    rules: list[Rule], arguments: dict[str, Any], hints: ToolHints, tainted: bool
) -> None:
    rulebook = Policy(rules)
    said = make_act(arguments=arguments, annotations=hints, tainted=tainted)
    silent = replace(said, annotations=ToolHints())
    assert EFFECTS.index(rulebook.decide(said).effect) >= EFFECTS.index(rulebook.decide(silent).effect)
    assert rulebook.is_visible(silent) or not rulebook.is_visible(said)


def test_a_lie_about_reading_opens_nothing() -> None:
    rule = _rule("readers", "allow", servers=("files",), annotations=ToolHints(read_only=True))
    act = make_act(annotations=ToolHints(read_only=True))
    assert Policy([rule]).decide(act).effect == "ask"
    assert Policy([rule]).decide(replace(act, trusted=True)).effect == "allow"


def test_hints_of_an_untrusted_server_cannot_escape_a_rule() -> None:
    rule = _rule("destroyers", "deny", annotations=ToolHints(destructive=True))
    act = make_act(annotations=ToolHints(read_only=True, destructive=False))
    assert Policy([rule]).decide(act).rule == "destroyers"
    assert Policy([rule]).decide(replace(act, trusted=True)).effect == "allow"


def test_a_hint_that_meets_a_question_does_not_hide_a_denial_below() -> None:
    rules = [
        _rule("asked", "ask", tier=1, annotations=ToolHints(open_world=False)),
        _rule("denied", "deny"),
    ]
    assert Policy(rules).decide(make_act(annotations=ToolHints(open_world=False))).rule == "denied"


# --- resources -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uri", ["file:///home/me/work/../.ssh/id", "file:/home/me/.ssh/id"])
def test_no_spelling_of_a_uri_leads_out_of_what_is_allowed_or_past_what_is_denied(uri: str) -> None:
    rules = policy(
        '[[rule]]\nname = "work"\neffect = "allow"\nserver = "files"\nuri = "file:///home/me/work/*"\n'
        '[[rule]]\nname = "keys"\neffect = "deny"\nuri = "file:///home/me/.ssh/*"\n'
    )
    assert rules.decide(make_act(f"files/{uri}", kind="resource")).rule == "keys"
    assert Policy(rules.rules[:1]).decide(make_act(f"files/{uri}", kind="resource")).rule != "work"


# --- what cannot be evaluated ----------------------------------------------------------------------------------------


def _broken(path: str) -> str:
    raise RuntimeError("no file system today")


def test_a_policy_that_cannot_be_evaluated_denies_and_says_why() -> None:
    rules = policy(EXAMPLE, path_context=PathContext(home=HOME, resolve=lambda path: path))
    broken = Policy(rules.rules, path_context=PathContext(home=HOME, resolve=_Once()))
    act = make_act("files/read_text", {"path": f"{HOME}/work/a"})
    decision = broken.decide(act)
    assert (decision.effect, decision.rule) == ("deny", "default: not evaluated")
    assert decision.reason == "the policy cannot be evaluated: RuntimeError: no file system today"
    assert broken.is_visible(act) is False


class _Once:
    """Follows the links of a rule's own folder, and fails from then on."""

    def __init__(self) -> None:
        self._asked = 0

    def __call__(self, path: str) -> str:
        self._asked += 1
        return path if self._asked == 1 else _broken(path)


def test_an_explanation_names_what_cannot_be_evaluated() -> None:
    rules = [
        _rule("paths", "deny", when=(Predicate("/path", "within", ["/work"]),)),
        _rule("hints", "deny", annotations=ToolHints(open_world=False)),
    ]
    broken = Policy(rules, path_context=PathContext(resolve=_Once()))
    trace = broken.explain(make_act(arguments={"path": "/x"}, annotations=ToolHints(open_world=False)))
    assert trace.decision.effect == "deny"
    assert [step.outcome for step in trace.steps] == ["possible", "no"]
    assert "no file system today" in trace.steps[0].why


def test_a_value_that_is_no_json_is_denied() -> None:
    rule = _rule("it", "ask", when=(Predicate("/a", "equals", 1),))
    assert Policy([rule]).decide(make_act(arguments={"a": b"raw"})).rule == "default: not evaluated"


def test_arguments_of_any_depth_are_judged() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    rule = _rule("it", "deny", when=(Predicate("/a", "equals", [["y"]]),))
    assert Policy([rule]).decide(make_act(arguments={"a": deep})).effect == "ask"


# --- explanations ----------------------------------------------------------------------------------------------------


@given(_RULES, _ARGUMENTS, _HINTS, st.booleans())
def test_an_explanation_has_the_decision_that_is_made(
    rules: list[Rule], arguments: dict[str, Any], hints: ToolHints, trusted: bool
) -> None:
    rulebook = Policy(rules)
    act = make_act(arguments=arguments, annotations=hints, trusted=trusted)
    trace = rulebook.explain(act)
    assert trace.decision == rulebook.decide(act)
    decided = [step for step in trace.steps if step.outcome == "decided"]
    assert len(decided) == (not trace.decision.rule.startswith("default"))
    assert len(trace.steps) == len(rules)


def test_an_explanation_lists_the_rules_in_evaluation_order() -> None:
    rules = [
        _rule("prompts", "deny", kinds=("prompt",)),
        _rule("other server", "deny", servers=("mail", "chat")),
        _rule("other tool", "deny", names=("write_*",)),
        _rule("condition", "deny", callers=("model",), tainted=False),
        _rule("late", "allow", expires=9.0, trusted=False),
        _rule("decides", "ask"),
        _rule("later", "ask", principals=("a*",), profiles=("p", "q")),
    ]
    act = make_act(principal="al", profile="q")
    trace = Policy(rules).explain(act)
    assert [(step.rule, step.outcome, step.why, step.relevant) for step in trace.steps] == [
        ("prompts", "no", "it is about prompt, not tool", False),
        ("other server", "no", "its server is mail or chat", False),
        ("other tool", "no", "it is about write_*", False),
        ("condition", "no", "not so: caller is 'model'", True),
        ("decides", "decided", "it has no conditions", True),
        ("later", "matched", "principal is 'a*'; profile is 'p' or 'q'", True),
        ("late", "possible", "not known: not expired", True),
    ]


def test_an_explanation_says_what_became_of_an_untrusted_server_s_hints() -> None:
    rules = Policy([_rule("it", "deny", annotations=ToolHints(read_only=True, open_world=False))])
    ignored = rules.explain(make_act(annotations=ToolHints(read_only=True)))
    raised = rules.explain(make_act(annotations=ToolHints(read_only=True, open_world=False)))
    believed = rules.explain(make_act(annotations=ToolHints(read_only=True), trusted=True))
    assert ignored.notes == ("the server is not trusted: its hints are ignored",)
    assert raised.notes == ("the server is not trusted: its hints made the decision stricter",)
    assert raised.steps[0].why == "read_only is true and open_world is false"
    assert believed.notes == ()


# --- the rest --------------------------------------------------------------------------------------------------------


def test_what_is_remembered_of_names_is_bounded() -> None:
    rules = Policy([_rule("it", "deny", names=("x*",))])
    effects = {rules.decide(make_act(f"s/{at}")).effect for at in range(5000)}
    assert effects == {"ask"}
    assert len(rules._names) <= 4096
    assert rules.decide(make_act(f"{'s' * 600}/x{'y' * 600}")).rule == "it"
    assert not any(len(name) > 512 for _, _, name in rules._names)


@pytest.mark.parametrize(
    ("act", "matches"),
    [
        (make_act("mail/send"), True),
        (make_act("mail/read"), False),
        (make_act("chat/send"), False),
        (Act(kind="prompt", server="mail", name="send"), False),
    ],
)
def test_a_redaction_is_about_what_it_names(act: Act, matches: bool) -> None:
    rules = policy('[[redact]]\nserver = "mail"\ntool = "send*"\narg = "/password"\n')
    assert rules.redactions[0].matches(act) is matches
    assert rules.redactions[0].where == "p.toml:1"


HINTS = (None, True, False)
ALL_HINTS = [ToolHints(*each) for each in product(HINTS, repeat=4)]


def _tool(hints: ToolHints, *, trusted: bool, tainted: bool) -> Act:
    return make_act(annotations=hints, trusted=trusted, tainted=tainted)


@pytest.mark.parametrize("tainted", [False, True], ids=["clean", "tainted"])
def test_a_tool_of_an_untrusted_server_is_asked_about_whatever_it_says(tainted: bool) -> None:
    decisions = {DEFAULT_POLICY.decide(_tool(hints, trusted=False, tainted=tainted)).effect for hints in ALL_HINTS}
    assert decisions == {"ask"}


@pytest.mark.parametrize(
    ("read_only", "destructive", "open_world", "tainted", "effect"),
    [
        (True, None, None, False, "allow"),
        (True, None, None, True, "ask"),
        (True, None, True, False, "allow"),
        (True, None, True, True, "ask"),
        (True, None, False, True, "allow"),
        (True, False, False, False, "allow"),
        (True, True, False, False, "ask"),
        (None, None, None, False, "ask"),
        (False, False, False, False, "ask"),
        (None, False, False, False, "ask"),
    ],
)
def test_a_tool_of_a_trusted_server_is_allowed_only_if_it_reads(
    read_only: bool | None, destructive: bool | None, open_world: bool | None, tainted: bool, effect: str
) -> None:
    hints = ToolHints(read_only=read_only, destructive=destructive, open_world=open_world)
    assert DEFAULT_POLICY.decide(_tool(hints, trusted=True, tainted=tainted)).effect == effect


@pytest.mark.parametrize("kind", ["resource", "prompt"])
@pytest.mark.parametrize(("tainted", "effect"), [(False, "allow"), (True, "allow")])
def test_resources_and_prompts_are_for_the_user_to_pick(kind: str, tainted: bool, effect: str) -> None:
    assert DEFAULT_POLICY.decide(make_act(kind=kind, tainted=tainted)).effect == effect


@pytest.mark.parametrize("kind", ["sampling", "elicitation", "roots"])
@pytest.mark.parametrize("trusted", [False, True], ids=["untrusted", "trusted"])
def test_a_question_of_a_server_is_reviewed(kind: str, trusted: bool) -> None:
    assert DEFAULT_POLICY.decide(make_act(kind=kind, trusted=trusted, caller="server")).effect == "ask"


def test_nothing_said_is_the_worst() -> None:
    assert effective_hints(ToolHints()) == ToolHints(
        read_only=False, destructive=True, idempotent=False, open_world=True
    )
