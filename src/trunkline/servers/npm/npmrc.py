"""The format of ``.npmrc`` files: parsed as npm does, as data, with variables expanded where wanted.

Pure functions that know the format and not the meaning of the settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

__all__ = ["expanded", "has_variable", "read_lines"]

_VARIABLE = re.compile(r"(?<!\\)(?P<escapes>\\*)\$\{(?P<name>[^${}?]+)(?P<optional>\??)\}")
_LINES = re.compile(r"[\r\n]+")


def read_lines(text: str) -> dict[str, str]:
    """Parse settings by name, the last one wins; sections and lists are skipped."""
    found: dict[str, str] = {}
    for raw in _LINES.split(text.removeprefix("\ufeff")):
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            break  # For npm everything after this belongs to the section.
        name, equals, value = line.partition("=")
        if equals and not line.startswith((";", "#")) and not name.rstrip().endswith("[]"):
            found[_plain(name)] = _plain(value)
    return found


def expanded(text: str, environ: Mapping[str, str]) -> str:
    """Expand variables: an unset one stays as written, or becomes empty if its name ends with a question mark."""

    def fill(found: re.Match[str]) -> str:
        escapes = found["escapes"]
        if len(escapes) % 2:
            return found[0][(len(escapes) + 1) // 2 :]
        kept = "" if found["optional"] else f"${{{found['name']}}}"
        return escapes[: len(escapes) // 2] + environ.get(found["name"], kept)

    return _VARIABLE.sub(fill, text)


def has_variable(text: str) -> bool:
    """Return True if a text contains a variable."""
    return _VARIABLE.search(text) is not None


def _plain(text: str) -> str:
    """Remove quotes, escapes and a trailing comment."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return _unquoted(text)
    kept: list[str] = []
    escaped = False
    for each in text:
        if escaped:
            kept.append(each if each in "\\;#" else f"\\{each}")
            escaped = False
        elif each in ";#":
            break
        elif each == "\\":
            escaped = True
        else:
            kept.append(each)
    return "".join([*kept, "\\" if escaped else ""]).strip()


def _unquoted(text: str) -> str:
    inner = text[1:-1] if text[0] == "'" else text
    try:
        value = msgspec.json.decode(inner)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return inner
    return value if isinstance(value, str) else inner
