"""Parsing docstrings in Google, NumPy or Sphinx style: the description, and the text about each parameter.

It knows text only, no functions. A docstring is split into blocks: sections about parameters, returns and raises are
removed from the description; everything else stays, including notes and examples, since the model reads it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["read_docstring"]

_PARAMETERS = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters"}
)
_DROPPED = _PARAMETERS | {"returns", "return", "yields", "yield", "raises", "raise", "exceptions", "receives", "warns"}

_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY_NAMES = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_FIELD = re.compile(
    r":(?P<kind>param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?|except|exception|yields?|ytype)"
    r"(?:\s+(?P<rest>[^:]*))?:\s*(?P<text>.*)"
)
_FIELD_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})


def read_docstring(text: str | None) -> tuple[str | None, dict[str, str]]:
    """Return the description without the parameter, return and raise sections, and the text of each parameter."""
    if not text:
        return None, {}
    if "\n" not in text and "\t" not in text and (line := text.strip())[:1] != ":":
        return line or None, {}
    from inspect import cleandoc

    lines = cleandoc(text).splitlines()
    description: list[str] = []
    about: dict[str, str] = {}
    for title, block in _blocks(lines):
        if title is None:
            description.extend(block)
        elif title in _PARAMETERS:
            about.update(_numpy_entries(block) if _is_underline(block[0]) else _google_entries(block))
        elif title.startswith(":"):
            about.update(_sphinx_entry(block))
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(description)).strip()
    return text or None, about


def _blocks(lines: list[str]) -> Iterator[tuple[str | None, list[str]]]:
    """Yield (section, lines).

    The section is None with one line of the description, ":" with a Sphinx field, else its name with its body,
    which for NumPy starts with the underline.
    """
    position = 0
    while position < len(lines):
        end = position + 1
        title = _section(lines, position)
        if title is None:
            yield None, [lines[position]]
        elif title.startswith(":"):
            while end < len(lines) and _is_inside(lines[end]):
                end += 1
            yield title, lines[position:end]
        elif _is_underline(lines[end]):
            end += 1
            while end < len(lines) and not (end + 1 < len(lines) and _is_underline(lines[end + 1])):
                end += 1
            yield title, lines[position + 1 : end]
        else:
            while end < len(lines) and (_is_inside(lines[end]) or not lines[end].strip()):
                end += 1
            yield title, lines[position + 1 : end]
        position = end


def _section(lines: list[str], position: int) -> str | None:
    line = lines[position]
    if line[:1] == ":" and _FIELD.match(line):
        return ":"
    if not line or position + 1 == len(lines):
        return None
    following = lines[position + 1]
    name = line.strip().lower()
    if _is_underline(following) and name in _DROPPED:
        return name
    if line[:1].strip() and name.endswith(":") and name[:-1] in _DROPPED and _is_inside(following):
        return name[:-1]
    return None


def _is_inside(line: str) -> bool:
    return line[:1].isspace() and bool(line.strip())


def _is_underline(line: str) -> bool:
    return len(line) >= 3 and not line.strip("-")


def _google_entries(block: list[str]) -> dict[str, str]:
    margin = len(block[0]) - len(block[0].lstrip())
    return _collect(
        (_ENTRY.fullmatch(line.strip()) if len(line) - len(line.lstrip()) <= margin else None, line) for line in block
    )


def _collect(lines: Iterable[tuple[re.Match[str] | None, str]]) -> dict[str, str]:
    about: dict[str, list[str]] = {}
    current: list[str] = []
    for entry, line in lines:
        if entry is not None:
            current = about.setdefault(entry[1], [])
            current.append(entry[2].strip())
        else:
            current.append(line.strip())
    return {name: text for name, parts in about.items() if (text := " ".join(filter(None, parts)))}


def _numpy_entries(block: list[str]) -> dict[str, str]:
    about: dict[str, str] = {}
    names: list[str] = []
    parts: list[str] = []
    for line in [*block[1:], "end"]:
        if _is_inside(line):
            parts.append(line.strip())
        elif line.strip():
            if parts:
                about.update(dict.fromkeys(names, " ".join(parts)))
            found = _NUMPY_NAMES.fullmatch(line)
            names = [name.strip().lstrip("*") for name in found[1].split(",")] if found else []
            parts = []
    return about


def _sphinx_entry(block: list[str]) -> dict[str, str]:
    field = _FIELD.match(block[0])
    if field is None or field["kind"] not in _FIELD_PARAMETERS or not field["rest"]:
        return {}
    name = field["rest"].split()[-1].lstrip("*")
    text = " ".join(part for part in (field["text"].strip(), *(line.strip() for line in block[1:])) if part)
    return {name: text} if text else {}
