"""A parser for JSON with comments that keeps positions: each value and each name has its line and column.

Comments and trailing commas are accepted, as in the configuration files of editors; everything else is strict JSON.
Repeated names in an object are recorded, not rejected: the caller decides what they mean. Depth is bounded; the size of
the text is for the caller to bound. No I/O.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias

from msgspec import Struct

from trunkline.errors import ConfigError

__all__ = [
    "MAX_DEPTH",
    "InvalidJson",
    "JsonArray",
    "JsonNode",
    "JsonObject",
    "JsonProperty",
    "JsonScalar",
    "kind_of",
    "parse_jsonc",
    "to_python",
]

#: The deepest nesting of a document.
MAX_DEPTH = 64

Scalar: TypeAlias = str | int | float | bool | None


class JsonScalar(Struct, frozen=True):
    """A string, a number, true, false or null."""

    value: Scalar
    line: int = 0
    column: int = 0


class JsonArray(Struct, frozen=True):
    """An array."""

    items: tuple[JsonNode, ...]
    line: int = 0
    column: int = 0


class JsonObject(Struct, frozen=True):
    """An object; of a repeated name the last value is kept."""

    members: Mapping[str, JsonProperty]
    line: int = 0
    column: int = 0
    #: Repeated names, each with the lines of its first and second occurrence.
    repeated: tuple[tuple[str, int, int], ...] = ()


class JsonProperty(Struct, frozen=True):
    """A name of an object with its value; the position is that of the name."""

    name: str
    value: JsonNode
    line: int = 0
    column: int = 0


JsonNode: TypeAlias = JsonScalar | JsonArray | JsonObject


class InvalidJson(ConfigError):
    """A text is not valid JSON; the message names the position and what was expected there."""

    def __init__(self, message: str, *, line: int, column: int) -> None:
        """Store the position beside the message."""
        super().__init__(message)
        self.line = line
        self.column = column


def parse_jsonc(text: str) -> JsonNode:
    """Parse a whole text as one value.

    Raises:
        InvalidJson: it is not valid.
    """
    return _Parser(text).whole()


def to_python(node: JsonNode) -> Any:
    """Return a value as plain Python data, without positions."""
    if isinstance(node, JsonScalar):
        return node.value
    if isinstance(node, JsonArray):
        return [to_python(item) for item in node.items]
    return {name: to_python(member.value) for name, member in node.members.items()}


def kind_of(node: JsonNode) -> str:
    """Name the kind of a value, for a message that must not show the value itself."""
    if isinstance(node, JsonObject):
        return "an object"
    if isinstance(node, JsonArray):
        return "a list"
    if isinstance(node.value, bool):
        return "true" if node.value else "false"
    if node.value is None:
        return "null"
    return "a string" if isinstance(node.value, str) else "a number"


_BETWEEN = re.compile(r"[ \t\r\n]*(?:(?://[^\r\n]*|/\*.*?\*/)[ \t\r\n]*)*", re.S)
_STRAIGHT = re.compile(r'[^"\\\x00-\x1f]*')
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.A)
_WORD = re.compile(r"[A-Za-z_$][\w$]*", re.A)
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_LINE_END = re.compile(r"\r\n|\r|\n")
# A longer integer does not fit into a float.
_LONGEST_NUMBER = 300


def _simple(letter: str) -> str | None:
    at = '"\\/bfnrt'.find(letter) if letter else -1
    return None if at < 0 else '"\\/\b\f\n\r\t'[at]


class _Parser:
    """One pass over a text; ``_at`` is the offset of the next character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._starts = [0, *(found.end() for found in _LINE_END.finditer(text))]

    def whole(self) -> JsonNode:
        """Parse the one value of the text."""
        self._skip()
        if not self._peek():
            self._fail("nothing is written here, expected an object: {")
        value = self._value(1)
        self._skip()
        if self._peek():
            self._fail(f"expected nothing more after the end of the document, found {self._found()}")
        return value

    # --- values ------------------------------------------------------------------------------------------------------

    def _value(self, depth: int) -> JsonNode:
        character = self._peek()
        if character in ("{", "["):
            if depth > MAX_DEPTH:
                self._fail(f"objects and lists are nested deeper than {MAX_DEPTH}")
            return self._object(depth) if character == "{" else self._array(depth)
        line, column = self._place(self._at)
        if character == '"':
            return JsonScalar(self._string(), line, column)
        if character == "-" or character.isdigit():
            return JsonScalar(self._number(), line, column)
        return JsonScalar(self._literal(), line, column)

    def _object(self, depth: int) -> JsonObject:
        line, column = self._place(self._at)
        members: dict[str, JsonProperty] = {}
        repeated: list[tuple[str, int, int]] = []
        self._at += 1
        while self._more("}"):
            member = self._member(depth)
            if member.name in members:
                repeated.append((member.name, members[member.name].line, member.line))
            members[member.name] = member
            self._separator("}")
        return JsonObject(members, line, column, tuple(repeated))

    def _member(self, depth: int) -> JsonProperty:
        line, column = self._place(self._at)
        if self._peek() != '"':
            self._fail(f'expected a name in double quotes, or "}}", found {self._found()}')
        name = self._string()
        self._skip()
        if self._peek() != ":":
            self._fail(f'expected ":" after a name, found {self._found()}')
        self._at += 1
        self._skip()
        return JsonProperty(name, self._value(depth + 1), line, column)

    def _array(self, depth: int) -> JsonArray:
        line, column = self._place(self._at)
        items: list[JsonNode] = []
        self._at += 1
        while self._more("]"):
            items.append(self._value(depth + 1))
            self._separator("]")
        return JsonArray(tuple(items), line, column)

    def _more(self, end: str) -> bool:
        """Return True if another item starts here; otherwise skip the end."""
        self._skip()
        if self._peek() == end:
            self._at += 1
            return False
        return True

    def _separator(self, end: str) -> None:
        """Skip the comma after an item; the end may come instead."""
        self._skip()
        if self._peek() == ",":
            self._at += 1
        elif self._peek() != end:
            self._fail(f'expected "," or "{end}", found {self._found()}')

    # --- strings, numbers, literals ----------------------------------------------------------------------------------

    def _string(self) -> str:
        opened = self._at
        self._at += 1
        parts: list[str] = []
        while True:
            straight = _STRAIGHT.match(self._text, self._at)
            assert straight is not None
            parts.append(straight.group())
            self._at = straight.end()
            character = self._peek()
            if character == '"':
                self._at += 1
                return "".join(parts)
            if character != "\\":
                self._fail_in_string(character, opened)
            parts.append(self._escape())

    def _fail_in_string(self, character: str, opened: int) -> NoReturn:
        if character in ("", "\n", "\r"):
            self._at = opened
            self._fail('the string that starts here has no closing " on its line')
        self._fail(
            f"a string cannot contain the control character U+{ord(character):04X}; write \\u{ord(character):04x}"
        )

    def _escape(self) -> str:
        letter = self._text[self._at + 1 : self._at + 2]
        simple = _simple(letter)
        if simple is not None:
            self._at += 2
            return simple
        if letter != "u":
            self._fail(
                '"\\" in a string starts an escape such as \\n or \\u00e9; write "\\\\" for the character itself'
            )
        code = self._unit()
        if 0xD800 <= code < 0xDC00 and self._text.startswith("\\u", self._at):
            low = self._unit()
            if 0xDC00 <= low < 0xE000:
                return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))
            code = 0xD800
        if 0xD800 <= code < 0xE000:
            self._fail("an escape here is half of a pair; characters beyond U+FFFF are two \\u escapes")
        return chr(code)

    def _unit(self) -> int:
        digits = _HEX.match(self._text, self._at + 2)
        if digits is None:
            self._fail("expected four hexadecimal digits after \\u")
        self._at = digits.end()
        return int(digits.group(), 16)

    def _number(self) -> int | float:
        found = _NUMBER.match(self._text, self._at)
        following = "" if found is None else self._text[found.end() : found.end() + 1]
        if found is None or following.isalnum() or following in (".", "_"):
            self._fail("expected a number as JSON writes it, such as 10, -1 or 0.5")
        if len(found.group()) > _LONGEST_NUMBER:
            self._fail(f"a number has more than {_LONGEST_NUMBER} digits")
        fraction, exponent = found.groups()
        value = int(found.group()) if fraction is None and exponent is None else float(found.group())
        if isinstance(value, float) and math.isinf(value):
            self._fail("a number is too large")
        self._at = found.end()
        return value

    def _literal(self) -> bool | None:
        word = _WORD.match(self._text, self._at)
        text = "" if word is None else word.group()
        if text not in ("true", "false", "null"):
            self._fail(f"expected a value, found {self._found()}{self._advice(text)}")
        self._at += len(text)
        return None if text == "null" else text == "true"

    def _advice(self, word: str) -> str:
        if word.lower() in ("true", "false", "null", "none", "undefined"):
            return f"; write {'null' if word.lower() in ('none', 'undefined') else word.lower()}"
        return (
            "; strings are written in double quotes" if word or self._peek() in ("'", "`", "\u201c", "\u201d") else ""
        )

    # --- positions ---------------------------------------------------------------------------------------------------

    def _skip(self) -> None:
        between = _BETWEEN.match(self._text, self._at)
        assert between is not None
        self._at = between.end()
        if self._text.startswith("/*", self._at):
            self._fail('the comment that starts here has no closing "*/"')

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _found(self) -> str:
        """Describe the next character alone: the text may contain secrets."""
        character = self._peek()
        if not character:
            return "the end of the file"
        if character == '"':
            return "a double quote"
        return f'"{character}"' if character.isprintable() else f"the character U+{ord(character):04X}"

    def _place(self, at: int) -> tuple[int, int]:
        line = bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1

    def _fail(self, message: str) -> NoReturn:
        line, column = self._place(self._at)
        raise InvalidJson(message, line=line, column=column)
