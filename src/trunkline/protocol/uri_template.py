"""RFC 6570 URI templates: all four levels expand, and a URI is matched in time linear in its length.

It knows neither resources nor revisions. A template is parsed into literals and expressions, and these into *steps* for
matching. Matching first folds each percent-encoded byte of the URI into one private character, so no step can split an
escape. It then goes through the steps once from the left, keeping for each the set of offsets where it may begin (one
byte per offset), and once from the right to choose among them. No step is tried twice, whatever the URI: the cost is
length times steps. If several readings match, later variables are as short as possible.

How a variable matches, beyond what the RFC says of expansion:

- ``{name}`` matches one or more characters, but no ``/``, ``?`` or ``#``; ``{+path}``, ``{#part}`` and ``{path*}``
  match slashes too. A variable matches no ``?``, ``#``, ``;`` or ``&`` that a later expression starts with.
- ``{?q,lang}``, ``{&q}`` and ``{;q}`` match parameters in any order; missing ones are absent, unknown ones ignored, and
  a duplicate does not match unless it is ``{?q*}``, whose value is a list.
- ``{/path*}`` and ``{.label*}`` match lists; an empty one is absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeGuard

from msgspec import Struct

__all__ = ["UriTemplate", "Value"]

#: The value of a variable in an expansion.
Value = str | Sequence[str] | Mapping[str, str]

_NAME = re.compile(r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+(?:\.(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+)*")
_PREFIX = re.compile(r"[1-9][0-9]{0,3}")
_BAD_LITERAL = re.compile(r'[\x00-\x20\x7f"<>\\^`|}]|%(?![0-9A-Fa-f]{2})')
_NOT_UNRESERVED = re.compile(r"[^A-Za-z0-9\-._~]+")
_NOT_RESERVED = re.compile(r"(?:[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]|%(?![0-9A-Fa-f]{2}))+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_SLASH = re.compile(r"[/\\]")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# An encoded byte b is the character FOLD + b while matching: no URI contains these once its non-ASCII part is encoded.
_FOLD = 0x100
_UNFOLD = MappingProxyType({_FOLD + byte: byte for byte in range(256)})


class _Operator(Struct, frozen=True):
    """One row of the table in RFC 6570, appendix A."""

    first: str
    separator: str
    named: bool
    if_empty: str
    reserved: bool


_OPERATORS = MappingProxyType(
    {
        "": _Operator("", ",", False, "", False),
        "+": _Operator("", ",", False, "", True),
        "#": _Operator("#", ",", False, "", True),
        ".": _Operator(".", ".", False, "", False),
        "/": _Operator("/", "/", False, "", False),
        ";": _Operator(";", ";", True, "", False),
        "?": _Operator("?", "&", True, "=", False),
        "&": _Operator("&", "&", True, "=", False),
    }
)

# What ends a group, whatever follows.
_GROUP_STOPS = MappingProxyType({".": "/?#", "/": "?#", ";": "/?#", "?": "#", "&": "#"})


class _Variable(Struct, frozen=True):
    """A name in an expression, with its modifier."""

    name: str
    prefix: int = 0
    explode: bool = False


class _Expression(Struct, frozen=True):
    """The content of a pair of braces."""

    operator: str
    variables: tuple[_Variable, ...]


class _Literal(Struct, frozen=True):
    """A step that matches fixed text, folded."""

    text: str


class _Capture(Struct, frozen=True):
    """A step that matches one or more characters, none of them in ``stop``, for one variable."""

    variable: _Variable
    stop: re.Pattern[str]
    slashes: bool


class _Group(Struct, frozen=True):
    """A step that matches nothing, or ``first`` and what follows up to ``stop``: parameters or a list."""

    first: str
    separator: str
    stop: re.Pattern[str]
    named: bool
    variables: tuple[_Variable, ...]


_Step = _Literal | _Capture | _Group


class UriTemplate(Struct, frozen=True):
    """A parsed template; ``text`` is its source and ``names`` are its variables in order."""

    text: str
    names: tuple[str, ...]
    _parts: tuple[str | _Expression, ...]
    _steps: tuple[_Step, ...]

    @classmethod
    def parse(cls, text: str) -> UriTemplate:
        """Parse a template.

        Raises:
            ValueError: it is invalid; the message gives the offset and the fix.
        """
        parts = tuple(_read_parts(text))
        names = dict.fromkeys(v.name for part in parts if not isinstance(part, str) for v in part.variables)
        return cls(text, tuple(names), parts, tuple(_steps(parts)))

    def expand(self, values: Mapping[str, Value]) -> str:
        """Expand the template; a variable without a value, or with an empty list, is left out.

        Raises:
            ValueError: a prefix was requested of a list, or a string is not valid Unicode.
        """
        return "".join(
            _encode(part, reserved=True) if isinstance(part, str) else _expand(part, values) for part in self._parts
        )

    def match(self, uri: str, *, safe: bool = True) -> dict[str, str | list[str]] | None:
        """Return the decoded variables of a URI that matches this template, or None if it does not match.

        A safe match rejects what could leave a folder: a slash, backslash or NUL, or ``.`` or ``..`` as the whole of a
        variable that matches no slashes; a ``..`` segment, a NUL or an absolute path in one that does; a ``..`` segment
        or NUL in a parameter of ``{?q}``.
        """
        folded = _fold_uri(uri)
        if folded is None:
            return None
        cuts = _cuts(self._steps, folded)
        if cuts is None:
            return None
        try:
            return _values(self._steps, [folded[start:end] for start, end in cuts], safe=safe)
        except ValueError:
            return None


def _read_parts(text: str) -> Iterator[str | _Expression]:
    """Split a template into literal texts and expressions."""
    at = 0
    while at < len(text):
        opened = text.find("{", at)
        literal_end = len(text) if opened < 0 else opened
        bad = _BAD_LITERAL.search(text, at, literal_end)
        if bad:
            fix = 'There is no "{" before it; write "%7D".' if bad[0] == "}" else "Write it percent-encoded."
            raise ValueError(f"URI template, offset {bad.start()}: {bad[0]!r} is not allowed in a URI. {fix}")
        if literal_end > at:
            yield text[at:literal_end]
        if opened < 0:
            return
        closed = text.find("}", opened)
        if closed < 0:
            raise ValueError(f'URI template, offset {opened}: "{{" is never closed. Add "}}" after the variable.')
        yield _read_expression(text, opened + 1, closed)
        at = closed + 1


def _read_expression(text: str, start: int, end: int) -> _Expression:
    operator = text[start : start + 1]
    if operator in _OPERATORS and start < end:
        start += 1
    elif operator in ("=", ",", "!", "@", "|"):
        raise ValueError(
            f'URI template, offset {start}: the operator "{operator}" is reserved. Use one of + # . / ; ? &.'
        )
    else:
        operator = ""
    variables = []
    for spec in text[start:end].split(","):
        variables.append(_read_variable(spec, start))
        start += len(spec) + 1
    return _Expression(operator, tuple(variables))


def _read_variable(spec: str, at: int) -> _Variable:
    name, colon, length = spec.removesuffix("*").partition(":")
    explode = spec.endswith("*")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"URI template, offset {at}: {name!r} is not a variable name. Use letters, digits, underscores, inner dots."
        )
    if colon and (explode or not _PREFIX.fullmatch(length)):
        raise ValueError(
            f"URI template, offset {at}: {spec!r} has an invalid modifier. "
            f"Use one of {name}, {name}:3 (1 to 9999) and {name}*."
        )
    return _Variable(name, int(length or 0), explode)


# Expansion


def _escape(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def _encode(text: str, *, reserved: bool) -> str:
    return (_NOT_RESERVED if reserved else _NOT_UNRESERVED).sub(_escape, text)


def _expand(expression: _Expression, values: Mapping[str, Value]) -> str:
    operator = _OPERATORS[expression.operator]
    pieces: list[str] = []
    for variable in expression.variables:
        value = values.get(variable.name)
        if isinstance(value, str):
            text = value[: variable.prefix] if variable.prefix else value
            pieces.append(_pair(operator, variable.name, _encode(text, reserved=operator.reserved)))
        elif value:
            if variable.prefix:
                raise ValueError(f'"{variable.name}:{variable.prefix}" needs a string; a list has no prefix.')
            pieces.extend(_expand_several(operator, variable, value))
    return operator.first + operator.separator.join(pieces) if pieces else ""


def _expand_several(operator: _Operator, variable: _Variable, value: Sequence[str] | Mapping[str, str]) -> list[str]:
    def encode(text: str) -> str:
        return _encode(text, reserved=operator.reserved)

    if isinstance(value, Mapping):
        pairs = [(encode(key), encode(item)) for key, item in value.items()]
        if variable.explode:
            return [f"{key}={item}" if item or not operator.named else key + operator.if_empty for key, item in pairs]
        return [_pair(operator, variable.name, ",".join(f"{key},{item}" for key, item in pairs))]
    items = [encode(item) for item in value]
    if variable.explode:
        return [_pair(operator, variable.name, item) for item in items]
    return [_pair(operator, variable.name, ",".join(items))]


def _pair(operator: _Operator, name: str, text: str) -> str:
    if not operator.named:
        return text
    return f"{name}={text}" if text else name + operator.if_empty


# Matching: the template as steps


def _steps(parts: Sequence[str | _Expression]) -> Iterator[_Step]:
    parts = _with_queries_joined(parts)
    for index, part in enumerate(parts):
        if isinstance(part, str):
            yield _Literal(_fold(_encode(part, reserved=True)))
        else:
            later = {p.operator for p in parts[index + 1 :] if isinstance(p, _Expression)}
            yield from _expression_steps(part, "".join(sorted(later & {"?", "#", ";", "&"})))


def _with_queries_joined(parts: Sequence[str | _Expression]) -> list[str | _Expression]:
    """Make ``{?a}{&b}`` one expression, since its parameters come in any order."""
    joined: list[str | _Expression] = []
    for part in parts:
        last = joined[-1] if joined else ""
        if _is_query(last, "?&") and _is_query(part, "&"):
            joined[-1] = _Expression(last.operator, last.variables + part.variables)
        else:
            joined.append(part)
    return joined


def _is_query(part: str | _Expression, operators: str) -> TypeGuard[_Expression]:
    return isinstance(part, _Expression) and part.operator != "" and part.operator in operators


def _expression_steps(part: _Expression, leads: str) -> Iterator[_Step]:
    """Turn an expression into steps; ``leads`` are the characters that later expressions start with."""
    operator = _OPERATORS[part.operator]
    if operator.named:
        yield _Group(operator.first, operator.separator, _class(_GROUP_STOPS[part.operator]), True, part.variables)
        return
    for index, variable in enumerate(part.variables):
        if variable.explode and part.operator in _GROUP_STOPS:
            stop = _class(_GROUP_STOPS[part.operator] + leads)
            yield _Group(operator.first, operator.separator, stop, False, (variable,))
            continue
        lead = operator.separator if index else operator.first
        if lead:
            yield _Literal(lead)
        slashes = operator.reserved or variable.explode
        comma = "," if len(part.variables) > 1 else ""
        yield _Capture(variable, _class(leads if slashes else leads + "/?#" + comma), slashes)


def _class(characters: str) -> re.Pattern[str]:
    """Compile a pattern that finds the next of these characters; without characters it finds nothing."""
    return re.compile(f"[{re.escape(characters)}]" if characters else r"(?!)")


# Matching: the URI


def _fold(text: str) -> str:
    """Make each percent-encoded byte one character; an encoded unreserved one becomes itself (RFC 3986, 6.2.2.2)."""
    return _ESCAPE.sub(_fold_byte, text) if "%" in text else text


def _fold_byte(found: re.Match[str]) -> str:
    byte = int(found[1], 16)
    return chr(byte if byte in _UNRESERVED else _FOLD + byte)


def _fold_uri(uri: str) -> str | None:
    """Fold an untrusted URI; None if it has a broken escape or is not valid Unicode."""
    if not uri.isascii():
        try:
            uri = _NOT_ASCII.sub(_escape, uri)
        except UnicodeEncodeError:
            return None
    folded = _fold(uri)
    return None if "%" in folded else folded


def _cuts(steps: Sequence[_Step], text: str) -> list[tuple[int, int]] | None:
    """Return the piece of the text that each step matches, or None if they do not match."""
    starts = bytearray(len(text) + 1)
    starts[0] = 1
    reached = [starts]
    for step in steps:
        starts = _forward(step, text, starts)
        if 1 not in starts:
            return None
        reached.append(starts)
    if not starts[-1]:
        return None
    end = len(text)
    cuts = []
    for step, starts in zip(reversed(steps), reversed(reached[:-1]), strict=True):
        start = _backward(step, text, starts, end)
        cuts.append((start, end))
        end = start
    return cuts[::-1]


def _forward(step: _Step, text: str, starts: bytearray) -> bytearray:
    """Mark every offset where the step can end, given where it can start; each offset is visited once."""
    if isinstance(step, _Literal):
        return _forward_literal(step.text, text, starts)
    first = step.first if isinstance(step, _Group) else ""
    ends = bytearray(starts) if first else bytearray(len(starts))
    at = 0
    while (start := starts.find(1, at)) >= 0:
        if not text.startswith(first, start):
            at = start + 1
            continue
        stop = step.stop.search(text, start + len(first))
        at = stop.start() if stop else len(text)
        ends[start + 1 : at + 1] = b"\1" * (at - start)
        at += 1
    return ends


def _forward_literal(literal: str, text: str, starts: bytearray) -> bytearray:
    ends = bytearray(len(starts))
    at = 0
    while (found := text.find(literal, at)) >= 0 and (at := starts.find(1, found)) >= 0:
        if at == found:
            ends[found + len(literal)] = 1
            at += 1
    return ends


def _backward(step: _Step, text: str, starts: bytearray, end: int) -> int:
    """Choose where a step that ends here starts: as late as possible."""
    if isinstance(step, _Literal):
        return end - len(step.text)
    if isinstance(step, _Capture):
        return starts.rfind(1, 0, end)
    start = end if starts[end] else starts.rfind(1, 0, end)
    while start < end and not text.startswith(step.first, start):
        start = starts.rfind(1, 0, start)
    return start


# Matching: the values


def _values(steps: Sequence[_Step], pieces: Sequence[str], *, safe: bool) -> dict[str, str | list[str]]:
    """Decode the pieces; ValueError if one is invalid, unsafe, or contradicts another of the same name."""
    readings: list[tuple[_Variable, str | list[str]]] = []
    for step, piece in zip(steps, pieces, strict=True):
        if isinstance(step, _Capture):
            readings.append((step.variable, _decode(piece, safe=safe, slashes=step.slashes, rooted=step.slashes)))
        elif isinstance(step, _Group) and piece:
            readings.extend(_read_group(step, piece[1:].split(step.separator), safe=safe))
    values: dict[str, str | list[str]] = {}
    # Whole values before prefixes, longer prefixes before shorter: each prefix must be that of a known value.
    for variable, value in sorted(readings, key=lambda reading: -(reading[0].prefix or 10_000)):
        known = values.setdefault(variable.name, value)
        if value != (known[: variable.prefix] if variable.prefix else known):
            raise ValueError(variable.name)
    return values


def _read_group(step: _Group, items: list[str], *, safe: bool) -> Iterator[tuple[_Variable, str | list[str]]]:
    if not step.named:
        yield step.variables[0], [_decode(item, safe=safe, slashes=False) for item in items]
        return
    given: dict[str, list[str]] = {}
    for item in items:
        name, _, raw = item.partition("=")
        given.setdefault(name, []).append(raw)
    for variable in step.variables:
        # A slash has no meaning in a query, so there it is data.
        texts = [_decode(raw, safe=safe, slashes=step.separator == "&") for raw in given.get(_fold(variable.name), ())]
        if variable.explode and texts:
            yield variable, texts
        elif texts:
            (text,) = texts
            yield variable, text


def _decode(piece: str, *, safe: bool, slashes: bool, rooted: bool = False) -> str:
    text = piece if piece.isascii() else piece.translate(_UNFOLD).encode("latin-1").decode()
    if not safe:
        return text
    segments = _SLASH.split(text)
    if "\0" in text or ".." in segments or not (slashes or (len(segments) == 1 and text != ".")):
        raise ValueError("unsafe")
    # Joined to a folder, an absolute path would replace it.
    if rooted and (segments[0] == "" or segments[0][1:2] == ":"):
        raise ValueError("unsafe")
    return text
