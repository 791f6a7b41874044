"""Builds the HTTP request of an operation from the arguments of a tool: what is not declared is not sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from trunkline.compat.openapi.schemas import _combine_schemas_and_map_params, as_definitions, body_media_type, is_json

__all__ = ["RequestDirector", "http_module"]


def http_module() -> Any:
    """Return the HTTP library that requests are made of."""
    try:
        import httpx2 as httpx
    except ImportError:
        import httpx  # type: ignore[import-not-found, no-redef, unused-ignore]
    return httpx


class RequestDirector:
    """Builds requests for the operations of a document."""

    def __init__(self, spec: Any = None) -> None:
        """Initialize with the document."""
        self._spec = spec

    def build(self, route: Any, flat_args: Mapping[str, Any], base_url: str = "http://localhost") -> Any:
        """Return the request of an operation.

        Raises:
            ValueError: a parameter of the path is missing.
        """
        path: dict[str, Any] = {}
        query: list[tuple[str, str]] = []
        headers: dict[str, str] = {}
        cookies: dict[str, str] = {}
        body: dict[str, Any] = {}
        whole: list[Any] = []
        declared = {(each.location, each.name): each for each in route.parameters}
        for argument, value in flat_args.items():
            place = self._place(route, argument, declared)
            if place is None or (value is None and place["location"] != "body"):
                continue
            name, location = place["openapi_name"], place["location"]
            if location == "path":
                path[name] = value
            elif location == "query":
                query += _query(declared.get((location, name)), name, value)
            elif location == "header":
                headers[name] = _text(value)
            elif location == "cookie":
                cookies[name] = _text(value)
            elif place.get("is_body"):
                whole.append(value)
            else:
                body[name] = value
        content = self._content(route, body, whole)
        headers = {**content.pop("headers", {}), **headers}
        httpx = http_module()
        url = f"{str(base_url).rstrip('/')}{self._path(route, path)}"
        return httpx.Request(
            route.method, url, params=query or None, headers=headers, cookies=cookies or None, **content
        )

    def _place(self, route: Any, argument: str, declared: Mapping[Any, Any]) -> dict[str, Any] | None:
        """Return where an argument goes; a declared parameter may always be named with its place."""
        places = route.parameter_map
        if not places and (route.parameters or route.request_body is not None):
            _, places = _combine_schemas_and_map_params(route)
            route.parameter_map = places
        if argument in places:
            return places[argument]  # type: ignore[no-any-return]
        name, separator, location = argument.rpartition("__")
        if separator and (location, name) in declared:
            return {"location": location, "openapi_name": name}
        return None

    @staticmethod
    def _path(route: Any, values: Mapping[str, Any]) -> str:
        path: str = route.path
        for name, value in values.items():
            path = path.replace(f"{{{name}}}", quote(_text(value), safe=""))
        missing = [each.name for each in route.parameters if each.location == "path" and f"{{{each.name}}}" in path]
        if missing:
            raise ValueError(f"Missing required path parameters: {', '.join(missing)}")
        return path if path.startswith("/") else f"/{path}"

    @staticmethod
    def _content(route: Any, body: dict[str, Any], whole: list[Any]) -> dict[str, Any]:
        """Return the members of a request that are its body."""
        info = route.request_body
        kind = None if info is None else body_media_type(info.content_schema)
        if kind is None or not (body or whole or info.required):
            return {}
        value = whole[0] if whole else body
        plain = kind.partition(";")[0].strip().lower()
        if plain == "multipart/form-data" and isinstance(value, Mapping):
            schema = as_definitions(info.content_schema[kind])
            return {"files": _parts(value, schema.get("properties") or {}, info.encoding)}
        if plain == "application/x-www-form-urlencoded" and isinstance(value, Mapping):
            return {"data": {name: _form(each) for name, each in value.items() if each is not None}}
        if is_json(kind) or not isinstance(value, str | bytes):
            encoded = json.dumps(value, ensure_ascii=False, default=str).encode()
            return {"content": encoded, "headers": {"content-type": kind if is_json(kind) else "application/json"}}
        data = value.encode() if isinstance(value, str) else value
        return {"content": data, "headers": {"content-type": kind}}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(_text(each) for each in value)
    return str(value)


def _form(value: Any) -> Any:
    return [_text(each) for each in value] if isinstance(value, list) else _text(value)


def _query(parameter: Any, name: str, value: Any) -> list[tuple[str, str]]:
    """Return a query parameter as its style says."""
    style = (parameter.style if parameter is not None else None) or "form"
    explode = parameter.explode if parameter is not None else None
    if isinstance(value, Mapping):
        if style == "deepObject":
            return [(f"{name}[{key}]", _text(each)) for key, each in value.items()]
        if explode is False and style == "form":
            return [(name, ",".join(f"{key},{_text(each)}" for key, each in value.items()))]
        return [(str(key), _text(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        repeats = explode if explode is not None else style in ("form", "deepObject")
        if repeats:
            return [(name, _text(each)) for each in value]
        separator = {"pipeDelimited": "|", "spaceDelimited": " "}.get(style, ",")
        return [(name, separator.join(_text(each) for each in value))]
    return [(name, _text(value))]


def _parts(
    values: Mapping[str, Any], properties: Mapping[str, Any], encoding: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, Any]]:
    """Return the parts of a form with several parts: lists of text are repeated unless their encoding differs."""
    parts: list[tuple[str, Any]] = []
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, tuple | bytes) or hasattr(value, "read"):
            parts.append((name, value if not isinstance(value, bytes) else (name, value)))
        elif _is_repeated(value, properties.get(name), encoding.get(name)):
            parts += [(name, (None, each)) for each in value]
        else:
            parts.append((name, (None, _text(value) if isinstance(value, bool) else str(value))))
    return parts


def _is_repeated(value: Any, schema: Any, how: Mapping[str, Any] | None) -> bool:
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        return False
    items = schema.get("items") if isinstance(schema, Mapping) else None
    if not isinstance(items, Mapping) or items.get("type") != "string":
        return False
    defaults = {"style": "form", "explode": True, "contentType": "text/plain", "allowReserved": False, "headers": {}}
    return all(key in defaults and each == defaults[key] for key, each in (how or {}).items())
