"""Definitions that differ in nothing but order: the same words in a text, the same elements in a list.

Some servers build texts and lists from sets, whose order differs at every start. No number of accepted definitions
covers that, since a list of twelve has 479,001,600 orders. So accepting a definition that differs *only* in order
accepts every order from then on, in the places where the order differed and nowhere else: a list, or the sentence of a
text in which words moved. What stands before and after that sentence stays as it was accepted, and so does every word.

Pure; it knows JSON and nothing about servers. The pin store bounds the size of both definitions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from trunkline.host.pins.pin import canonical, normal_form

__all__ = ["NO_ORDERS", "Orders", "free_orders", "is_within", "only_order_differs"]

#: The places where any order is accepted, by JSON pointer: how many characters at the start and at the end of a text
#: stay as they are. Both are 0 for a list.
Orders: TypeAlias = Mapping[str, tuple[int, int]]
NO_ORDERS: Orders = MappingProxyType({})

# A word ends at white space and at what separates the items of a list, so that "a,b", "{'a', 'b'}" and "a | b" are two
# words each; paths, options and names with dashes are one.
_PIECES = re.compile(r"[^\s,;:|(){}\[\]\"'`<>]+|[\s,;:|(){}\[\]\"'`<>]")
_SENTENCE_ENDS = re.compile(r"(?<=[.!?:])\s|\n\s*\n")
_FULL_STOPS = ".!?"


class _Move(NamedTuple):
    """A place where the order differs."""

    #: How many characters at the start and at the end of a text are the same; 0 for a list.
    start: int = 0
    end: int = 0
    #: The text as it is now; None for a list.
    text: str | None = None


def only_order_differs(before: Any, after: Any) -> bool:
    """Return True if two definitions have the same words and elements, in another order."""
    return bool(_moves(before, after))


def free_orders(before: Any, after: Any, known: Orders = NO_ORDERS) -> dict[str, tuple[int, int]]:
    """Return where any order is accepted once ``after`` replaces ``before``; empty if more than the order differs.

    ``known`` are the places where any order was accepted already. A text is free from the beginning of the sentence in
    which the first word moved to the end of the sentence of the last: with a single pair of orders, the first items of
    a list may be at the same place by chance.
    """
    moves = _moves(before, after)
    if moves is None:
        return {}
    free = {pointer: _widened(move) for pointer, move in moves.items()}
    for pointer, (start, end) in known.items():
        other_start, other_end = free.get(pointer, (start, end))
        free[pointer] = min(start, other_start), min(end, other_end)
    return free


def is_within(orders: Orders, before: Any, after: Any) -> bool:
    """Return True if a definition differs from an accepted one only in order, and only where any order is accepted."""
    moves = _moves(before, after) if orders else None
    if moves is None:
        return False
    return all(
        pointer in orders and move.start >= orders[pointer][0] and move.end >= orders[pointer][1]
        for pointer, move in moves.items()
    )


def _moves(before: Any, after: Any) -> dict[str, _Move] | None:
    """Return the places where two definitions differ in order; None if they also differ in anything else."""
    found: dict[str, _Move] = {}
    return found if _differ_in_order("", normal_form(before), normal_form(after), found) else None


def _differ_in_order(pointer: str, before: Any, after: Any, found: dict[str, _Move]) -> bool:
    """Add the places where the order differs to ``found``; return False if anything else differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(
            _differ_in_order(f"{pointer}/{_escaped(name)}", before[name], after[name], found) for name in before
        )
    if isinstance(before, list) and isinstance(after, list):
        return _lists_differ_in_order(pointer, before, after, found)
    if isinstance(before, str) and isinstance(after, str):
        if before != after:
            if Counter(_words(before)) != Counter(_words(after)):
                return False
            found[pointer] = _Move(*_fixed_ends(before, after), after)
        return True
    # Compared in canonical form: in Python, True equals 1.
    return canonical(before) == canonical(after)


def _lists_differ_in_order(pointer: str, before: list[Any], after: list[Any], found: dict[str, _Move]) -> bool:
    one, other = [*map(canonical, before)], [*map(canonical, after)]
    if one == other:
        return True
    if sorted(one) == sorted(other):
        found[pointer] = _Move()
        return True
    return len(before) == len(after) and all(
        _differ_in_order(f"{pointer}/{number}", *pair, found)
        for number, pair in enumerate(zip(before, after, strict=True))
    )


def _words(text: str) -> Iterator[str]:
    """Split a text into words, separators and full stops; together they are the whole text."""
    for piece in _PIECES.findall(text):
        word = piece.rstrip(_FULL_STOPS)
        if word:
            yield word
        yield from piece[len(word) :]


def _fixed_ends(before: str, after: str) -> tuple[int, int]:
    """Return how many characters two texts of the same length share at the start and at the end."""
    start = _shared(before, after)
    return start, _shared(before[start:][::-1], after[start:][::-1])


def _shared(one: str, other: str) -> int:
    return next((number for number, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), len(one))


def _widened(move: _Move) -> tuple[int, int]:
    """Return the fixed ends of a text, moved outwards to whole sentences; (0, 0) for a list."""
    if move.text is None:
        return 0, 0
    first = max((found.end() for found in _SENTENCE_ENDS.finditer(move.text, 0, move.start)), default=0)
    last = _SENTENCE_ENDS.search(move.text, len(move.text) - move.end)
    return first, 0 if last is None else len(move.text) - last.start()


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
