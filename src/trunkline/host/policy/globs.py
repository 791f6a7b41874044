"""Globs over names: ``*`` is any text, ``?`` one character, ``[abc]`` and ``[!a-z]`` one of a set or none of it.

Nothing else is special. Names are compared exactly, without case folding, and ``*`` crosses slashes and dots too. A
match takes time linear in the text, for any pattern: a piece between two stars has a fixed length, its first occurrence
is as good as any, and the match never backtracks over it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

__all__ = ["GlobError", "Matcher", "any_glob", "compile_glob", "escape_glob", "is_glob"]

#: Returns a truthy value if a text matches.
Matcher: TypeAlias = Callable[[str], object]

_SPECIAL = frozenset("*?[")


class GlobError(ValueError):
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
                raise GlobError(f"{pattern!r} has '**': a single '*' matches any text already, slashes included")
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
        raise GlobError(f"{pattern!r} has '[^': write '[!' for every character but these")
    # A bracket in the first position belongs to the set, which cannot be empty.
    end = pattern.find("]", start + 1)
    if end < 0:
        raise GlobError(f"{pattern!r} has a '[' without its ']': write '[[]' for a bracket itself")
    inside, body = pattern[start:end], ""
    at = 0
    while at < len(inside):
        first, last = inside[at], inside[at]
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
            last = inside[at + 2]
            at += 2
        if last < first:
            raise GlobError(f"{pattern!r} has the empty range {first}-{last}")
        body += f"\\U{ord(first):08x}-\\U{ord(last):08x}"
        at += 1
    return end + 1, f"[{'^' if negated else ''}{body}]"
