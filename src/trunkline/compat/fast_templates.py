"""URI templates as FastMCP has them: ``{name}``, ``{path*}`` over slashes, ``{?a,b*}``, hyphens for underscores.

Our own templates are RFC 6570's; these differ in what they match, so that servers that rely on it keep their URIs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

__all__ = ["FastUriTemplate", "build_regex", "expand_uri_template", "match_uri_template", "normalize_name"]

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_QUERY = re.compile(r"\{\?([^{}]*)\}")
#: What may stand in a URI as it is (RFC 3986: reserved and unreserved characters).
_PLAIN = ":/?#[]@!$&'()*+,;=-._~"
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")


def normalize_name(name: str) -> str:
    """Return the parameter of a function that a variable stands for."""
    return name.replace("-", "_")


def _encoded(text: str) -> str:
    """Return literal text as it stands in a URI; what is encoded already stays."""
    pieces, end = [], 0
    for found in _ESCAPED.finditer(text):
        pieces += [quote(text[end : found.start()], safe=_PLAIN), found.group()]
        end = found.end()
    return "".join([*pieces, quote(text[end:], safe=_PLAIN)])


def _literal_pattern(text: str) -> str:
    """Return a pattern for literal text, as written and as encoded, in either case of the digits."""
    encoded = _encoded(text)
    if encoded == text:
        return re.escape(text)
    folded = "".join(
        f"%(?i:{part[1:]})" if _ESCAPED.fullmatch(part) else re.escape(part)
        for part in re.split(r"(%[0-9A-Fa-f]{2})", encoded)
    )
    return f"(?:{re.escape(text)}|{folded})"


@lru_cache(maxsize=1024)
def build_regex(template: str) -> re.Pattern[str] | None:
    """Return the pattern of a template's path, or None if its variables cannot be told apart."""
    path = _QUERY.sub("", template)
    pattern, end = "", 0
    for found in _EXPRESSION.finditer(path):
        name = found.group(1)
        wildcard = name.endswith("*")
        group = normalize_name(name.removesuffix("*"))
        if not group.isidentifier():
            return None
        pattern += _literal_pattern(path[end : found.start()])
        pattern += f"(?P<{group}>.+)" if wildcard else f"(?P<{group}>[^/?#]+)"
        end = found.end()
    try:
        return re.compile(f"^{pattern}{_literal_pattern(path[end:])}$", re.DOTALL)
    except re.error:
        return None


@lru_cache(maxsize=1024)
def _query_names(template: str) -> tuple[tuple[str, bool], ...]:
    """Return the variables of a template's query, and whether each is repeated."""
    names = [each.strip() for found in _QUERY.finditer(template) for each in found.group(1).split(",")]
    return tuple((name.removesuffix("*"), name.endswith("*")) for name in names if name)


def match_uri_template(
    uri: str, uri_template: str, list_params: Collection[str] = (), pattern: re.Pattern[str] | None = None
) -> dict[str, Any] | None:
    """Return the values of a template's variables, or None if a URI does not belong to it."""
    pattern = pattern or build_regex(uri_template)
    if pattern is None:
        return None
    if "#" not in uri_template:
        uri = uri.partition("#")[0]
    queried = _query_names(uri_template)
    path, query = uri, ""
    if queried:
        path, _, query = uri.partition("?")
        query = query.partition("#")[0]
    found = pattern.match(path)
    if found is None and "?" in path and "?" not in _QUERY.sub("", uri_template):
        found = pattern.match(path.partition("?")[0])
    if found is None:
        return None
    values: dict[str, Any] = {name: unquote(value) for name, value in found.groupdict().items()}
    given = _query_values(query)
    for name, repeated in queried:
        key = normalize_name(name)
        if name not in given or key in values:
            continue
        raw = given[name]
        if repeated:
            values[key] = [unquote(each) for each in raw]
        elif key in list_params:
            values[key] = [unquote(each) for each in raw[0].split(",")] if raw[0] else []
        else:
            values[key] = unquote(raw[0])
    return values


def _query_values(query: str) -> dict[str, list[str]]:
    given: dict[str, list[str]] = {}
    for item in query.split("&"):
        if item:
            name, _, value = item.partition("=")
            given.setdefault(unquote(name), []).append(value.replace("+", " "))
    return given


def expand_uri_template(uri_template: str, params: Mapping[str, Any]) -> str:
    """Return the URI of a template with these values; the opposite of matching."""
    made, end = "", 0
    for found in _EXPRESSION.finditer(uri_template):
        made += _encoded(uri_template[end : found.start()])
        made += _expanded(found.group(1), params)
        end = found.end()
    return made + _encoded(uri_template[end:])


def _expanded(expression: str, params: Mapping[str, Any]) -> str:
    if not expression.startswith("?"):
        name = normalize_name(expression.removesuffix("*"))
        if name not in params:
            return f"{{{expression}}}"
        return quote(str(params[name]), safe="/" if expression.endswith("*") else "")
    pairs = []
    for each in expression[1:].split(","):
        name = each.strip().removesuffix("*")
        value = params.get(normalize_name(name))
        if value is None:
            continue
        several = isinstance(value, list | tuple)
        if several and not value:
            continue
        if several and each.strip().endswith("*"):
            pairs += [f"{name}={quote(str(item), safe='')}" for item in value]
        elif several:
            pairs.append(f"{name}={','.join(quote(str(item), safe='') for item in value)}")
        else:
            pairs.append(f"{name}={quote(str(value), safe='')}")
    return f"?{'&'.join(pairs)}" if pairs else ""


class FastUriTemplate:
    """A template with its pattern, made once."""

    def __init__(self, text: str, list_params: Collection[str] = ()) -> None:
        """Read a template."""
        self.text = text
        self.list_params = frozenset(list_params)
        self._pattern = build_regex(text)
        path = _QUERY.sub("", text)
        #: The variables of the path, and of the query, by the names of parameters.
        self.path_names = [normalize_name(each.removesuffix("*")) for each in _EXPRESSION.findall(path)]
        self.query_names = [normalize_name(name) for name, _ in _query_names(text)]
        self.repeated = {normalize_name(name) for name, repeated in _query_names(text) if repeated}

    @property
    def names(self) -> tuple[str, ...]:
        """All variables, by the names of parameters."""
        return tuple(dict.fromkeys([*self.path_names, *self.query_names]))

    def collision(self) -> tuple[str, str, str] | None:
        """Return two variables that stand for one parameter and that parameter, or None."""
        seen: dict[str, str] = {}
        for raw in _EXPRESSION.findall(_QUERY.sub("", self.text)):
            name = raw.removesuffix("*")
            other = seen.setdefault(normalize_name(name), name)
            if other != name:
                return other, name, normalize_name(name)
        return None

    def match(self, uri: str, *, safe: bool = True) -> dict[str, Any] | None:
        """Return the values of the variables, or None."""
        return match_uri_template(uri, self.text, self.list_params, self._pattern)

    def expand(self, values: Mapping[str, Any]) -> str:
        """Return the URI with these values."""
        return expand_uri_template(self.text, values)
