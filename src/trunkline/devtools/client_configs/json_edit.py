"""Changes one member of an object in a JSON text and nothing else: comments, order and whitespace are kept.

Every change is parsed again and must give exactly the intended document; otherwise it is rejected. No I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from trunkline.devtools.client_configs.documents import has_member, newline_of, with_member, without_member
from trunkline.errors import ConfigError
from trunkline.host.config.jsonc import InvalidJson, parse_jsonc, to_python

__all__ = ["JsonMember", "JsonSpan", "put_member", "remove_member", "span_of", "walk"]

_WHITESPACE_AND_COMMENTS = re.compile(r"(?:[ \t\r\n]|//[^\r\n]*|/\*.*?\*/)*", re.S)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
_WORD = re.compile(r"[^\s,:\[\]{}\"/]+")


class JsonSpan(Struct, frozen=True):
    """The position of a value, from its first character to after its last."""

    start: int
    end: int
    #: The members of an object, in order.
    members: tuple[JsonMember, ...] = ()
    items: tuple[JsonSpan, ...] = ()
    #: The position after a trailing comma, if there is one.
    comma: int | None = None

    def member(self, name: str) -> JsonSpan | None:
        """Return the value of a member; the last one if there are several."""
        return next((each.value for each in reversed(self.members) if each.name == name), None)


class JsonMember(Struct, frozen=True):
    """A member of an object: its name, where the name begins, and its value."""

    name: str
    start: int
    value: JsonSpan


def span_of(text: str) -> JsonSpan:
    """Return the positions of all values in a JSON text."""
    return _value(text, _skip(text, 0))


def walk(span: JsonSpan, key_path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], JsonSpan]]:
    """Yield every value with its key path."""
    yield key_path, span
    for member in span.members:
        yield from walk(member.value, (*key_path, member.name))
    for at, item in enumerate(span.items):
        yield from walk(item, (*key_path, at))


def _skip(text: str, at: int) -> int:
    found = _WHITESPACE_AND_COMMENTS.match(text, at)
    assert found is not None
    return found.end()


def _value(text: str, at: int) -> JsonSpan:
    if text[at] == "{":
        return _object(text, at)
    if text[at] == "[":
        return _array(text, at)
    found = (_STRING if text[at] == '"' else _WORD).match(text, at)
    assert found is not None
    return JsonSpan(at, found.end())


def _object(text: str, start: int) -> JsonSpan:
    members: list[JsonMember] = []
    comma: int | None = None
    at = _skip(text, start + 1)
    while text[at] != "}":
        quoted = _STRING.match(text, at)
        assert quoted is not None
        colon = _skip(text, quoted.end())
        value = _value(text, _skip(text, colon + 1))
        members.append(JsonMember(json.loads(quoted.group(), strict=False), at, value))
        at, comma = _after(text, value.end)
    return JsonSpan(start, at + 1, tuple(members), comma=comma)


def _array(text: str, start: int) -> JsonSpan:
    items: list[JsonSpan] = []
    comma: int | None = None
    at = _skip(text, start + 1)
    while text[at] != "]":
        items.append(_value(text, at))
        at, comma = _after(text, items[-1].end)
    return JsonSpan(start, at + 1, items=tuple(items), comma=comma)


def _after(text: str, end: int) -> tuple[int, int | None]:
    """Skip the comma after an item; return the position of what follows, and that after the comma or None."""
    at = _skip(text, end)
    if text[at] != ",":
        return at, None
    return _skip(text, at + 1), at + 1


_INDENT = re.compile(r"(?:^|\n)([ \t]+)\S")
#: What may follow a member and its comma on the same line: spaces and a comment about it.
_REMARK = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/[ \t]*)?(?=\r?\n)")
_BETWEEN = re.compile(r"(?:[ \t\r\n]|//[^\r\n]*|/\*.*?\*/)*", re.S)
_LINE_REST = re.compile(r"[ \t]*(?:/\*[^\r\n]*?\*/[ \t]*)*(?://[^\r\n]*)?(?=\r?\n)")


def put_member(text: str, key_path: tuple[str, ...], name: str, value: Any) -> str:
    """Set a member of the object at a key path, replacing one of that name; missing objects on the path are created.

    Raises:
        ConfigError: a value on the path is not an object or occurs twice, or the text cannot be changed safely.
    """
    if not text.strip():
        text = "{}\n"
    try:
        before = to_python(parse_jsonc(text))
        expected = with_member(before, (*key_path, name), value)
        changed = _put(text, (*key_path, name), value)
        after = to_python(parse_jsonc(changed))
    except InvalidJson as error:
        raise ConfigError(f"the text is not JSON (line {error.line}): {error}") from error
    if not _same(after, expected):
        raise ConfigError("the change would affect other parts of the file; edit the file by hand")
    return changed


def remove_member(text: str, key_path: tuple[str, ...], name: str) -> str:
    """Remove a member of the object at a key path, together with the comment after it.

    Raises:
        ConfigError: a value on the path is not an object or occurs twice, or the text cannot be changed safely.
    """
    try:
        before = to_python(parse_jsonc(text))
        if not has_member(before, (*key_path, name)):
            return text
        changed = _removed(text, (*key_path, name))
        after = to_python(parse_jsonc(changed))
    except InvalidJson as error:
        raise ConfigError(f"the text is not JSON (line {error.line}): {error}") from error
    if not _same(after, without_member(before, (*key_path, name))):
        raise ConfigError("the change would affect other parts of the file; edit the file by hand")
    return changed


def _removed(text: str, key_path: tuple[str, ...]) -> str:
    span = span_of(text)
    for name in key_path[:-1]:
        inner = _only(span, name)
        assert inner is not None
        span = inner
    assert _only(span, key_path[-1]) is not None
    at = next(number for number, member in enumerate(span.members) if member.name == key_path[-1])
    member = span.members[at]
    is_last = at == len(span.members) - 1
    end = member.value.end
    if not is_last or span.comma is not None:
        # Its own comma is removed with it; the member before it keeps its comma.
        end = _comma(text, end)
    elif at > 0:
        comma = _comma(text, span.members[at - 1].value.end)
        text = text[: comma - 1] + text[comma:]
        return _cut(text, member.start - 1, end - 1)
    return _cut(text, member.start, end)


def _comma(text: str, end: int) -> int:
    """Return the position after the comma that follows a value."""
    between = _BETWEEN.match(text, end)
    assert between is not None
    assert text[between.end()] == ","
    return between.end() + 1


def _cut(text: str, start: int, end: int) -> str:
    """Remove a member, with its whole lines if nothing else is on them, else with the spaces after it."""
    line = text.rfind("\n", 0, start) + 1
    remark = _REMARK.match(text, end)
    if not text[line:start].strip(" \t") and remark is not None:
        behind = remark.end()
        return text[:line] + text[behind + (2 if text.startswith("\r\n", behind) else 1) :]
    rest = text[end:].lstrip(" \t")
    return (text[:start].rstrip(" \t") if rest.startswith("}") else text[:start]) + rest


def _same(one: Any, other: Any) -> bool:
    """Return True if two documents are equal, including the order of members."""
    return json.dumps(one) == json.dumps(other)


def _put(text: str, key_path: tuple[str, ...], value: Any) -> str:
    span = span_of(text)
    names = key_path
    while len(names) > 1 and (inner := _only(span, names[0])) is not None:
        span, names = inner, names[1:]
    for missing in reversed(names[1:]):
        value = {missing: value}
    old = _only(span, names[0])
    if old is not None:
        made = _written(value, indent=_indent_at(text, old.start), text=text)
        return text[: old.start] + made + text[old.end :]
    return _insert(text, span, names[0], value)


def _only(span: JsonSpan, name: str) -> JsonSpan | None:
    if sum(each.name == name for each in span.members) > 1:
        raise ConfigError(f"{name!r} occurs twice; keep one of them")
    return span.member(name)


def _insert(text: str, span: JsonSpan, name: str, value: Any) -> str:
    newline = newline_of(text)
    if not span.members:
        outer = _indent_at(text, span.start)
        inner = outer + _unit(text)
        made = f"{inner}{_quoted(name)}: {_written(value, indent=inner, text=text)}{newline}{outer}"
        # The object can contain only comments and spaces.
        kept = text[span.start + 1 : span.end - 1].rstrip(" \t")
        between = kept if kept.endswith("\n") else kept + newline
        return text[: span.start + 1] + between + made + text[span.end - 1 :]
    last = span.members[-1]
    # An object whose last member has a comma keeps that style, so that removing the new member restores the text.
    comma, trailing = (",", "") if span.comma is None else ("", ",")
    end = last.value.end if span.comma is None else span.comma
    if "\n" not in text[span.start : span.end]:
        made = f"{_quoted(name)}: {json.dumps(value, ensure_ascii=_needs_escapes(value))}"
        return f"{text[:end]}{comma} {made}{trailing}{text[end:]}"
    indent = _indent_at(text, last.start)
    made = f"{newline}{indent}{_quoted(name)}: {_written(value, indent=indent, text=text)}{trailing}"
    # A comment after the last member stays with it.
    rest = _LINE_REST.match(text, end)
    at = end if rest is None else rest.end()
    return text[:end] + comma + text[end:at] + made + text[at:]


# --- formatting ------------------------------------------------------------------------------------------------------


def _written(value: Any, *, indent: str, text: str) -> str:
    unit: Any = _unit(text)
    made = json.dumps(value, indent=unit, ensure_ascii=_needs_escapes(value))
    return made.replace("\n", newline_of(text) + indent)


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=_needs_escapes(name))


def _needs_escapes(value: Any) -> bool:
    """Return True if a value has characters that are invisible or cannot be encoded, and must be escaped."""
    return not json.dumps(value, ensure_ascii=False).isprintable()


def _unit(text: str) -> str:
    """Return the indentation of one level in this text."""
    found = _INDENT.search(text)
    return "  " if found is None else found.group(1)


def _indent_at(text: str, at: int) -> str:
    """Return the indentation of the line at a position."""
    start = text.rfind("\n", 0, at) + 1
    line = text[start:at]
    return line[: len(line) - len(line.lstrip(" \t"))]
