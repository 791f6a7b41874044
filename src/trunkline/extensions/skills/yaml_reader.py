"""A strict YAML reader for frontmatter, on the parser of PyYAML; it knows nothing of skills.

The text may come from an untrusted server, so the values are built from the events of the parser: there are no
constructors, and nothing is expanded. Anchors, aliases, tags, merge keys, several documents, duplicate keys and values
that JSON does not have are rejected with their line. Size, depth and the number of values are limited.

Scalars are those of the YAML 1.2 core schema: ``yes`` and dates are text, as for the reference reader of Agent Skills,
which reads every scalar as text.

The parser is libyaml, never the one in Python: that takes about 100 ms for a text of the permitted size, while the
event loop waits, and differs from libyaml in tabs and escapes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from trunkline.errors import ConfigError

__all__ = ["YamlError", "import_parser", "read_yaml"]

# Frontmatter is short: a description has 1,024 characters at most.
_MAX_CHARACTERS = 64 * 1024
# Far more than metadata needs. libyaml takes quadratic time for deeper ones, but stops with the first rejected event.
_MAX_DEPTH = 32
_MAX_NODES = 4096  # Keys, values and collections.
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
#: Characters that YAML requires to be escaped, and line breaks that readers interpret differently.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
#: Rejected before parsing: libyaml compares each ``%TAG`` with all others.
_DIRECTIVE = re.compile("^%", re.M)
_LINE_END = re.compile(r"\r\n?")

#: What libyaml reports, and what to say instead: the cause in the words of a writer of frontmatter, and the fix.
_EXPLANATIONS: Mapping[str, str] = MappingProxyType(
    {
        "mapping values are not allowed in this context": 'a value that contains ": " must be in quotes',
        "block sequence entries are not allowed in this context": "a list begins on its own line",
        "could not find expected ':'": 'expected "key: value"',
        "did not find expected key": (
            'expected "key: value"; check the indentation, and put a value with special characters in quotes'
        ),
        "did not find expected '-' indicator": "expected another item of the list; check the indentation",
        "did not find expected ',' or ']'": "expected a comma or ]; put text with special characters in quotes",
        "did not find expected ',' or '}'": "expected a comma or }; put text with special characters in quotes",
        "did not find expected node content": "expected a value; put text with special characters in quotes",
        "did not find expected <document start>": "this line does not belong to any key or list above it",
        "found character that cannot start any token": "a value cannot begin with CHARACTER; put it in quotes",
        "found a tab character where an indentation space is expected": "a tab cannot indent; use spaces",
        "found a tab character that violates indentation": "a tab cannot indent; use spaces",
        "found unexpected document indicator": "only one document is supported; remove the document marker",
        "found unknown escape character": (
            "this is not an escape sequence; write \\\\ for a backslash, or use single quotes"
        ),
        "did not find expected hexdecimal number": (
            "this is not an escape sequence; write \\\\ for a backslash, or use single quotes"
        ),
        "found invalid Unicode character escape code": "the escape sequence is not a character",
    }
)
#: The same for reports at the end of the text; the line is that of the opening quote or bracket, if it is known.
_EXPLANATIONS_AT_END: Mapping[str, str] = MappingProxyType(
    {
        "found unexpected end of stream": "the closing quote is missing",
        "did not find expected ',' or ']'": "a closing bracket is missing",
        "did not find expected ',' or '}'": "a closing bracket is missing",
        "did not find expected node content": "a closing bracket is missing",
    }
)


class YamlError(ValueError):
    """The text is not YAML, or uses an unsupported feature; the message has the line and the fix."""


def import_parser() -> Any:
    """Return the class of PyYAML's parser.

    Raises:
        ConfigError: PyYAML is not installed, or was built without libyaml.
    """
    try:
        from yaml.cyaml import CParser  # type: ignore[import-untyped]
    except ImportError as error:
        if error.name == "yaml._yaml":
            raise ConfigError(
                "Reading skills needs PyYAML with libyaml, and the installed one was built without it; run: "
                "pip install --force-reinstall --only-binary :all: pyyaml"
            ) from error
        raise ConfigError("Reading skills needs PyYAML; run: pip install 'trunkline[skills]'") from error
    return CParser


def read_yaml(text: str) -> Any:
    """Return the one document of a text as JSON values.

    Raises:
        YamlError: it cannot be read.
        ConfigError: PyYAML is not installed.
    """
    parser_class = import_parser()
    from yaml import MarkedYAMLError  # type: ignore[import-untyped]

    if len(text) > _MAX_CHARACTERS:
        raise YamlError(f"it has {len(text)} characters; the limit is {_MAX_CHARACTERS}")
    text = _LINE_END.sub("\n", text)
    _check_characters(text)
    parser = parser_class(text)
    try:
        return _EventReader(parser).document()
    except MarkedYAMLError as error:
        _fail(*_explain(error, text))
    finally:
        parser.dispose()


def _fail(line: int, message: str) -> NoReturn:
    """Raise the error for a line, counted from 0 as the parser does."""
    raise YamlError(f"line {line + 1}: {message}")


def _check_characters(text: str) -> None:
    if character := _FORBIDDEN.search(text):
        _fail(
            text.count("\n", 0, character.start()),
            f"the character U+{ord(character.group()):04X} is not allowed; escape it in double quotes",
        )
    if directive := _DIRECTIVE.search(text):
        _fail(text.count("\n", 0, directive.start()), "directives are not supported; remove this line")


def _explain(error: Any, text: str) -> tuple[int, str]:
    """Return the line of an error of the parser, and the message for it."""
    mark = error.problem_mark
    line, _, following = text[mark.index - mark.column :].partition("\n")
    if not line[mark.column :] and not following and error.problem in _EXPLANATIONS_AT_END:
        return error.context_mark.line, _EXPLANATIONS_AT_END[error.problem]
    if "\t" in line[: mark.column + 1] and not line[: mark.column].strip():
        return mark.line, "a tab cannot indent; use spaces"
    message = _EXPLANATIONS.get(error.problem, f"{error.problem}; put the value in quotes")
    return mark.line, message.replace("CHARACTER", repr(line[mark.column : mark.column + 1]))


class _EventReader:
    """Builds the values of one document from the events of a parser."""

    def __init__(self, parser: Any) -> None:
        from yaml import events

        self._types = events
        self._next_event = parser.get_event
        self._nodes = 0

    def document(self) -> Any:
        types = self._types
        self._next_event()  # The start of the stream.
        start = self._next_event()
        if isinstance(start, types.StreamEndEvent):
            return None
        value = None
        if not start.explicit:
            value = self._value(self._next_event(), 1)
            end = self._next_event()
            start = end if end.explicit else self._next_event()
        if not isinstance(start, types.StreamEndEvent):
            _fail(start.start_mark.line, "only one document is supported; remove the document marker")
        return value

    def _value(self, event: Any, depth: int) -> Any:
        """Return the value that begins with an event; ``depth`` is that of a collection."""
        self._check_node(event)
        if isinstance(event, self._types.ScalarEvent):
            return _resolve(event.value, event.start_mark.line) if event.implicit[0] else event.value
        if depth > _MAX_DEPTH:
            _fail(event.start_mark.line, f"it is nested more than {_MAX_DEPTH} levels deep")
        if isinstance(event, self._types.MappingStartEvent):
            return self._mapping(depth)
        items: list[Any] = []
        while not isinstance(item := self._next_event(), self._types.SequenceEndEvent):
            items.append(self._value(item, depth + 1))
        return items

    def _mapping(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not isinstance(key := self._next_event(), self._types.MappingEndEvent):
            name = self._key(key)
            if name in members:
                _fail(key.start_mark.line, f"the key {name!r} occurs twice; remove one")
            members[name] = self._value(self._next_event(), depth + 1)
        return members

    def _key(self, event: Any) -> str:
        """Return the key of an event; it stays text, whatever it looks like."""
        self._check_node(event)
        line = event.start_mark.line
        if not isinstance(event, self._types.ScalarEvent):
            _fail(line, "complex keys are not supported; a key must be text")
        name: str = event.value
        is_plain = event.implicit[0]
        if is_plain and not name:
            _fail(line, "the key before the colon is missing")
        if is_plain and name == "<<":
            _fail(line, "merge keys (<<) are not supported; write the members out")
        if len(name) > _MAX_KEY:
            _fail(line, f"a key has more than {_MAX_KEY} characters")
        return name

    def _check_node(self, event: Any) -> None:
        self._nodes += 1
        line = event.start_mark.line
        if self._nodes > _MAX_NODES:
            _fail(line, f"it has more than {_MAX_NODES} keys and values")
        if isinstance(event, self._types.AliasEvent):
            _fail(line, "aliases are not supported; write the value out, or put it in quotes")
        if event.anchor is not None:
            _fail(line, "anchors are not supported; write the value out, or put it in quotes")
        if event.tag is not None:
            _fail(line, "tags are not supported; write the value out, or put it in quotes")


def _resolve(text: str, line: int) -> Any:
    """Return the value of plain text by the core schema."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _NO_NUMBER.match(text):
        _fail(line, f"{text} cannot be written in JSON; put it in quotes")
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
        _fail(line, f"the number {text[:40]} is too large; put it in quotes")
    return number
