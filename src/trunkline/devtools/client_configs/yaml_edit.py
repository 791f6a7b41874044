"""Changes one entry of a mapping at the top of a YAML text, and nothing else.

It edits whole lines and understands block style alone: a mapping such as ``extensions:`` at the beginning of a line,
and its entries on the lines below, all indented alike. Anything else (flow style, several documents, anchors, tabs,
strings of several lines in the way) is rejected, because a YAML parser is not installed everywhere and a guess could
damage the file. The values of an entry are read as far as they are plain; others differ from any value. No I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from trunkline.devtools.client_configs.documents import newline_of
from trunkline.errors import ConfigError

__all__ = ["parse_entries", "put_entry", "remove_entry", "render_entry"]

_BLANK = re.compile(r"[ \t]*(?:#[^\n]*)?\r?\n?")
_QUOTED = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')"""
_PAIR = re.compile(
    rf"""(?P<indent>[ ]*)(?P<key>{_QUOTED}|[^\s\-?:,\[\]{{}}#&*!|>'"%@`][^:#\n]*?)[ ]*:(?:[ ]+|(?=\r?\n|\Z))"""
)
_SCALAR = re.compile(rf"""({_QUOTED}|[^\s"'\[\]{{}}&*!|>%@`#][^#\n]*?|\[\]|\{{\}})?[ ]*(?:[ ]\#[^\n]*)?\r?\n?""")
_STRING = re.compile(rf"(?<![\w)\]}}]){_QUOTED}")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
#: Line breaks of YAML 1.1 that are not ours.
_OTHER_BREAKS = re.compile("\r(?!\n)|[\x85\u2028\u2029]")
#: A line whose value is a block of text on the lines below; `inner` is where the node begins that has the block.
_TEXT_BLOCK = re.compile(r"(?P<inner>[ ]*(?:-[ ]+)*)(?P<key>[^\n]*:[ ]+)?[|>][0-9+-]{0,2}[ ]*(?:[ ]\#[^\n]*)?\r?\n?")
_LONG_ESCAPE = re.compile(r"\\(?:U([0-9A-Fa-f]{8})|.)", re.S)
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
#: Plain words that YAML reads as something other than a string, in any of its versions.
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null", "~"})
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_REFUSED = "the file has a style of YAML that cannot be changed safely"


class _Unreadable(Exception):
    """A value that is not plain enough to be read here."""


class _Block(NamedTuple):
    """The mapping: the number of its own line, and the first and last line of each entry, the end excluded."""

    line: int
    #: Whether it is written as an empty mapping in braces.
    is_empty_flow: bool
    indent: str
    entries: dict[str, tuple[int, int]]
    #: The line behind the last one that belongs to it.
    end: int


def parse_entries(text: str, key: str) -> dict[str, Any]:
    """Return the entries of a mapping by name; one that cannot be read is an empty object.

    Raises:
        ConfigError: the text has a style that is not understood.
    """
    lines = _split(text)
    block = _find(lines, key)
    if block is None:
        return {}
    found: dict[str, Any] = {}
    for name, (start, end) in block.entries.items():
        try:
            found[name] = _read(lines[start:end])[name]
        except _Unreadable:
            found[name] = {}
    return found


def put_entry(text: str, key: str, name: str, value: Mapping[str, Any]) -> str:
    """Set an entry, replacing one of that name; the mapping is created if the text has none.

    Raises:
        ConfigError: the text cannot be changed safely.
    """
    newline = newline_of(text)
    lines = _split(text)
    block = _find(lines, key)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += newline
    if block is None:
        made = _lines(name, value, "  ", newline)
        changed = [*lines, f"{key}:{newline}", *made]
    else:
        made = _lines(name, value, block.indent or "  ", newline)
        if block.is_empty_flow:
            lines[block.line] = re.sub(r" *\{\}", "", lines[block.line], count=1)
        start, end = block.entries.get(name, (block.end, block.end))
        changed = [*lines[:start], *made, *lines[end:]]
    return _verified("".join(changed), key, {**_raw(lines, block), name: "".join(made)}, name, value)


def remove_entry(text: str, key: str, name: str) -> str:
    """Remove an entry; a mapping without entries becomes ``{}``.

    Raises:
        ConfigError: the text cannot be changed safely.
    """
    lines = _split(text)
    block = _find(lines, key)
    if block is None or name not in block.entries:
        return text
    start, end = block.entries[name]
    rest = _raw(lines, block)
    del rest[name]
    if not rest:
        lines[block.line] = re.sub(r":", ": {}", lines[block.line], count=1)
    return _verified("".join([*lines[:start], *lines[end:]]), key, rest)


def _raw(lines: list[str], block: _Block | None) -> dict[str, str]:
    """Return the text of each entry by name."""
    entries = {} if block is None else block.entries
    return {name: "".join(lines[start:end]) for name, (start, end) in entries.items()}


def _verified(
    changed: str, key: str, expected: Mapping[str, str], name: str | None = None, value: Mapping[str, Any] | None = None
) -> str:
    """Return a changed text if it has exactly these entries, and the new one has this value."""
    lines = _split(changed)
    block = _find(lines, key)
    if _raw(lines, block) != expected or (name is not None and parse_entries(changed, key)[name] != value):
        raise ConfigError("the change would affect other parts of the file; edit the file by hand")
    return changed


def _split(text: str) -> list[str]:
    if _OTHER_BREAKS.search(text):
        raise ConfigError(f"{_REFUSED}: it has unusual line breaks")
    return _LINE.findall(text)


# --- finding ---------------------------------------------------------------------------------------------------------


def _find(lines: list[str], key: str) -> _Block | None:
    """Return the mapping, or None if there is none.

    Raises:
        ConfigError: the text has a style that is not understood.
    """
    at: int | None = None
    for number, line in enumerate(lines):
        if _BLANK.fullmatch(line) or (number == 0 and line.rstrip() == "---"):
            continue
        if line.startswith((" ", "- ")) and number and not _value_of(line).startswith(('"', "'")):
            # The items of a list may stand below their key without indentation.
            continue
        name, rest = _pair(line, "", number)
        if name == key:
            if at is not None:
                raise ConfigError(f"{key!r} occurs twice (line {number + 1}); keep one of them")
            at = number
        elif not _ends_here(rest):
            raise ConfigError(f"{_REFUSED} (line {number + 1})")
    if at is None:
        return None
    rest = _pair(lines[at], "", at)[1].strip()
    if rest.startswith("{}") and _BLANK.fullmatch(rest[2:]):
        return _Block(at, True, "", {}, at + 1)
    if not _BLANK.fullmatch(rest):
        raise ConfigError(f"{_REFUSED}: {key!r} is not in block style (line {at + 1})")
    return _entries(lines, at)


def _entries(lines: list[str], at: int) -> _Block:
    indent = ""
    starts: list[tuple[str, int]] = []
    last = at
    texts = _text_lines(lines, at + 1)
    for number in range(at + 1, len(lines)):
        line = lines[number]
        if number in texts:
            last = number
            continue
        if _BLANK.fullmatch(line):
            continue
        if not line.startswith((" ", "\t")):
            if line.startswith("- "):
                raise ConfigError(f"{_REFUSED} (line {number + 1})")
            break
        own = line[: len(line) - len(line.lstrip(" \t"))]
        indent = indent or own
        if "\t" in own or len(own) < len(indent):
            raise ConfigError(f"{_REFUSED} (line {number + 1})")
        if own == indent:
            name, rest = _pair(line, indent, number)
            if not _ends_here(rest) or name in dict(starts):
                raise ConfigError(f"{_REFUSED} (line {number + 1})")
            starts.append((name, number))
        elif not _ends_here(line.strip()):
            raise ConfigError(f"{_REFUSED} (line {number + 1})")
        last = number
    # An entry ends with its last line; blank lines and comments behind it belong to what follows.
    ends = [_last_line(lines, start, end, texts) for start, end in _pairs([start for _, start in starts], last + 1)]
    return _Block(
        at, False, indent, {name: (start, end) for (name, start), end in zip(starts, ends, strict=True)}, last + 1
    )


def _pairs(starts: list[int], end: int) -> list[tuple[int, int]]:
    return list(zip(starts, [*starts[1:], end], strict=True)) if starts else []


def _text_lines(lines: list[str], start: int) -> frozenset[int]:
    """Return the numbers of the lines in blocks of text, where a line that begins with ``#`` is not a comment."""
    found: set[int] = set()
    depth: int | None = None
    for number in range(start, len(lines)):
        line = lines[number]
        if depth is not None:
            if not line.strip():
                continue
            if _indent(line) > depth:
                found.add(number)
                continue
        block = None if _BLANK.fullmatch(line) else _TEXT_BLOCK.fullmatch(line)
        # Without a key, the block is an item of a list, and is indented more than its dash.
        depth = None if block is None else len(block["inner"]) if block["key"] else _indent(line)
    return frozenset(found)


def _last_line(lines: list[str], start: int, end: int, texts: frozenset[int]) -> int:
    while end > start + 1 and end - 1 not in texts and _BLANK.fullmatch(lines[end - 1]):
        end -= 1
    return end


def _pair(line: str, indent: str, number: int) -> tuple[str, str]:
    """Split a line into a key and what follows it."""
    found = _PAIR.match(line)
    if found is None or found["indent"] != indent:
        raise ConfigError(f"{_REFUSED} (line {number + 1})")
    try:
        return _unquoted(found["key"]), line[found.end() :]
    except _Unreadable as error:
        raise ConfigError(f"{_REFUSED} (line {number + 1})") from error


def _ends_here(rest: str) -> bool:
    """Return whether the strings and brackets of a line are closed on it, and it has no anchor, alias or tag."""
    value = _value_of(rest)
    if value.startswith(("&", "*", "!", '"', "'")):
        return False
    return not value.startswith(("{", "[")) or (
        value.count("{") == value.count("}") and value.count("[") == value.count("]")
    )


def _value_of(line: str) -> str:
    """Return the value on a line without its comment; strings that end on the line are replaced."""
    bare = re.sub(r"(?:^|[ \t])#.*", "", _STRING.sub("_", line).strip())
    return re.sub(r"^(?:- +)*(?:[^\s:]+: +)?", "", bare.strip())


# --- reading ---------------------------------------------------------------------------------------------------------


def _read(lines: list[str]) -> Any:
    """Read lines of block mappings, lists and plain or quoted values."""
    kept = [line for line in lines if not _BLANK.fullmatch(line)]
    value, rest = _node(kept)
    if rest:
        raise _Unreadable
    return value


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _node(lines: list[str]) -> tuple[Any, list[str]]:
    """Read the node that begins on the first line; return it and the lines behind it."""
    depth = _indent(lines[0])
    if lines[0].startswith("- ", depth) or lines[0].strip() == "-":
        items = []
        while lines and _indent(lines[0]) == depth and lines[0].startswith("- ", depth):
            items.append(_scalar(lines[0][depth + 2 :].lstrip(" ")))
            lines = lines[1:]
        return items, lines
    members: dict[str, Any] = {}
    while lines and _indent(lines[0]) == depth:
        found = _PAIR.match(lines[0])
        if found is None:
            raise _Unreadable
        name, rest = _unquoted(found["key"]), lines[0][found.end() :]
        lines = lines[1:]
        is_list = bool(lines) and _indent(lines[0]) == depth and lines[0].startswith("- ", depth)
        if _BLANK.fullmatch(rest) and lines and (_indent(lines[0]) > depth or is_list):
            members[name], lines = _node(lines)
        else:
            members[name] = _scalar(rest)
    if lines and _indent(lines[0]) > depth:
        raise _Unreadable
    return members, lines


def _scalar(text: str) -> Any:
    found = _SCALAR.fullmatch(text)
    if found is None or (": " in (found.group(1) or "") and not (found.group(1) or "").startswith(('"', "'"))):
        raise _Unreadable
    value = found.group(1)
    if value is None or value.lower() in ("null", "~"):
        return None
    if value in ("[]", "{}"):
        return [] if value == "[]" else {}
    if value.startswith(('"', "'")):
        return _unquoted(value)
    if value in ("true", "false"):
        return value == "true"
    return int(value) if _INTEGER.fullmatch(value) else value


def _unquoted(text: str) -> str:
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    if not text.startswith('"'):
        return text
    try:
        return str(json.loads(_LONG_ESCAPE.sub(_short, text), strict=False))
    except ValueError as error:
        # YAML has escapes that JSON has not.
        raise _Unreadable from error


def _short(found: re.Match[str]) -> str:
    """Return the character of an escape that JSON has not; any other escape as it is."""
    return found.group() if found.group(1) is None else chr(int(found.group(1), 16))


# --- writing ---------------------------------------------------------------------------------------------------------


def render_entry(key: str, name: str, value: Mapping[str, Any]) -> str:
    """Return a mapping with one entry as YAML."""
    return "".join([f"{key}:\n", *_lines(name, value, "  ", "\n")])


def _lines(name: str, value: Mapping[str, Any], indent: str, newline: str) -> list[str]:
    lines = [f"{indent}{_text(name)}:"]
    inner = indent + "  "
    for key, each in value.items():
        if isinstance(each, Mapping) and each:
            lines += [f"{inner}{_text(key)}:", *(f"{inner}  {_text(one)}: {_value(it)}" for one, it in each.items())]
        elif isinstance(each, list | tuple) and each:
            lines += [f"{inner}{_text(key)}:", *(f"{inner}- {_value(it)}" for it in each)]
        else:
            lines.append(f"{inner}{_text(key)}: {_value(each)}")
    return [line + newline for line in lines]


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, Mapping | list | tuple) and not value:
        return "{}" if isinstance(value, Mapping) else "[]"
    raise ConfigError(f"a {type(value).__name__} inside an entry cannot be written as YAML")


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(
        each if each.isprintable() else f"\\u{ord(each):04x}" if ord(each) < 0x10000 else f"\\U{ord(each):08x}"
        for each in quoted
    )
