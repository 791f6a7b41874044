"""Names of tools and arguments, and the serialization of parameters in a path, query, header or cookie.

Serialization follows the styles of OpenAPI.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from trunkline.errors import ToolError

__all__ = [
    "ApiParameter",
    "argument_name",
    "check_no_overlap",
    "cookie_pairs",
    "free_name",
    "header_text",
    "json_text",
    "path_text",
    "plain_text",
    "query_pairs",
    "slug",
    "tool_names",
]

#: Longest name of a tool or an argument that model APIs accept.
_MOST = 64
_DIGEST = 8
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")


def tool_names(operations: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return tool names for operations, each given as method, path and id (which may be empty).

    A name depends on the operation only, not on its position in the document: if two would be equal, or one is too
    long, a digest of method and path is appended.
    """
    wished = [_preferred_name(method, path, identifier) for method, path, identifier in operations]
    cut = [name if len(name) <= _MOST else name[: _MOST - _DIGEST - 1] for name in wished]
    times = Counter(cut)
    names = [
        short if short == whole and times[short] == 1 else _digested(short, f"{method} {path}")
        for whole, short, (method, path, _) in zip(wished, cut, operations, strict=True)
    ]
    seen: set[str] = set()
    return [_noted(free_name(name, seen), seen) for name in names]


def _preferred_name(method: str, path: str, identifier: str) -> str:
    name = _OTHER.sub("_", identifier).strip("_")
    return name or f"{method.lower()}_{_OTHER.sub('_', path).strip('_')}".strip("_")


def _digested(name: str, key: str) -> str:
    digest = sha256(key.encode(errors="replace")).hexdigest()[:_DIGEST]
    return f"{name[: _MOST - _DIGEST - 1]}_{digest}"


def _noted(name: str, seen: set[str]) -> str:
    seen.add(name)
    return name


def argument_name(name: str, where: str, *, taken: Collection[str]) -> str:
    """Return the argument name of a parameter or body member; if it is taken, its location is appended."""
    plain = _OTHER.sub("_", name)[: _MOST - 16] or "value"
    plain = plain if plain.strip("_") else "value"
    return plain if plain not in taken else free_name(f"{plain}_{where}", taken)


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number appended if it is taken."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name[: _MOST - 6]}_{number}"
    return found


def slug(title: str) -> str:
    """Return a short plain name derived from a title."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40].strip("-") or "openapi"


# RFC 3986 allows these in a query, besides unreserved characters; "&", "#", "+", "=" and, to some servers, ";" have a
# meaning of their own.
_RESERVED = ":/?@!$'()*"
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_DOTS = re.compile(r"(?:^|[/\\])\.{1,2}(?:[/\\]|$)")
#: Style, the encoded separator, and the character that no item may contain.
_SEPARATORS = (("spaceDelimited", "%20", " "), ("pipeDelimited", "%7C", "|"))


class ApiParameter(Struct, frozen=True, kw_only=True):
    """A parameter of an operation: its name, its location, and how it is serialized."""

    name: str
    #: path, query, header or cookie.
    where: str
    style: str
    explode: bool
    #: The name of the tool's argument.
    argument: str
    schema: Any
    required: bool = False
    reserved: bool = False
    #: Serialized as JSON regardless of the style.
    as_json: bool = False


def path_text(parameter: ApiParameter, value: Any) -> str:
    """Serialize a value for a path.

    Raises:
        ToolError: the value is empty, or would lead to another path.
    """
    if parameter.as_json:
        return _segment(parameter, json_text(value))
    style, name = parameter.style, _quoted(parameter.name)
    if isinstance(value, list | dict):
        pieces = [_segment(parameter, piece) for piece in _pieces(parameter, value)]
        if not pieces:
            raise ToolError(f"{parameter.argument} must not be empty: it is part of the path")
        return _joined_path(parameter, value, pieces, name)
    text = _segment(parameter, _scalar(parameter, value))
    return {"label": f".{text}", "matrix": f";{name}={text}"}.get(style, text)


def _joined_path(parameter: ApiParameter, value: Any, pieces: list[str], name: str) -> str:
    style, explode = parameter.style, parameter.explode
    if isinstance(value, dict):
        pairs = [f"{key}={item}" for key, item in zip(pieces[::2], pieces[1::2], strict=True)]
        if style == "matrix":
            return "".join(f";{pair}" for pair in pairs) if explode else f";{name}={','.join(pieces)}"
        if style == "label":
            return "." + (".".join(pairs) if explode else ",".join(pieces))
        return ",".join(pairs if explode else pieces)
    if style == "matrix":
        return "".join(f";{name}={item}" for item in pieces) if explode else f";{name}={','.join(pieces)}"
    if style == "label":
        return "." + ("." if explode else ",").join(pieces)
    return ",".join(pieces)


def query_pairs(parameter: ApiParameter, value: Any) -> list[tuple[str, str]]:
    """Serialize a value as query pairs, names and values encoded.

    Raises:
        ToolError: the style cannot express the value.
    """
    name = parameter.name
    if value is None:
        return []
    if parameter.as_json:
        return [(_quoted(name), _quoted(json_text(value)))]
    if not isinstance(value, list | dict):
        return [(_quoted(name), _encoded(parameter, _scalar(parameter, value), more=","))]
    if parameter.style == "deepObject":
        return [(_quoted(key), _quoted(item)) for key, item in _deep(parameter, name, value, 0)]
    pieces = [_encoded(parameter, piece) for piece in _pieces(parameter, value)]
    if parameter.explode:
        if isinstance(value, dict):
            return [(_quoted(key), item) for key, item in zip(value, pieces[1::2], strict=True)]
        return [(_quoted(name), item) for item in pieces]
    if not pieces:
        return []
    return [(_quoted(name), _delimiter(parameter, value).join(pieces))]


def check_no_overlap(
    parameter: ApiParameter, written: Iterable[tuple[str, str]], *, others: Iterable[str], owned: Collection[str] = ()
) -> None:
    """Check that the members of an exploded object do not override other parameters or ``owned`` names.

    Raises:
        ToolError: one does, at least for a server that compares names loosely.
    """
    exact = {each for each in others if each != parameter.name}
    own = _folded(parameter.name)
    taken = {_folded(each) for each in exact} - {own} | {_folded(each) for each in owned}
    for encoded, _ in written:
        name = unquote(encoded)
        if name != parameter.name and (name in exact or _folded(name) in taken):
            raise ToolError(
                f"{parameter.argument} must not have the member {name!r}: another parameter or credential has that name"
            )


def _folded(name: str) -> str:
    """Normalize a name as loosely as any server might: some ignore case, brackets or punctuation."""
    return re.sub(r"\W", "_", (name.partition("[")[0] or name).strip().lower())


def _delimiter(parameter: ApiParameter, value: Any) -> str:
    for style, written, mark in _SEPARATORS:
        if parameter.style == style:
            if any(mark in piece for piece in _pieces(parameter, value)):
                raise ToolError(f"{parameter.argument}: no item may hold {mark!r}, which separates the items")
            return written
    return ","


def _deep(parameter: ApiParameter, name: str, value: Any, depth: int) -> Iterable[tuple[str, str]]:
    if depth > 8:
        raise ToolError(f"{parameter.argument} is nested too deeply")
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _deep(parameter, f"{name}[{key}]", item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _deep(parameter, name, item, depth + 1)
    elif value is not None:
        yield name, _scalar(parameter, value)


def header_text(parameter: ApiParameter, value: Any) -> str:
    """Serialize a value for a header.

    Raises:
        ToolError: the value cannot be in a header.
    """
    if parameter.as_json:
        text = json_text(value)
    elif isinstance(value, list | dict):
        pieces = _pieces(parameter, value)
        if any("," in piece for piece in pieces):
            raise ToolError(f"{parameter.argument}: no item may hold a comma, which separates the items")
        if isinstance(value, dict) and parameter.explode:
            pieces = [f"{key}={item}" for key, item in zip(pieces[::2], pieces[1::2], strict=True)]
        text = ",".join(pieces)
    else:
        text = _scalar(parameter, value)
    if _CONTROLS.search(text) or not text.isascii():
        raise ToolError(f"{parameter.argument} goes into a header, which holds plain ASCII text of one line")
    return text


def cookie_pairs(parameter: ApiParameter, value: Any) -> list[tuple[str, str]]:
    """Serialize a value as cookies, names and values encoded.

    Raises:
        ToolError: the value cannot be serialized.
    """
    return query_pairs(parameter, value)


# --- pieces ----------------------------------------------------------------------------------------------------------


def _pieces(parameter: ApiParameter, value: Any) -> list[str]:
    """Return the items of a list, or alternating names and values of an object, as text."""
    if isinstance(value, dict):
        return [piece for key, item in value.items() for piece in (key, _scalar(parameter, item))]
    return [_scalar(parameter, item) for item in value]


def _scalar(parameter: ApiParameter, value: Any) -> str:
    if isinstance(value, dict | list):
        raise ToolError(f"{parameter.argument} is nested deeper than a {parameter.where} parameter can say")
    if value is None:
        if parameter.where == "path":
            raise ToolError(f"{parameter.argument} must not be null: it is part of the path")
        return ""
    return plain_text(value)


def plain_text(value: Any) -> str:
    """Return a string, number or boolean as text; a whole number has no decimal point."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return json_text(value)


def json_text(value: Any) -> str:
    """Return a value as JSON."""
    return msgspec.json.encode(value).decode()


def _segment(parameter: ApiParameter, text: str) -> str:
    """Encode a piece of a path; reject one that would lead to another path once decoded."""
    if not text:
        raise ToolError(f"{parameter.argument} must not be empty: it is part of the path")
    if _DOTS.search(text) or _CONTROLS.search(text):
        raise ToolError(f'{parameter.argument} must not hold ".", ".." or control characters as part of a path')
    return _quoted(text)


def _encoded(parameter: ApiParameter, text: str, *, more: str = "") -> str:
    return _quoted(text, safe=_RESERVED + more if parameter.reserved else "")


def _quoted(text: str, safe: str = "") -> str:
    try:
        return quote(text, safe=safe)
    except UnicodeEncodeError as error:
        raise ToolError("The text is not valid Unicode") from error
