"""The patterns of rules: globs over names, and JSON pointers (RFC 6901) into arguments, with * for every element.

In a glob * is any text, slashes and dots included, ? one character, [abc] and [!a-z] one of a set or none of it;
names are compared exactly. Matching takes time linear in the text, for any pattern. A pointer leads to values or to
one of two marks: MISSING, there is nothing; UNJUDGED, the path leads through a value that is neither object nor
array, or to more elements than are examined, and a server may still find a value there (such as JSON inside a
string), so nothing may be concluded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, TypeAlias

__all__ = [
    "MISSING",
    "UNJUDGED",
    "InvalidGlob",
    "InvalidPointer",
    "Matcher",
    "PointerMark",
    "any_glob",
    "compile_glob",
    "escape_glob",
    "is_glob",
    "parse_pointer",
    "resolve_pointer",
]

#: Returns a truthy value if a text matches.
Matcher: TypeAlias = Callable[[str], object]

_SPECIAL = frozenset("*?[")


class InvalidGlob(ValueError):
    """A pattern is not a valid glob; the message says why and what to write."""


def is_glob(pattern: str) -> bool:
    """Return True if a pattern has wildcards, False if it is a literal name."""
    return not _SPECIAL.isdisjoint(pattern)


def compile_glob(pattern: str) -> Matcher:
    """Compile a pattern into a matcher.

    Raises:
        InvalidGlob: the pattern is invalid.
    """
    if not is_glob(pattern):
        return pattern.__eq__
    pieces = _pieces(pattern)
    before, _, after = pattern.partition("*")
    if pattern == "*":
        return _anything
    if not after and not is_glob(before):
        return lambda text: text.startswith(before)
    if not before and not is_glob(after):
        return lambda text: text.endswith(after)
    return re.compile(_expression(pieces), re.DOTALL).fullmatch


def escape_glob(text: str) -> str:
    """Return the pattern that matches a text and nothing else."""
    return "".join(f"[{character}]" if character in _SPECIAL else character for character in text)


def any_glob(patterns: Iterable[str]) -> Matcher:
    """Compile patterns into a matcher that matches if one of them does."""
    literals = frozenset(each for each in patterns if not is_glob(each))
    globs = tuple(compile_glob(each) for each in patterns if is_glob(each))
    if not globs:
        return literals.__contains__
    if not literals and len(globs) == 1:
        return globs[0]
    return lambda text: text in literals or any(fits(text) for fits in globs)


def _anything(text: str) -> bool:
    return True


def _expression(pieces: list[str]) -> str:
    if len(pieces) == 1:
        return pieces[0]
    head, *middle, tail = pieces
    # Atomic groups: the first occurrence of a piece is kept, so that no pattern can cause backtracking.
    return head + "".join(f"(?>.*?{piece})" for piece in middle) + ".*" + tail


def _pieces(pattern: str) -> list[str]:
    """Split a pattern at its stars; each piece is an expression of fixed length."""
    pieces = [""]
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "*":
            if pattern[at : at + 1] == "*":
                raise InvalidGlob(f"{pattern!r} has '**': a single '*' matches any text already, slashes included")
            pieces.append("")
        elif character == "?":
            pieces[-1] += "."
        elif character == "[":
            at, expression = _set(pattern, at)
            pieces[-1] += expression
        else:
            pieces[-1] += re.escape(character)
    return pieces


def _set(pattern: str, start: int) -> tuple[int, str]:
    """Parse a set of characters after its bracket; return where it ends, and its expression."""
    negated = pattern[start : start + 1] == "!"
    start += negated
    if pattern[start : start + 1] == "^":
        raise InvalidGlob(f"{pattern!r} has '[^': write '[!' for every character but these")
    # A bracket in the first position belongs to the set, which cannot be empty.
    end = pattern.find("]", start + 1)
    if end < 0:
        raise InvalidGlob(f"{pattern!r} has a '[' without its ']': write '[[]' for a bracket itself")
    inside, body = pattern[start:end], ""
    at = 0
    while at < len(inside):
        first, last = inside[at], inside[at]
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
            last = inside[at + 2]
            at += 2
        if last < first:
            raise InvalidGlob(f"{pattern!r} has the empty range {first}-{last}")
        body += f"\\U{ord(first):08x}-\\U{ord(last):08x}"
        at += 1
    return end + 1, f"[{'^' if negated else ''}{body}]"


class PointerMark(Enum):
    """The result of a pointer that does not lead to a value."""

    MISSING = "nothing"
    UNJUDGED = "something that cannot be judged"


MISSING = PointerMark.MISSING
UNJUDGED = PointerMark.UNJUDGED

_MOST_PARTS = 32  # Arguments are nested a few levels deep.
_MOST_FOUND = 10_000  # A wildcard may match every item of a list; rules are evaluated before every call.
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_LONE_TILDE = re.compile(r"~(?![01])")


class InvalidPointer(ValueError):
    """A text is not a JSON pointer; the message says why and what to write."""


def parse_pointer(text: str) -> tuple[str, ...]:
    """Split a pointer into its unescaped parts.

    Raises:
        InvalidPointer: it is not a valid pointer.
    """
    if text and not text.startswith("/"):
        raise InvalidPointer(f"{text!r} is not a JSON pointer: write {'/' + text!r}")
    if _LONE_TILDE.search(text):
        raise InvalidPointer(f"{text!r} has a '~' by itself: write '~0' for '~' and '~1' for '/'")
    parts = tuple(part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:])
    if len(parts) > _MOST_PARTS:
        raise InvalidPointer(f"the pointer has {len(parts)} parts; the limit is {_MOST_PARTS}")
    return parts


def resolve_pointer(arguments: Mapping[str, Any], parts: tuple[str, ...]) -> list[Any]:
    """Return the values that a pointer leads to: one, or several if it has a ``*``; the list is never empty."""
    found: list[Any] = [arguments]
    for part in parts:
        if part == "*":
            found = [inner for value in found for inner in _elements(value)]
        else:
            found = [_member(value, part) for value in found]
        if len(found) > _MOST_FOUND:
            return [UNJUDGED]
    return found


def _member(value: Any, part: str) -> Any:
    if isinstance(value, dict | Mapping):
        return value.get(part, MISSING)
    if isinstance(value, list) and _INDEX.fullmatch(part):
        at = int(part)
        return value[at] if at < len(value) else MISSING
    return MISSING if value is MISSING else UNJUDGED


def _elements(value: Any) -> list[Any]:
    if isinstance(value, dict | Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return value or [MISSING]
    return [MISSING if value is MISSING else UNJUDGED]
