"""Versions and ranges as npm understands them: comparators, hyphens, x, tilde, caret, and the rules for prereleases.

Pure functions over short texts. A range is first reduced to alternatives of plain comparators, and matching considers
only those, so that each notation is one function.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

__all__ = ["Range", "Version", "parse_range", "parse_version"]

_MOST_CHARS = 8192
_VERSION_CHARS = 256
_NUMBER = r"(?:0|[1-9]\d{0,15})"
_PART = rf"({_NUMBER}|[xX*])"
_PRE = r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
_BUILD = r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
_EXACT = re.compile(rf"\s*[v=]*\s*({_NUMBER})\.({_NUMBER})\.({_NUMBER}){_PRE}{_BUILD}\s*", re.ASCII)
_PARTIAL = re.compile(rf"[v=]*{_PART}(?:\.{_PART}(?:\.{_PART}{_PRE}{_BUILD})?)?", re.ASCII)
_GAP = re.compile(r"(<=|>=|<|>|~>|~|\^|=)\s+")
_HYPHEN = re.compile(r"(\S+)\s+-\s+(\S+)")
_OPERATOR = re.compile(r"<=|>=|<|>|~>|~|\^|=|")

_Identifier = tuple[int, int, str]
_Operator = Literal["<", "<=", ">", ">=", "="]
_LOWEST: tuple[_Identifier, ...] = ((0, 0, ""),)


class Version(Struct, frozen=True, order=True):
    """One version; ordered as semantic versions are."""

    major: int
    minor: int
    patch: int
    #: 1 for a release, 0 for a prerelease: a release is above its own prereleases.
    final: int = 1
    pre: tuple[_Identifier, ...] = ()

    def __str__(self) -> str:
        """Format it as npm does, without build metadata."""
        core = f"{self.major}.{self.minor}.{self.patch}"
        return core if self.final else f"{core}-{'.'.join(text or str(number) for _, number, text in self.pre)}"


class _Comparator(Struct, frozen=True):
    operator: _Operator
    version: Version

    def holds(self, version: Version) -> bool:
        """Compare."""
        match self.operator:
            case "<":
                return version < self.version
            case "<=":
                return version <= self.version
            case ">":
                return version > self.version
            case ">=":
                return version >= self.version
            case "=":
                return version == self.version


class Range(Struct, frozen=True):
    """A set of versions: any of the alternatives, each of which is comparators that must all hold."""

    alternatives: tuple[tuple[_Comparator, ...], ...]

    def matches(self, version: Version) -> bool:
        """Return True if a version is in the range; a prerelease only if a comparator names one of the same release."""
        return any(
            all(each.holds(version) for each in comparators) and _may_be_pre(version, comparators)
            for comparators in self.alternatives
        )

    def newest(self, versions: Iterable[Version]) -> Version | None:
        """Return the highest version in the range."""
        return max((version for version in versions if self.matches(version)), default=None)


def parse_version(text: str) -> Version | None:
    """Parse an exact version; None if it is invalid."""
    found = _EXACT.fullmatch(text) if len(text) <= _VERSION_CHARS else None
    if found is None:
        return None
    major, minor, patch, pre = found.groups()
    return _version(int(major), int(minor), int(patch), pre)


def parse_range(text: str) -> Range | None:
    """Parse a range; None if it is not one, such as a tag, a URL or a path."""
    if len(text) > _MOST_CHARS:
        return None
    alternatives: list[tuple[_Comparator, ...]] = []
    for part in text.split("||"):
        comparators = _alternative(part.strip())
        if comparators is None:
            return None
        alternatives.append(comparators)
    return Range(tuple(alternatives))


# --- one alternative -------------------------------------------------------------------------------------------------


class _Partial(Struct, frozen=True):
    """A version whose last parts may be missing."""

    major: int | None
    minor: int | None
    patch: int | None
    pre: str | None

    def floor(self) -> Version:
        """Fill what is missing with zeros."""
        return _version(self.major or 0, self.minor or 0, self.patch or 0, self.pre)


def _alternative(text: str) -> tuple[_Comparator, ...] | None:
    if hyphen := _HYPHEN.fullmatch(text):
        low, high = _partial(hyphen[1]), _partial(hyphen[2])
        return None if low is None or high is None else (*_above(">=", low), *_up_to(high))
    comparators: list[_Comparator] = []
    for word in _GAP.sub(r"\1", text).split() or ["*"]:
        operator = _OPERATOR.match(word)
        assert operator is not None  # it matches the empty text
        partial = _partial(word[operator.end() :])
        if partial is None:
            return None
        comparators += _comparators(operator[0], partial)
    return tuple(comparators)


def _partial(text: str) -> _Partial | None:
    found = _PARTIAL.fullmatch(text)
    if found is None:
        return None
    numbers: list[int | None] = [None if part is None or part in "xX*" else int(part) for part in found.groups()[:3]]
    known = [number is not None for number in numbers]
    if known != sorted(known, reverse=True) or (found[4] and not known[2]):  # a number after an x says nothing
        return None
    return _Partial(numbers[0], numbers[1], numbers[2], found[4])


def _comparators(operator: str, partial: _Partial) -> tuple[_Comparator, ...]:
    match operator:
        case "^":
            return _caret(partial)
        case "~" | "~>":
            return _tilde(partial)
        case ">" | ">=":
            return _above(operator, partial)
        case "<":
            return (_below(partial.floor()),) if partial.patch is None else (_Comparator("<", partial.floor()),)
        case "<=":
            return _up_to(partial)
        case _:
            return _equal(partial)


def _caret(partial: _Partial) -> tuple[_Comparator, ...]:
    low = partial.floor()
    if partial.major is None:
        return ()  # any version
    if low.major or partial.minor is None:
        high = _core(low.major + 1, 0, 0)
    elif low.minor or partial.patch is None:
        high = _core(0, low.minor + 1, 0)
    else:
        high = _core(0, 0, low.patch + 1)
    return _Comparator(">=", low), _below(high)


def _tilde(partial: _Partial) -> tuple[_Comparator, ...]:
    return _equal(partial) if partial.patch is None else (_Comparator(">=", partial.floor()), _below(_next(partial)))


def _equal(partial: _Partial) -> tuple[_Comparator, ...]:
    low = partial.floor()
    if partial.major is None:
        return ()  # any version
    if partial.patch is not None:
        return (_Comparator("=", low),)
    return _Comparator(">=", low), _below(_next(partial))


def _above(operator: str, partial: _Partial) -> tuple[_Comparator, ...]:
    if operator == ">=":
        return () if partial.major is None else (_Comparator(">=", partial.floor()),)
    if partial.major is None:
        return (_below(_core(0, 0, 0)),)  # nothing is above everything
    return (_Comparator(">", partial.floor()),) if partial.patch is not None else (_Comparator(">=", _next(partial)),)


def _up_to(partial: _Partial) -> tuple[_Comparator, ...]:
    if partial.major is None:
        return ()
    return (_Comparator("<=", partial.floor()),) if partial.patch is not None else (_below(_next(partial)),)


def _next(partial: _Partial) -> Version:
    """Return the first release after a partial version, or after the minor line of a complete one."""
    low = partial.floor()
    return _core(low.major + 1, 0, 0) if partial.minor is None else _core(low.major, low.minor + 1, 0)


def _below(version: Version) -> _Comparator:
    """Return the comparator for "below this release and all of its prereleases"."""
    return _Comparator("<", Version(version.major, version.minor, version.patch, 0, _LOWEST))


def _core(major: int, minor: int, patch: int) -> Version:
    return Version(major, minor, patch)


def _version(major: int, minor: int, patch: int, pre: str | None) -> Version:
    if not pre:
        return Version(major, minor, patch)
    parts = tuple(
        (0, int(each), "") if each.isdecimal() and len(each) <= 16 else (1, 0, each) for each in pre.split(".")
    )
    return Version(major, minor, patch, 0, parts)


def _may_be_pre(version: Version, comparators: tuple[_Comparator, ...]) -> bool:
    if version.final:
        return True
    core = (version.major, version.minor, version.patch)
    named = (each.version for each in comparators if not each.version.final)
    return any((each.major, each.minor, each.patch) == core for each in named)
