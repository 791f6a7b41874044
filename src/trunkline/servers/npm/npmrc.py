"""The lines of an ``.npmrc``: read as npm reads them, as data, with variables filled in where that is wanted.

Pure. It knows the format and nothing of what the settings mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

__all__ = ["expanded", "has_variable", "read_lines"]

_VARIABLE = re.compile(r"(?<!\\)(?P<escapes>\\*)\$\{(?P<name>[^${}?]+)(?P<optional>\??)\}")
_LINES = re.compile(r"[\r\n]+")


def read_lines(text: str) -> dict[str, str]:
    """Give the settings by name, the last of a name; what stands in a section or in a list is left out."""
    found: dict[str, str] = {}
    for raw in _LINES.split(text.removeprefix("\ufeff")):
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            break  # To npm all that follows is of that section, and no setting of its own.
        name, equals, value = line.partition("=")
        if equals and not line.startswith((";", "#")) and not name.rstrip().endswith("[]"):
            found[_plain(name)] = _plain(value)
    return found


def expanded(text: str, environ: Mapping[str, str]) -> str:
    """Fill variables in: one that is not set stays as it stands, or is empty if a question mark ends its name."""

    def fill(found: re.Match[str]) -> str:
        escapes = found["escapes"]
        if len(escapes) % 2:
            return found[0][(len(escapes) + 1) // 2 :]
        kept = "" if found["optional"] else f"${{{found['name']}}}"
        return escapes[: len(escapes) // 2] + environ.get(found["name"], kept)

    return _VARIABLE.sub(fill, text)


def has_variable(text: str) -> bool:
    """Tell whether there is a variable in a text that could be filled in."""
    return _VARIABLE.search(text) is not None


def _plain(text: str) -> str:
    """Take quotes, escapes and a remark at the end away."""
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
