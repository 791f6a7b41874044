"""Positions of all values in a JSON text, which may have comments and trailing commas as editors allow them.

The text was parsed before (``config/positions``), so it is assumed to be valid here. No I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from msgspec import Struct

__all__ = ["Named", "Span", "span_of", "walk"]

_BETWEEN = re.compile(r"(?:[ \t\r\n]|//[^\r\n]*|/\*.*?\*/)*", re.S)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
_WORD = re.compile(r"[^\s,:\[\]{}\"/]+")


class Span(Struct, frozen=True):
    """The position of a value, from its first character to after its last."""

    start: int
    end: int
    #: The members of an object, in order.
    members: tuple[Named, ...] = ()
    items: tuple[Span, ...] = ()
    #: The position after a trailing comma, if there is one.
    comma: int | None = None

    def member(self, name: str) -> Span | None:
        """Return the value of a member; the last one if there are several."""
        return next((each.value for each in reversed(self.members) if each.name == name), None)


class Named(Struct, frozen=True):
    """A member of an object: its name, where the name begins, and its value."""

    name: str
    start: int
    value: Span


def span_of(text: str) -> Span:
    """Return the positions of all values in a JSON text."""
    return _value(text, _skip(text, 0))


def walk(span: Span, way: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Span]]:
    """Yield every value with its key path."""
    yield way, span
    for member in span.members:
        yield from walk(member.value, (*way, member.name))
    for at, item in enumerate(span.items):
        yield from walk(item, (*way, at))


def _skip(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    assert found is not None
    return found.end()


def _value(text: str, at: int) -> Span:
    if text[at] == "{":
        return _object(text, at)
    if text[at] == "[":
        return _array(text, at)
    found = (_STRING if text[at] == '"' else _WORD).match(text, at)
    assert found is not None
    return Span(at, found.end())


def _object(text: str, start: int) -> Span:
    members: list[Named] = []
    comma: int | None = None
    at = _skip(text, start + 1)
    while text[at] != "}":
        quoted = _STRING.match(text, at)
        assert quoted is not None
        colon = _skip(text, quoted.end())
        value = _value(text, _skip(text, colon + 1))
        members.append(Named(json.loads(quoted.group(), strict=False), at, value))
        at, comma = _after(text, value.end)
    return Span(start, at + 1, tuple(members), comma=comma)


def _array(text: str, start: int) -> Span:
    items: list[Span] = []
    comma: int | None = None
    at = _skip(text, start + 1)
    while text[at] != "]":
        items.append(_value(text, at))
        at, comma = _after(text, items[-1].end)
    return Span(start, at + 1, items=tuple(items), comma=comma)


def _after(text: str, end: int) -> tuple[int, int | None]:
    """Skip the comma after an item; return the position of what follows, and that after the comma or None."""
    at = _skip(text, end)
    if text[at] != ",":
        return at, None
    return _skip(text, at + 1), at + 1
