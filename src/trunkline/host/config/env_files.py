"""Parses an ``envFile``: one ``NAME=value`` per line, in the common ``.env`` syntax.

``export`` before a name, comments and quotes are supported; in double quotes a backslash starts an escape, and a quoted
value may span several lines. Variables in values are not expanded.
"""

from __future__ import annotations

import re

from msgspec import Struct

__all__ = ["EnvLine", "read_env_file"]

_ASSIGNMENT = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*")
_BLANK = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|$)")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|`([^`]*)`", re.S)
_COMMENT = re.compile(r"(?:^|[ \t]+)#.*")
_ESCAPE = re.compile(r"\\(.)", re.S)


class EnvLine(Struct, frozen=True):
    """One variable of a file; ``name`` is None for a line that cannot be parsed."""

    name: str | None
    value: str
    line: int

    def __repr__(self) -> str:
        """Omit the value, which may be secret."""
        return f"EnvLine({self.name!r}, line {self.line})"


def read_env_file(text: str) -> list[EnvLine]:
    """Parse all lines; a name that occurs twice is returned twice, in order."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    found: list[EnvLine] = []
    at, line = 0, 1
    while at < len(text):
        end, entry = _one(text, at, line=line)
        if entry is not None:
            found.append(entry)
        line += text.count("\n", at, end)
        at = end
    return found


def _one(text: str, at: int, *, line: int) -> tuple[int, EnvLine | None]:
    """Parse the line that starts at ``at``; return where the next one starts."""
    blank = _BLANK.match(text, at)
    if blank is not None:
        return blank.end(), None
    end = _next_line(text, at)
    begun = _ASSIGNMENT.match(text, at)
    if begun is None:
        return end, EnvLine(None, "", line)
    name = begun.group(1)
    quoted = _QUOTED.match(text, begun.end())
    if quoted is not None:
        rest = _BLANK.match(text, quoted.end())
        return (rest.end(), EnvLine(name, _unquoted(quoted), line)) if rest else (end, EnvLine(None, "", line))
    if text[begun.end() : begun.end() + 1] in ('"', "'", "`"):
        return end, EnvLine(None, "", line)
    return end, EnvLine(name, _COMMENT.sub("", text[begun.end() : end].rstrip("\n")).strip(), line)


def _next_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _unquoted(found: re.Match[str]) -> str:
    double, single, back = found.groups()
    if double is None:
        return str(single if single is not None else back)
    return _ESCAPE.sub(lambda escape: _escaped(escape.group(1)), double)


def _escaped(letter: str) -> str:
    at = 'nrt"\\$'.find(letter)
    return '\n\r\t"\\$'[at] if at >= 0 else f"\\{letter}"
