"""A strict reader for the subset of YAML that frontmatter uses; it knows nothing of skills.

It supports block and flow collections, plain and quoted scalars, literal and folded blocks, comments, and the null,
booleans and numbers of the YAML 1.2 core schema. Dangerous or ambiguous features are rejected with their line: anchors,
aliases, tags, merge keys, complex keys, several documents, duplicate keys, and values that JSON does not have. Depth
and size are limited, since the text may come from an untrusted server.

Block structure is read line by line, because it depends on indentation; inside a line, and in flow collections, a
cursor moves over characters. A method that reads a block leaves the cursor at the line after it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

__all__ = ["YamlError", "read_yaml"]

# Frontmatter is short: a description has 1,024 characters at most.
_MAX_CHARACTERS = 64 * 1024
_MAX_DEPTH = 32  # Far more than metadata needs, and far less than the recursion limit of the interpreter.
_MAX_KEY = 1024  # YAML 1.2.2, 7.4.2: an implicit key has at most 1,024 characters.
_MAX_INTEGER = 2**63  # JSON readers with 64-bit integers accept what is below.

_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_OCTAL = re.compile(r"0o[0-7]+\Z")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NO_NUMBER = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_CONSTANTS: Mapping[str, bool | None] = MappingProxyType(
    {
        "": None,
        "~": None,
        "null": None,
        "Null": None,
        "NULL": None,
        "true": True,
        "True": True,
        "TRUE": True,
        "false": False,
        "False": False,
        "FALSE": False,
    }
)
_ESCAPES: Mapping[str, str] = MappingProxyType(
    {
        "0": "\0",
        "a": "\a",
        "b": "\b",
        "t": "\t",
        "\t": "\t",
        "n": "\n",
        "v": "\v",
        "f": "\f",
        "r": "\r",
        "e": "\x1b",
        " ": " ",
        '"': '"',
        "/": "/",
        "\\": "\\",
        "N": "\x85",
        "_": "\xa0",
        "L": "\u2028",
        "P": "\u2029",
    }
)
_HEX_ESCAPES: Mapping[str, int] = MappingProxyType({"x": 2, "u": 4, "U": 8})
_BLANKS = " \t"
_FLOW_INDICATORS = ",[]{}"
#: The characters that plain text may not begin with; ``-``, ``?`` and ``:`` may if text follows directly.
_NOT_PLAIN = frozenset(",[]{}#&*!|>'\"%@`")
#: Characters that YAML requires to be escaped, and line breaks that readers interpret differently.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
#: A colon that ends a key, in blocks and in flow collections.
_COLON = re.compile(r":(?=[ \t]|\Z)")
_FLOW_COLON = re.compile(r":(?=[ \t,\[\]{}]|\Z)")
_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#")
#: The end of plain text in a flow collection. One pattern: separate searches for each kind of end would each read the
#: rest of the line, for every item in it.
_FLOW_PLAIN_END = re.compile(rf"[,\[\]{{}}]|{_FLOW_COLON.pattern}|{_COMMENT.pattern}")
_DASH = re.compile(r"-(?=[ \t]|\Z)")
_BLOCK_HEADER = re.compile(r"([|>])(?:([1-9])([-+]?)|([-+])([1-9]?))?[ \t]*(?:(?<=[ \t])#.*)?\Z")


class YamlError(ValueError):
    """The text is not YAML, or uses an unsupported feature; the message has the line and the fix."""


def read_yaml(text: str) -> Any:
    """Return the one document of a text as JSON values.

    Raises:
        YamlError: it cannot be read.
    """
    if len(text) > _MAX_CHARACTERS:
        raise YamlError(f"it has {len(text)} characters; the limit is {_MAX_CHARACTERS}")
    reader = _Reader(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    return reader.document()


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.row = 0
        self.col = 0
        self._depth = 0

    def fail(self, message: str) -> NoReturn:
        raise YamlError(f"line {min(self.row, len(self.lines) - 1) + 1}: {message}")

    def document(self) -> Any:
        for self.row, line in enumerate(self.lines):  # noqa: B020 - the row is where an error would be
            if found := _FORBIDDEN.search(line):
                self.fail(f"the character U+{ord(found.group()):04X} is not allowed; escape it in double quotes")
        self.row = 0
        indent = self.next_content()
        if indent is None:
            return None
        self.col = indent
        value = self.block(-1)
        if self.next_content() is not None:
            self.fail("this line does not belong to any key or list above it; check its indentation")
        return value

    # --- the cursor ---------------------------------------------------------------------------------------------------

    @property
    def line(self) -> str:
        return self.lines[self.row]

    @property
    def char(self) -> str:
        """The character under the cursor; nothing at the end of a line."""
        return self.line[self.col : self.col + 1]

    def skip_blanks(self) -> None:
        while self.char and self.char in _BLANKS:
            self.col += 1

    def at_line_end(self) -> bool:
        """Whether only blanks or a comment follow; moves the cursor to them."""
        self.skip_blanks()
        return not self.char or (self.char == "#" and (self.col == 0 or self.line[self.col - 1] in _BLANKS))

    def next_line(self) -> None:
        self.row += 1
        self.col = 0

    def next_content(self) -> int | None:
        """Move to the next line that is neither blank nor a comment; return its indentation, None at the end."""
        self.col = 0
        while self.row < len(self.lines):
            content = self.line.strip(_BLANKS)
            if content and not content.startswith("#"):
                return self.indentation()
            self.row += 1
        return None

    def indentation(self) -> int:
        line = self.line
        indent = len(line) - len(line.lstrip(" "))
        if line[indent] == "\t":
            self.fail("a tab cannot indent; use spaces")
        if indent == 0:
            if line[:3] in ("---", "...") and not line[3:4].strip():
                self.fail("only one document is supported; remove the document marker")
            if line[0] == "%":
                self.fail("directives are not supported; remove this line")
        return indent

    def at_dash(self) -> bool:
        return _DASH.match(self.line, self.col) is not None

    def enter(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self.fail(f"it is nested more than {_MAX_DEPTH} levels deep")

    def leave(self) -> None:
        self._depth -= 1

    def refuse_properties(self) -> None:
        names = {"&": "anchors", "*": "aliases", "!": "tags"}
        if self.char in names:
            self.fail(f"{names[self.char]} are not supported; write the value out, or put it in quotes")
        if self.char == "?" and not self.line[self.col + 1 : self.col + 2].strip():
            self.fail("complex keys (?) are not supported; write key: value")

    # --- blocks -------------------------------------------------------------------------------------------------------

    def block(self, parent: int) -> Any:
        """Read the collection at the cursor, whose indentation is the cursor's column, or the scalar."""
        self.enter()
        self.refuse_properties()
        if self.at_dash():
            value: Any = self.sequence(self.col)
        elif self.find_key() is not None:
            value = self.mapping(self.col)
        else:
            value = self.scalar(parent)
        self.leave()
        return value

    def mapping(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while True:
            key = None if self.at_dash() else self.find_key()
            if key is None:
                self.refuse_properties()
                self.fail('expected "key: value"')
            name, self.col = key
            self.check_key(name, found)
            found[name] = self.value(indent)
            following = self.next_content()
            if following is None or following < indent:
                return found
            if following > indent:
                self.fail("this line is indented more than the key before it, and continues nothing")
            self.col = indent

    def check_key(self, name: str, found: Mapping[str, Any]) -> None:
        if len(name) > _MAX_KEY:
            self.fail(f"a key has more than {_MAX_KEY} characters")
        if name in found:
            self.fail(f"the key {name!r} occurs twice; remove one")

    def find_key(self) -> tuple[str, int] | None:
        """Return the key at the cursor, and the column after its colon; None if there is none on this line."""
        line, start = self.line, self.col
        if self.char in ("'", '"'):
            row = self.row
            name = self.quoted(-1)
            self.skip_blanks()
            end, on_one_line = self.col, self.row == row
            self.row, self.col = row, start
            return (name, end + 1) if on_one_line and _COLON.match(line, end) else None
        if self.char in _NOT_PLAIN:
            return None
        colon, comment = _COLON.search(line, start), _COMMENT.search(line, start)
        if colon is None or (comment is not None and comment.start() < colon.start()):
            return None
        name = line[start : colon.start()].rstrip(_BLANKS)
        if not name:
            self.fail("the key before the colon is missing")
        if name == "<<":
            self.fail("merge keys (<<) are not supported; write the members out")
        return name, colon.end()

    def value(self, indent: int) -> Any:
        """Read the value after the colon of a key."""
        if not self.at_line_end():
            if self.at_dash():
                self.fail("a list begins on its own line")
            self.refuse_properties()
            return self.scalar(indent)
        self.next_line()
        following = self.next_content()
        if following is None or following < indent:
            return None
        self.col = following
        if following == indent:
            if not self.at_dash():
                return None
            self.enter()
            items = self.sequence(indent)
            self.leave()
            return items
        return self.block(indent)

    def sequence(self, indent: int) -> list[Any]:
        items: list[Any] = []
        while True:
            self.col += 1
            if "\t" in self.line[self.col : len(self.line) - len(self.line[self.col :].lstrip(_BLANKS))]:
                self.fail("a tab cannot indent; use spaces after the dash")
            if self.at_line_end():
                self.next_line()
                following = self.next_content()
                self.col = following or 0
                items.append(self.block(indent) if following is not None and following > indent else None)
            else:
                items.append(self.block(indent))
            following = self.next_content()
            if following is None or following < indent:
                return items
            if following > indent:
                self.fail("this line is indented more than the list it stands in")
            self.col = indent
            if not self.at_dash():
                return items

    def scalar(self, parent: int) -> Any:
        """Read a scalar or a flow collection; nothing else may stand on its last line."""
        if self.char in ("|", ">"):
            return self.block_scalar(parent)
        if self.char not in ("[", "{", "'", '"'):
            return self.plain(parent)
        value = self.quoted(parent) if self.char in ("'", '"') else self.flow(parent)
        if not self.at_line_end():
            self.fail(f"unexpected {self.line[self.col :]!r} after a value; put the whole value in quotes")
        self.next_line()
        return value

    def plain(self, parent: int) -> Any:
        """Read plain text, with the lines that continue it."""
        self.check_plain_start()
        row = self.row
        text, goes_on = self.plain_line()
        while goes_on:
            blank = 0
            while self.row < len(self.lines) and not self.line.strip(_BLANKS):
                blank += 1
                self.row += 1
            if self.row == len(self.lines):
                break
            content = self.line.strip(_BLANKS)
            if content.startswith("#") or len(self.line) - len(self.line.lstrip(" ")) <= parent:
                break
            self.col = len(self.line) - len(self.line.lstrip(_BLANKS))
            more, goes_on = self.plain_line()
            text += ("\n" * blank or " ") + more
        return self.resolve(text, row)

    def check_plain_start(self) -> None:
        following = self.line[self.col + 1 : self.col + 2]
        if self.char in _NOT_PLAIN or (self.char in "-?:" and not following.strip()):
            self.fail(f"a value cannot begin with {self.char!r}; put it in quotes")

    def plain_line(self) -> tuple[str, bool]:
        """Read the rest of a line as plain text; return also whether the next line may continue it."""
        line = self.line
        comment = _COMMENT.search(line, self.col)
        text = line[self.col : comment.start() if comment else len(line)].rstrip(_BLANKS)
        if _COLON.search(text):
            self.fail('a value that contains ": " must be in quotes')
        self.next_line()
        return text, comment is None

    def resolve(self, text: str, row: int) -> Any:
        """Return the value of plain text that begins in a row, by the core schema."""
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _NO_NUMBER.match(text):
            self.row = row
            self.fail(f"{text} cannot be written in JSON; put it in quotes")
        number: int | float
        if _INTEGER.match(text):
            # The length first: converting thousands of digits takes long.
            number = int(text) if len(text) <= len(str(_MAX_INTEGER)) + 1 else _MAX_INTEGER
        elif _OCTAL.match(text):
            number = int(text[2:], 8)
        elif _HEXADECIMAL.match(text):
            number = int(text[2:], 16)
        elif _FLOAT.match(text):
            number = float(text)
        else:
            return text
        # Not math.isinf: it fails for an integer that no float can hold.
        if number in (math.inf, -math.inf) or (isinstance(number, int) and not -_MAX_INTEGER <= number < _MAX_INTEGER):
            self.row = row
            self.fail(f"the number {text[:40]} is too large; put it in quotes")
        return number

    def block_scalar(self, parent: int) -> str:
        """Read a literal (``|``) or folded (``>``) text."""
        header = _BLOCK_HEADER.match(self.line, self.col)
        if header is None:
            self.fail(f"{self.line[self.col :]!r} does not begin a text block; put the value in quotes")
        style, chomping = header[1], header[3] or header[4] or ""
        digit = header[2] or header[5]
        self.next_line()
        indent = max(parent, 0) + int(digit) if digit else self.detect_indentation(parent)
        lines: list[str] = []
        while self.row < len(self.lines):
            line = self.line
            if line.strip(" ") and len(line) - len(line.lstrip(" ")) < indent:
                break
            lines.append(line[indent:])
            self.row += 1
        # The last element of a split text follows the last line break, so it has none itself.
        breaks = len(lines) - (self.row == len(self.lines))
        while lines and not lines[-1]:
            lines.pop()
        text = "\n".join(lines) if style == "|" else _fold(lines)
        after = breaks - len(lines) + bool(lines)
        kept = {"-": 0, "": min(after, 1) if lines else 0, "+": after}[chomping]
        return text + "\n" * kept

    def detect_indentation(self, parent: int) -> int:
        """Return the indentation of a text block: that of its first line with text."""
        longest = 0
        for row in range(self.row, len(self.lines)):
            line = self.lines[row]
            spaces = len(line) - len(line.lstrip(" "))
            if line.strip(" "):
                if spaces <= parent:
                    break
                if longest > spaces:
                    self.fail("a blank line at the beginning of a text block has more spaces than its text")
                return spaces
            longest = max(longest, spaces)
        return max(longest, parent + 1)

    # --- quotes -------------------------------------------------------------------------------------------------------

    def quoted(self, parent: int) -> str:
        """Read quoted text, which may span several lines; leaves the cursor after the closing quote."""
        quote = self.char
        self.col += 1
        text = ""
        kept = 0  # An escaped blank is text, so the end of a line does not remove it.
        while True:
            char = self.char
            self.col += 1
            if not char:
                text = text[:kept] + text[kept:].rstrip(_BLANKS)
                text += "\n" * self.continue_quoted(parent) or " "
                kept = len(text)
            elif char == quote == "'" and self.char == "'":
                self.col += 1
                text += "'"
            elif char == quote:
                return text
            elif char == "\\" and quote == '"':
                text += self.escape(parent)
                kept = len(text)
            else:
                text += char

    def continue_quoted(self, parent: int) -> int:
        """Move to the next line with text; return the number of blank lines before it."""
        opened, blank = self.row, 0
        self.next_line()
        while self.row < len(self.lines):
            if self.line.strip(_BLANKS):
                if self.indentation_in_flow() <= parent:
                    self.fail("text in quotes must be indented more than its key")
                self.col = len(self.line) - len(self.line.lstrip(_BLANKS))
                return blank
            blank += 1
            self.row += 1
        self.row = opened
        self.fail("the closing quote is missing")

    def indentation_in_flow(self) -> int:
        line = self.line
        if line[:3] in ("---", "...") and not line[3:4].strip():
            self.fail("only one document is supported; remove the document marker")
        return len(line) - len(line.lstrip(" "))

    def escape(self, parent: int) -> str:
        char = self.char
        self.col += 1
        if not char:
            # An escaped line break joins two lines without a space.
            return "\n" * self.continue_quoted(parent)
        if char in _ESCAPES:
            return _ESCAPES[char]
        digits = self.line[self.col : self.col + _HEX_ESCAPES.get(char, 0)]
        if char not in _HEX_ESCAPES or not re.fullmatch(rf"[0-9a-fA-F]{{{_HEX_ESCAPES[char]}}}", digits):
            self.fail(f"\\{char} is not an escape sequence; write \\\\ for a backslash, or use single quotes")
        self.col += len(digits)
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            self.fail(f"\\{char}{digits} is not a character")
        return chr(code)

    # --- flow collections ---------------------------------------------------------------------------------------------

    def flow(self, parent: int) -> Any:
        """Read a value inside a flow collection, or the collection itself."""
        self.refuse_properties()
        if self.char in ("'", '"'):
            return self.quoted(parent)
        if self.char not in ("[", "{"):
            row = self.row
            return self.resolve(self.flow_plain(parent), row)
        self.enter()
        value = self.flow_sequence(parent) if self.char == "[" else self.flow_mapping(parent)
        self.leave()
        return value

    def flow_sequence(self, parent: int) -> list[Any]:
        items: list[Any] = []
        self.col += 1
        while self.next_in_flow(parent) != "]":
            items.append(self.flow(parent))
            if self.next_in_flow(parent) == ":":
                self.fail("a pair in a list needs braces: [{key: value}]")
            self.end_of_item(parent, "]")
        self.col += 1
        return items

    def flow_mapping(self, parent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.col += 1
        while self.next_in_flow(parent) != "}":
            if self.char in ("[", "{"):
                self.fail("complex keys are not supported; a key must be text")
            self.refuse_properties()
            is_quoted = self.char in ("'", '"')
            name = self.quoted(parent) if is_quoted else self.flow_plain(parent)
            if name == "<<" and not is_quoted:
                self.fail("merge keys (<<) are not supported; write the members out")
            self.check_key(name, found)
            found[name] = None
            if self.next_in_flow(parent) == ":":
                self.col += 1
                if self.next_in_flow(parent) not in (",", "}"):
                    found[name] = self.flow(parent)
            self.end_of_item(parent, "}")
        self.col += 1
        return found

    def end_of_item(self, parent: int, closing: str) -> None:
        if self.next_in_flow(parent) == ",":
            self.col += 1
        elif self.char != closing:
            self.fail(f"expected a comma or {closing}, not {self.char!r}; put text with such characters in quotes")

    def next_in_flow(self, parent: int) -> str:
        """Move over blanks, comments and line ends to the next character, and return it."""
        while self.at_line_end():
            opened = self.row
            self.next_line()
            if self.row == len(self.lines):
                self.row = opened
                self.fail("a closing bracket is missing")
            content = self.line.strip(_BLANKS)
            # A closing bracket below the key that opened it is not YAML, but every reader accepts it.
            if content and self.indentation_in_flow() <= parent and content[0] not in "]}":
                self.fail("the content of brackets must be indented more than its key; is a closing bracket missing?")
        return self.char

    def flow_plain(self, parent: int) -> str:
        if self.char in _FLOW_INDICATORS and self.char:
            self.fail(f"expected a value before {self.char!r}")
        following = self.line[self.col + 1 : self.col + 2]
        if self.char in _NOT_PLAIN or (self.char in "-?:" and (not following.strip() or following in _FLOW_INDICATORS)):
            self.fail(f"a value cannot begin with {self.char!r}; put it in quotes")
        text = self.flow_plain_line()
        while not self.char:
            # A line break inside plain text is a space, unless the text has ended.
            row, col, blank = self.row, self.col, 0
            self.next_line()
            while self.row < len(self.lines) and not self.line.strip(_BLANKS):
                blank += 1
                self.row += 1
            content = self.line.strip(_BLANKS) if self.row < len(self.lines) else "]"
            if content[0] in ",[]{}#" or _FLOW_COLON.match(content):
                self.row, self.col = row, col
                break
            if self.indentation_in_flow() <= parent:
                self.fail("the content of brackets must be indented more than its key; is a closing bracket missing?")
            self.col = len(self.line) - len(self.line.lstrip(_BLANKS))
            text += ("\n" * blank or " ") + self.flow_plain_line()
        return text

    def flow_plain_line(self) -> str:
        line, start = self.line, self.col
        end = _FLOW_PLAIN_END.search(line, start)
        self.col = end.start() if end else len(line)
        return line[start : self.col].rstrip(_BLANKS)


def _fold(lines: list[str]) -> str:
    """Join lines by spaces; a blank line is a line break, and lines that are indented more keep theirs."""
    text, blank, before = "", 0, ""
    for line in lines:
        if not line:
            blank += 1
            continue
        kept = line[0] in _BLANKS or before[:1] in tuple(_BLANKS)
        if not before:
            text += "\n" * blank
        elif kept:
            text += "\n" * (blank + 1)
        else:
            text += "\n" * blank or " "
        text += line
        blank, before = 0, line
    return text
