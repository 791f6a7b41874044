"""Glob patterns for paths: ``*``, ``?``, ``[a-z]``, ``{a,b}`` and ``**`` over folders, matched in polynomial time.

Patterns are not turned into regular expressions, since one with many stars can run for hours. ``*`` also matches names
that begin with a dot. A pattern that begins with ``!`` matches what the rest does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from trunkline.errors import ToolError

__all__ = ["GlobPattern", "exclude_filter"]

_LONGEST = 2000
#: How many patterns one with braces may expand to, and the total length of these or of all exclude patterns.
_MOST_VARIANTS = 500
_LONGEST_TOGETHER = 20_000
_BRACES = re.compile(r"(?<!\\)\{([^{}]*)\}")
_NUMBERS = re.compile(r"(-?\d{1,6})\.\.(-?\d{1,6})\Z")
_EITHER = re.compile(r"(?<!\\)[@?]\(([^()]*)\)")
_SPECIAL = re.compile(r"[?\[\\]")
_UNSUPPORTED = re.compile(r"(?<!\\)[*+!]\([^()]*\)")

#: One step of matching: a test of one item, or None for any number of items.
_Test = Callable[[str], bool]
_Steps = Sequence[_Test | None]
T = TypeVar("T")


class GlobPattern:
    """A pattern for paths relative to the start of a search."""

    __slots__ = ("_negated", "_variants", "length")

    def __init__(self, text: str) -> None:
        """Parse a pattern.

        Raises:
            ToolError: it is too long, or uses unsupported syntax.
        """
        if len(text) > _LONGEST:
            raise ToolError(f"A pattern has at most {_LONGEST} characters.")
        bare = text.lstrip("!") if not text.startswith("!(") else text
        if _UNSUPPORTED.search(bare):
            raise ToolError("Patterns know *, ?, [a-z], {a,b} and **, but not +(...), *(...) and !(...).")
        self._negated = (len(text) - len(bare)) % 2 == 1
        # A pattern that begins with # is a comment.
        written_out = [] if bare.startswith("#") else _variants(_alternatives(bare))
        #: Its length with braces expanded.
        self.length = sum(map(len, written_out))
        self._variants = [_folders(each) for each in written_out]

    def matches(self, path: str) -> bool:
        """Return True if a relative path matches."""
        names = path.split("/")
        return any(_matches(variant, names) for variant in self._variants) != self._negated


def exclude_filter(texts: Sequence[str], *, anywhere: bool) -> Callable[[str], bool]:
    """Return a test for excluded paths; with ``anywhere``, patterns without stars match at any depth."""
    _check_together(texts)
    wanted = list(texts)
    if anywhere:
        plain = [each for each in texts if "*" not in each]
        wanted += [deep for each in plain for deep in (f"**/{each}", f"**/{each}/**")]
    patterns: list[GlobPattern] = []
    written_out = 0
    for each in wanted:
        pattern = GlobPattern(each)
        written_out += pattern.length
        _check_length(written_out)
        patterns.append(pattern)
    return lambda path: any(pattern.matches(path) for pattern in patterns)


def _alternatives(text: str) -> str:
    """Rewrite ``@(a|b)`` as ``{a,b}`` and ``?(a|b)`` as ``{,a,b}``."""

    def braced(found: re.Match[str]) -> str:
        inner = found[1].replace("|", ",")
        return f"{{,{inner}}}" if found[0].startswith("?") else f"{{{inner},}}" if "," not in inner else f"{{{inner}}}"

    # A single alternative needs no braces; they would be taken literally.
    text = re.sub(r"(?<!\\)@\(([^()|]*)\)", r"\1", text)
    return _EITHER.sub(braced, text)


def _variants(text: str) -> list[str]:
    """Expand every ``{a,b}`` and ``{1..3}``, innermost first."""
    done: list[str] = []
    open_ones = [text]
    while open_ones:
        each = open_ones.pop()
        found = next((found for found in _BRACES.finditer(each) if _choices(found[1])), None)
        if found is None:
            done.append(each)
        else:
            open_ones += [each[: found.start()] + choice + each[found.end() :] for choice in _choices(found[1])]
        if len(done) + len(open_ones) > _MOST_VARIANTS:
            raise ToolError(f"A pattern with braces stands for at most {_MOST_VARIANTS} patterns.")
    _check_together(done)
    return done


def _check_together(texts: Sequence[str]) -> None:
    _check_length(sum(map(len, texts)))


def _check_length(length: int) -> None:
    if length > _LONGEST_TOGETHER:
        raise ToolError(f"Patterns have at most {_LONGEST_TOGETHER} characters together, braces written out.")


def _choices(inner: str) -> list[str]:
    if (numbers := _NUMBERS.match(inner)) is not None:
        first, last = int(numbers[1]), int(numbers[2])
        step = 1 if last >= first else -1
        return [str(each) for each in range(first, last + step, step)[: _MOST_VARIANTS + 1]]
    return inner.split(",") if "," in inner else []


def _folders(text: str) -> _Steps:
    """Return the steps of a path: one per folder, None for ``**``."""
    names = re.sub("/+", "/", text).split("/")
    steps = [None if name == "**" else _name_test(name) for name in names]
    if names[-1] == "**" and len(names) > 1:
        # ``folder/**`` needs at least one name below the folder.
        steps.insert(len(steps) - 1, lambda _: True)
    return steps


def _name_test(text: str) -> _Test:
    if not _SPECIAL.search(text):
        return _starred(text) if "*" in text else text.__eq__
    steps = _characters(text)
    return lambda name: _matches(steps, name)


def _starred(text: str) -> _Test:
    """Return a test for names with stars only: each piece matches at its first occurrence, as in ``_matches``."""
    first, *middle, last = text.split("*")
    # A star alone matches at least one character.
    least = max(len(first) + len(last), 1 if text.strip("*") == "" else 0)

    def test(name: str) -> bool:
        if len(name) < least or not name.startswith(first) or not name.endswith(last):
            return False
        place, end = len(first), len(name) - len(last)
        for piece in middle:
            place = name.find(piece, place, end)
            if place < 0:
                return False
            place += len(piece)
        return True

    return test


def _characters(text: str) -> _Steps:
    """Return the steps of a name: one per character, None for ``*``."""
    steps: list[_Test | None] = []
    place = 0
    while place < len(text):
        sign = text[place]
        end = _class_end(text, place) if sign == "[" else None
        if end is not None:
            steps.append(_class(text[place + 1 : end]))
            place = end
        elif sign == "*":
            steps += [] if steps and steps[-1] is None else [None]
        elif sign == "?":
            steps.append(lambda _: True)
        else:
            place += sign == "\\" and place + 1 < len(text)
            steps.append(text[place].__eq__)
        place += 1
    if text and not text.strip("*"):
        # A star alone matches at least one character.
        steps.insert(0, lambda _: True)
    return steps


def _class_end(text: str, start: int) -> int | None:
    """Return the end of a character class; its first character may be a closing bracket."""
    first = start + 1 + (text[start + 1 : start + 2] in ("!", "^"))
    end = text.find("]", first + 1)
    return None if end < 0 else end


def _class(inner: str) -> _Test:
    negated = inner[0] in "!^"
    chars = inner[1:] if negated else inner
    ranges: list[tuple[str, str]] = []
    place = 0
    while place < len(chars):
        place += chars[place] == "\\" and place + 1 < len(chars)
        has_end = chars[place + 1 : place + 2] == "-" and place + 2 < len(chars)
        ranges.append((chars[place], chars[place + 2] if has_end else chars[place]))
        place += 3 if has_end else 1
    return lambda each: any(low <= each <= high for low, high in ranges) != negated


def _matches(steps: _Steps, things: Sequence[str]) -> bool:
    """Match greedily and backtrack to the last star only: what an earlier star could match changes nothing."""
    step = thing = 0
    star, taken = -1, 0
    while thing < len(things):
        test = steps[step] if step < len(steps) else _never
        if test is None:
            star, taken, step = step, thing, step + 1
        elif test(things[thing]):
            step, thing = step + 1, thing + 1
        elif star >= 0:
            taken += 1
            step, thing = star + 1, taken
        else:
            return False
    return all(test is None for test in steps[step:])


def _never(_: str) -> bool:
    return False
