"""The differences between two definitions, in a form that a person sees at once.

Member by member, down into schemas, each difference under its JSON pointer; for texts the removed and added words, with
a little context. Invisible characters are escaped. Pure; it knows JSON and nothing about servers. The work is bounded,
since both sides come from untrusted servers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from trunkline.host.pins.pin import canonical
from trunkline.host.scan.characters import visible

__all__ = ["Change", "Difference", "brief", "compare", "same_but_for_name"]

Difference: TypeAlias = Literal["added", "removed", "changed"]

_MOST_CHANGES = 200
_MOST_WORDS = 3000
_LONGEST_VALUE = 4000
_AROUND = 4
_MOST_BRIEF = 3
_LONGEST_BRIEF = 160
_SIGNS: Mapping[Difference, str] = MappingProxyType({"added": "+", "removed": "-", "changed": "~"})
_WORDS = re.compile(r"\s+|[^\s]+")


class Change(Struct, frozen=True):
    """One difference."""

    #: The JSON pointer of the place; empty for the whole definition.
    pointer: str
    what: Difference
    #: The added value, the removed value, or both with ``[-…-]`` around the old text and ``{+…+}`` around the new.
    text: str

    def __str__(self) -> str:
        """Format it as a line, or as many as the text has."""
        return f"{_SIGNS[self.what]} {visible(self.pointer) or '(all of it)'}: {self.text}"


def compare(before: Any, after: Any) -> tuple[Change, ...]:
    """Return the differences between two JSON values; none if they are equal."""
    found: list[Change] = []
    for change in _differences("", before, after):
        if len(found) == _MOST_CHANGES:
            found.append(Change("", "changed", f"more than {_MOST_CHANGES} differences; the rest is not shown"))
            break
        found.append(change)
    return tuple(found)


def brief(changes: Sequence[Change | str]) -> str:
    """Format changes as one line for a message: the first few, each shortened."""
    told = [" ".join(str(change).split()) for change in changes[:_MOST_BRIEF]]
    cut = [text if len(text) <= _LONGEST_BRIEF else f"{text[:_LONGEST_BRIEF]}..." for text in told]
    more = len(changes) - len(told)
    return "; ".join([*cut, f"and {more} more"] if more else cut)


def same_but_for_name(one: Any, other: Any) -> bool:
    """Return True if two definitions have the same text and arguments under different names: one was renamed."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    kept = ("description", "inputSchema", "arguments", "uriTemplate")
    said = [{key: each[key] for key in kept if each.get(key)} for each in (one, other)]
    return "description" in said[0] and said[0] == said[1] and one.get("name") != other.get("name")


def _differences(pointer: str, before: Any, after: Any) -> Iterator[Change]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _members(pointer, before, after)
        return
    if isinstance(before, list) and isinstance(after, list):
        one, other = _by_name(before), _by_name(after)
        if one is not None and other is not None:
            yield from _members(pointer, one, other)
            if list(one) != list(other) and set(one) == set(other):
                yield Change(pointer, "changed", f"the order is now {visible(', '.join(other))}")
            return
    if isinstance(before, str) and isinstance(after, str):
        if before != after:
            yield Change(pointer, "changed", _words(before, after))
    # Compared in canonical form: in Python, True equals 1.
    elif canonical(before) != canonical(after):
        yield Change(pointer, "changed", f"[-{_json(before)}-] {{+{_json(after)}+}}")


def _members(pointer: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for name in sorted({*before, *after}):
        below = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in after:
            yield Change(below, "removed", _value(before[name]))
        elif name not in before:
            yield Change(below, "added", _value(after[name]))
        else:
            yield from _differences(below, before[name], after[name])


def _by_name(values: list[Any]) -> dict[str, Any] | None:
    """Return the elements of a list by name; None unless all have a unique one."""
    names = [each.get("name") if isinstance(each, dict) else None for each in values]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return None
    return {str(name): each for name, each in zip(names, values, strict=True)}


def _value(value: Any) -> str:
    return visible(_cut(value)) if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return visible(_cut(msgspec.json.encode(value).decode()))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}... ({len(text)} characters)"


# --- words -----------------------------------------------------------------------------------------------------------


def _words(before: str, after: str) -> str:
    """Return the changes of a text, with removed and added words marked."""
    one, other = _WORDS.findall(before), _WORDS.findall(after)
    start = _shared(one, other)
    end = _shared(one[start:][::-1], other[start:][::-1])
    middle = one[start : len(one) - end], other[start : len(other) - end]
    pieces = [_context(one[:start], last=False)]
    if max(map(len, middle)) > _MOST_WORDS:
        pieces += _replaced(*middle)
    else:
        for what, left, right, below, above in SequenceMatcher(None, *middle, autojunk=False).get_opcodes():
            gone, come = middle[0][left:right], middle[1][below:above]
            pieces += [_context(gone, last=None)] if what == "equal" else _replaced(gone, come)
    pieces.append(_context(one[len(one) - end :], last=True))
    return visible("".join(pieces))


def _shared(one: list[str], other: list[str]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _replaced(gone: list[str], come: list[str]) -> list[str]:
    return [f"[-{_cut(''.join(gone))}-]" if gone else "", f"{{+{_cut(''.join(come))}+}}" if come else ""]


def _context(words: list[str], *, last: bool | None) -> str:
    """Return some words of unchanged text as context: its end, its start, or both."""
    most = 2 * _AROUND
    if len(words) <= 2 * most:
        return "".join(words)
    head, tail = "".join(words[:most]), "".join(words[-most:])
    return {False: f"...{tail}", True: f"{head}...", None: f"{head}...{tail}"}[last]
