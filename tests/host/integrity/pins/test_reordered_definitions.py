"""Definitions that differ only in order: where any order is accepted afterwards, and where it is not."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.host.integrity.pins.definitions import (
    is_accepted_order,
    only_listings_differ,
    only_order_differs,
    reorderable_places,
)

COMMANDS = ["ls", "cat", "pwd", "grep", "wc", "git-log", "~/bin/x"]


def tool(description: str = "Run a command.", **members: Any) -> dict[str, Any]:
    return {"name": "run", "description": description, "inputSchema": {"type": "object"}, **members}


def default(value: Any) -> dict[str, Any]:
    return tool(inputSchema={"type": "object", "properties": {"a/b": {"default": value}}})


#: How programs write a set into a text.
STYLES: list[Any] = [
    pytest.param("Allowed commands: {}", ", ".join, id="after a colon"),
    pytest.param("Allowed: {}. Never delete anything.", ", ".join, id="before a sentence"),
    pytest.param("One of {}.", lambda words: f"{{{', '.join(map(repr, words))}}}", id="the set itself"),
    pytest.param("{}", ",".join, id="commas alone"),
    pytest.param("Commands:\n{}\n\nBe careful.", lambda words: "\n".join(f"- {word}" for word in words), id="lines"),
    pytest.param("Use ({}) only.", " | ".join, id="bars"),
    pytest.param("`{}`", "` `".join, id="quoted"),
]


def orders(count: int) -> list[list[str]]:
    chance = random.Random(13)
    return [chance.sample(COMMANDS, len(COMMANDS)) for _ in range(count)]


def written(text: str, join: Any, words: list[str]) -> dict[str, Any]:
    return tool(text.format(join(words)))


@pytest.mark.parametrize(("text", "join"), STYLES)
def test_after_one_order_was_accepted_for_another_any_order_is(text: str, join: Any) -> None:
    first, second, *others = (written(text, join, words) for words in orders(30))
    assert only_order_differs(first, second)
    free = reorderable_places(first, second)
    assert all(is_accepted_order(free, second, other) for other in (first, second, *others))


@pytest.mark.parametrize("length", [2, 3, 12])
def test_the_elements_of_a_list_may_be_in_any_order_too(length: int) -> None:
    chance, values = random.Random(13), [f"v{number}" for number in range(length)]
    free = reorderable_places(default(values), default(values[::-1]))
    assert free == {"/inputSchema/properties/a~1b/default": (0, 0)}
    assert all(
        is_accepted_order(free, default(values[::-1]), default(chance.sample(values, length))) for _ in range(10)
    )


ACCEPTED = tool("Allowed: ls, cat, rm. Never delete without asking. Tell the user.")
SHUFFLED = tool("Allowed: rm, ls, cat. Never delete without asking. Tell the user.")


@pytest.mark.parametrize(
    "text",
    [
        "Allowed: rm, ls, cat. Never ask without deleting. Tell the user.",
        "Allowed: rm, ls, cat. Never tell the user. delete without asking.",
        "Never: rm, ls, cat. Allowed delete without asking. Tell the user.",
        "Allowed: rm, ls, delete. Never cat without asking. Tell the user.",
        "Allowed: rm, ls, cat, dd. Never delete without asking. Tell the user.",
        "Allowed: rm, ls, ls. Never delete without asking. Tell the user.",
        "Allowed: rm, ls, cat.\u200b Never delete without asking. Tell the user.",
        "Allowed: rm ,ls, cat. Never delete without asking. Tell the User.",
    ],
    ids=["another sentence", "further on", "before", "across", "one more", "one twice", "unseen", "a letter"],
)
def test_only_the_sentence_whose_words_moved_is_free(text: str) -> None:
    free = reorderable_places(ACCEPTED, SHUFFLED)
    assert is_accepted_order(free, SHUFFLED, tool("Allowed: cat, rm, ls. Never delete without asking. Tell the user."))
    assert not is_accepted_order(free, SHUFFLED, tool(text))


def test_another_place_is_not_free() -> None:
    free = reorderable_places(ACCEPTED, SHUFFLED)
    moved = {**SHUFFLED, "title": "b a"}
    assert not is_accepted_order(free, {**SHUFFLED, "title": "a b"}, moved)


def test_nothing_is_free_if_anything_but_order_differs() -> None:
    assert reorderable_places(ACCEPTED, {**SHUFFLED, "title": "New"}) == {}
    assert not only_order_differs(ACCEPTED, {**SHUFFLED, "title": "New"})
    assert not only_order_differs(ACCEPTED, ACCEPTED)


def test_a_place_grows_with_what_is_accepted_later() -> None:
    """Where the items are sentences, the first orders may show only a part of what is shuffled."""
    one, two, three = (f"Commands:\n- {a}: x.\n- {b}: x.\n- {c}: x." for a, b, c in ("abc", "acb", "bca"))
    free = reorderable_places(tool(one), tool(two))
    assert not is_accepted_order(free, tool(two), tool(three))
    free = reorderable_places(tool(two), tool(three), free)
    assert all(is_accepted_order(free, tool(three), tool(text)) for text in (one, two, three))


@pytest.mark.parametrize(
    ("before", "after"),
    [([True, 1], [1, True]), ([{"a": 1}, {"b": 2}], [{"b": 2}, {"a": 1}]), (["x", ["y"]], [["y"], "x"])],
)
def test_elements_of_any_kind_are_distinguished(before: list[Any], after: list[Any]) -> None:
    assert only_order_differs(default(before), default(after))
    assert not only_order_differs(default(before), default([*after[:-1], "z"]))
    assert not only_order_differs(default([True]), default([1]))


@given(st.text(max_size=60), st.randoms())
def test_a_shuffled_text_is_within_what_it_frees(text: str, chance: random.Random) -> None:
    words = text.split(" ")
    chance.shuffle(words)
    shuffled = " ".join(words)
    free = reorderable_places(text, shuffled)
    if free:
        assert is_accepted_order(free, shuffled, text)
        assert is_accepted_order(free, shuffled, shuffled)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("Allowed: ls, cat, v1.2. Ask first.", "Allowed: v1.2, ls, cat. Ask first.", True),
        ("Fields: {'a', 'b', 'c'}", "Fields: {'c', 'a', 'b'}", True),
        ("a,b,c", "c,b,a", True),
        ("Do: never delete, always ask, stop.", "Do: always delete, never ask, stop.", False),
        ("delete nothing, ask, confirm.", "delete ask, nothing, confirm.", False),
        ("a point (lat, lon)", "a point (lon, lat)", False),
        ("one: a, a, b", "one: a, b, b", False),
        (["a", "b", "c"], ["c", "b", "a"], True),
        (["a b", "b", "c"], ["c", "b", "a b"], False),
    ],
    ids=["words", "set", "commas", "phrases", "first-of-a-phrase", "pair", "repeated", "list", "list-of-phrases"],
)
def test_only_listings_of_single_words_may_have_any_order_unasked(before: Any, after: Any, expected: bool) -> None:
    assert only_listings_differ({"description": before}, {"description": after}) is expected
