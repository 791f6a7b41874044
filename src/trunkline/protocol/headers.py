"""The headers that mirror a request for routing: ``Mcp-Method``, ``Mcp-Name`` and ``Mcp-Param-*``.

Pure rules for both ends: a client builds the headers of a body, a server compares them with it. Nothing here knows HTTP
libraries, tools or revisions. Which parameters are mirrored is read once from a tool's input schema (``x-mcp-header``);
a value is plain text where a header can carry it, else Base64 of its UTF-8 between ``=?base64?`` and ``?=``. Rules:
basic/transports/streamable-http, Request Metadata, and server/tools, x-mcp-header.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

__all__ = [
    "HeaderParameter",
    "build_headers",
    "compare_headers",
    "compare_parameter_headers",
    "decode_value",
    "encode_value",
    "header_parameters",
]

_ANNOTATION = "x-mcp-header"
_PREFIX, _SUFFIX = "=?base64?", "?="
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# Not empty, and without a tab: Base64 is always understood, and some HTTP software does not send tabs.
_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_NOT_FIELD_VALUE = re.compile(r"[^\t\x20-\x7e]")
# "42.0" and "42" are the same integer (Server Validation); anything with more digits than a safe integer is not one.
_INTEGER = re.compile(r"(-?(?:0|[1-9][0-9]{0,15}))(?:\.0{1,16})?")
_SAFE_INTEGER = 2**53 - 1  # The largest integer that every double up to it represents exactly.

# Below these keywords is data, in which the annotation has no meaning.
_DATA = frozenset({"const", "default", "enum", "examples"})
# The members of these are names chosen by the author of the schema, not keywords.
_NAMED = frozenset(
    {"$defs", "definitions", "dependencies", "dependentRequired", "dependentSchemas", "patternProperties", "properties"}
)


class HeaderParameter(Struct, frozen=True):
    """A mirrored tool parameter: the name of its header and the property path to its value."""

    header: str
    path: tuple[str, ...]


def header_parameters(input_schema: Mapping[str, Any]) -> tuple[HeaderParameter, ...]:
    """Return the parameters that an input schema mirrors in headers.

    Raises:
        ValueError: an annotation breaks a rule, so the tool must not be offered; the message says which.
    """
    found: dict[str, HeaderParameter] = {}
    for path, reachable, schema in _schemas(input_schema):
        if _ANNOTATION not in schema:
            continue
        parameter = HeaderParameter(f"Mcp-Param-{_annotation(schema, path, reachable=reachable)}", path)
        other = found.setdefault(parameter.header.lower(), parameter)
        if other is not parameter:
            raise ValueError(
                f'{_ANNOTATION} maps "{_dotted(path)}" and "{_dotted(other.path)}" to one header, {other.header}; '
                "names must differ by more than case."
            )
    return tuple(found.values())


def _annotation(schema: Mapping[str, Any], path: tuple[str, ...], *, reachable: bool) -> str:
    """Return the name in a valid annotation."""
    name = schema[_ANNOTATION]
    where = f'{_ANNOTATION} of "{_dotted(path)}"'
    if not (reachable and path):
        raise ValueError(
            f"{where} cannot be reached: every step from the root of the schema must be a member of properties, "
            "not of items, a composition, a condition or a definition."
        )
    if not isinstance(name, str) or not name:
        raise ValueError(f"{where} must be a non-empty string.")
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{where} is {name!a}, which is not a header name; use letters, digits and hyphens.")
    kinds = schema.get("type")
    # A nullable type is allowed, since a null value has its own rule: no header.
    kinds = [kind for kind in kinds if kind != "null"] if isinstance(kinds, list) else [kinds]
    if len(kinds) != 1 or kinds[0] not in ("string", "integer", "boolean"):
        raise ValueError(f'{where} needs a property whose "type" is string, integer or boolean.')
    return name


def _schemas(root: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], bool, Mapping[str, Any]]]:
    """Yield every schema in a schema, with its path and whether only ``properties`` lead to it."""
    waiting: list[tuple[tuple[str, ...], bool, Any]] = [((), True, root)]
    while waiting:
        path, reachable, schema = waiting.pop()
        if isinstance(schema, list):
            waiting.extend((path, False, item) for item in reversed(schema))
        if not isinstance(schema, Mapping):
            continue
        yield path, reachable, schema
        below: list[tuple[tuple[str, ...], bool, Any]] = []
        for keyword, value in schema.items():
            if keyword in _NAMED and isinstance(value, Mapping):
                direct = reachable and keyword == "properties"
                below += [((*path, name), direct, item) for name, item in value.items()]
            elif keyword not in _DATA:
                below.append(((*path, keyword), False, value))
        waiting.extend(reversed(below))


def _dotted(path: Sequence[str]) -> str:
    return ".".join(path) or "(root)"


def encode_value(value: str | int | bool | float) -> str:
    """Encode a parameter as a header value.

    Raises:
        ValueError: it cannot be encoded: a fraction, an integer beyond 2**53-1, or invalid Unicode.
    """
    text = _as_text(value)
    if not text or (_PLAIN.fullmatch(text) and not (text.startswith(_PREFIX) and text.endswith(_SUFFIX))):
        return text
    return _PREFIX + b2a_base64(text.encode(), newline=False).decode() + _SUFFIX


def decode_value(text: str) -> str:
    """Decode a header value, ignoring surrounding white space.

    Raises:
        ValueError: it has characters that a header must not have, or its Base64 or UTF-8 is broken.
    """
    text = text.strip(" \t")
    if _NOT_FIELD_VALUE.search(text):
        raise ValueError("it has characters that a header cannot carry")
    if len(text) < len(_PREFIX + _SUFFIX) or not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)):
        return text
    try:
        return a2b_base64(text[len(_PREFIX) : -len(_SUFFIX)], strict_mode=True).decode()
    except ValueError as error:
        raise ValueError("it is marked as Base64 of UTF-8 but is not") from error


def _as_text(value: object) -> str:
    """Convert a value to text by the specification's type conversion."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and abs(value) <= _SAFE_INTEGER:
        return str(value)
    raise ValueError("only a string, a boolean or an integer of at most 2**53-1 can be sent in a header")


def build_headers(
    method: str,
    name: str | None,
    *,
    arguments: Mapping[str, Any] | None = None,
    parameters: Sequence[HeaderParameter] = (),
) -> dict[str, str]:
    """Build the headers of a request; ``name`` is the tool, prompt or URI that it names, if any.

    Raises:
        ValueError: a mirrored argument or the method name cannot be sent in a header.
    """
    if not _PLAIN.fullmatch(method):
        raise ValueError(f"Method {method!a} cannot be sent in the Mcp-Method header; use visible ASCII.")
    headers = {"Mcp-Method": method}
    if name is not None:
        headers["Mcp-Name"] = encode_value(name)
    for parameter in parameters:
        value = _value_at(arguments, parameter.path)
        if value is None:
            continue
        try:
            headers[parameter.header] = encode_value(value)
        except ValueError as error:
            raise ValueError(f'Argument "{_dotted(parameter.path)}" for {parameter.header}: {error}.') from error
    return headers


def compare_headers(
    headers: Mapping[str, str],
    method: str,
    *,
    name: str | None,
    arguments: Mapping[str, Any] | None = None,
    parameters: Sequence[HeaderParameter] = (),
) -> str | None:
    """Return where the headers of a request first disagree with its body, or None if they agree.

    Names of headers are compared without case, values with it. Other headers are ignored.
    """
    given = {header.lower(): value for header, value in headers.items()}
    said = given.get("mcp-method")
    if said is None:
        return f"Mcp-Method header is missing; the body calls {_quoted(method)}."
    if said.strip(" \t") != method:
        return f"Mcp-Method header says {_quoted(said)} but the body calls {_quoted(method)}."
    if name is not None:
        problem = _compare_one("Mcp-Name", given.get("mcp-name"), name, verb="calls")
        if problem is not None:
            return problem
    return compare_parameter_headers(given, arguments, parameters=parameters)


def compare_parameter_headers(
    headers: Mapping[str, str], arguments: Mapping[str, Any] | None, *, parameters: Sequence[HeaderParameter]
) -> str | None:
    """Return which mirrored parameter first disagrees with the arguments, or None if all agree."""
    if not parameters:
        return None
    given = {header.lower(): value for header, value in headers.items()}
    for parameter in parameters:
        said = given.get(parameter.header.lower())
        value = _value_at(arguments, parameter.path)
        if value is None and said is None:
            continue
        problem = _compare_one(parameter.header, said, value, verb="has")
        if problem is not None:
            return problem
    return None


def _compare_one(header: str, said: str | None, value: object, *, verb: str) -> str | None:
    """Compare one header with the value in the body, either of which may be absent."""
    if value is None:
        return f"{header} header is present but the body has no value for it."
    try:
        expected = _as_text(value)
    except ValueError as error:
        return f"{header} header cannot match the body: {error}."
    if said is None:
        return f"{header} header is missing; the body {verb} {_quoted(expected)}."
    try:
        text = decode_value(said)
    except ValueError as error:
        return f"{header} header cannot be read: {error}."
    if text == expected or _same_integer(text, value):
        return None
    return f"{header} header says {_quoted(text)} but the body {verb} {_quoted(expected)}."


def _same_integer(text: str, value: object) -> bool:
    if isinstance(value, str | bool):
        return False
    number = _INTEGER.fullmatch(text)
    return number is not None and int(number[1]) == value


def _value_at(arguments: Mapping[str, Any] | None, path: Sequence[str]) -> Any:
    """Return the value at the exact path, or None if it is missing or null: the two are treated alike."""
    value: Any = arguments
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _quoted(text: str) -> str:
    """Quote untrusted text for a message: on one line, and truncated if long."""
    shown = text if len(text) <= 80 else text[:79] + "…"
    return '"' + "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in shown) + '"'
