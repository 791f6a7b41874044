"""What holds where no rule decides."""

from __future__ import annotations

from itertools import product

import pytest

from tests.host.authorization.policy.support import make_act
from trunkline.host.authorization.policy import DEFAULT_POLICY, Act, ToolHints
from trunkline.host.authorization.policy.decisions import effective_hints

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


def test_a_default_has_a_name_and_a_reason() -> None:
    decision = DEFAULT_POLICY.decide(make_act())
    assert decision.rule == "default: untrusted server"
    assert decision.reason == "the server is not trusted, and no rule allows it"
    assert decision.message is None


def test_nothing_said_is_the_worst() -> None:
    assert effective_hints(ToolHints()) == ToolHints(
        read_only=False, destructive=True, idempotent=False, open_world=True
    )


def test_a_read_only_tool_is_not_destructive_by_default() -> None:
    assert effective_hints(ToolHints(read_only=True)).destructive is False
    assert effective_hints(ToolHints(read_only=True, destructive=True)).destructive is True
