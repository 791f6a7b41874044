"""The snapshot of what a server offers."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.server.registry import EMPTY

THING: Any = object()


def test_adding_returns_a_new_snapshot_and_keeps_the_old_one() -> None:
    more = EMPTY.adding("tools", "a", THING)
    assert (dict(EMPTY.tools), dict(more.tools)) == ({}, {"a": THING})


def test_every_change_has_a_number_of_its_own() -> None:
    added = EMPTY.adding("tools", "a", THING)
    assert (EMPTY.counter, added.counter, added.removing("tools", "a").counter) == (0, 1, 2)


def test_a_taken_name_is_rejected() -> None:
    taken = EMPTY.adding("prompts", "a", THING)
    with pytest.raises(ValueError, match="prompt 'a' exists already"):
        taken.adding("prompts", "a", THING)


def test_removing_an_unknown_definition_is_rejected() -> None:
    with pytest.raises(KeyError, match="there is no resource 'x://y'"):
        EMPTY.removing("resources", "x://y")


def test_definitions_of_two_kinds_may_have_the_same_name() -> None:
    both = EMPTY.adding("tools", "a", THING).adding("prompts", "a", THING)
    assert (list(both.tools), list(both.prompts)) == (["a"], ["a"])
